"""What iptables says, turned into an error that shows where; the exit code alone says little."""

import pytest

from podgate.targets.iptables.program import failure

TEXT = "*nat\n:A - [0:0]\n-A A -d 10.0.0.0/33 -j RETURN\n-X B\nCOMMIT\n"

SAID = {
    "iptables-nft-restore v1.8.9 (nf_tables): invalid mask `33' specified\nError occurred at line: 3\nTry `x'\n": (
        2,
        3,
    ),
    "iptables-nft-restore v1.8.9 (nf_tables): \nline 4: CHAIN_DEL failed (Device or resource busy): chain B\n": (4, 4),
    "iptables-restore: line 4 failed\n": (1, 4),
    "iptables-nft-restore: line 4 failed: Bad rule (does a matching rule exist in that chain?).\n": (1, 4),
}


@pytest.mark.parametrize("said", SAID)
def test_the_lines_around_the_failing_one_are_numbered(said: str) -> None:
    code, number = SAID[said]
    problem = failure(TEXT, said, code, "/usr/sbin/iptables-nft-restore")
    assert str(problem).startswith(f"iptables-nft-restore ended with {code}: ")
    lines = str(problem).splitlines()
    assert f">{number:5d}  {TEXT.splitlines()[number - 1]}" in lines
    assert "Try" not in str(problem)
    assert "Error occurred" not in str(problem)
    assert problem.reason == "IptablesRejected"


@pytest.mark.parametrize(
    ("said", "code", "reason", "message"),
    [
        (
            "Another app is currently holding the xtables lock. Stopped waiting after 5s.",
            4,
            "LockHeld",
            "another program holds the lock",
        ),
        ("iptables v1.8.9: RULE_APPEND failed (Operation not permitted)", 4, "NotPermitted", "CAP_NET_ADMIN"),
        ("Fatal: can't open lock file /run/xtables.lock: Permission denied", 4, "NotPermitted", "CAP_NET_ADMIN"),
        ("iptables: No chain/target/match by that name.", 1, "KernelLacksFeature", "load the module"),
        ("", 139, "IptablesRejected", "ended with 139: no message"),
    ],
)
def test_what_the_message_means(said: str, code: int, reason: str, message: str) -> None:
    problem = failure("", said, code, "iptables-legacy-restore")
    assert problem.reason == reason
    assert message in str(problem)
