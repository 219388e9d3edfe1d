"""What iptables says, turned into an error that shows where; the exit code alone says little."""

import asyncio
from pathlib import Path

import pytest

from podgate.joints import ApplyError
from podgate.targets.iptables.program import Iptables, failure
from podgate.targets.iptables.state import Binary

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


class Machine:
    """A folder of programs that say a version, and write down how they are called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self, version: str, *names: str) -> None:
        for name in names:
            program = self.folder / name
            program.write_text(
                f'#!/bin/sh\nif [ "$1" = --version ]; then echo "{name} {version}"; exit; fi\n'
                f'echo "{name} $*" >> {self.folder}/calls\n/bin/cat >> {self.folder}/calls\n'
            )
            program.chmod(0o755)

    def find(self, *names: str) -> str | None:
        return next((str(self.folder / name) for name in names if (self.folder / name).exists()), None)

    def restored(self, binary: Binary, text: str = "*nat\nCOMMIT\n") -> list[str]:
        asyncio.run(Iptables("ip", binary, lock_seconds=7).restore(text))
        return (self.folder / "calls").read_text().splitlines()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path)
    monkeypatch.setattr("podgate.targets.iptables.program.find_program", machine.find)
    return machine


def test_the_lock_is_waited_for_since_the_version_that_can(machine: Machine) -> None:
    machine.install("v1.6.2", "iptables-save", "iptables-restore")
    assert machine.restored("legacy") == ["iptables-restore -w 7 --noflush", "*nat", "COMMIT"]


@pytest.mark.parametrize("version", ["v1.6.1", "v1.4.21", "of unknown make"])
def test_older_programs_are_not_told_to_wait(version: str, machine: Machine) -> None:
    machine.install(version, "iptables-save", "iptables-restore")
    assert machine.restored("legacy")[0] == "iptables-restore --noflush"


def test_a_program_named_for_its_back_end_comes_first(machine: Machine) -> None:
    machine.install("v1.8.9 (legacy)", "iptables-save", "iptables-restore")
    machine.install("v1.8.9 (nf_tables)", "iptables-nft-save", "iptables-nft-restore")
    assert machine.restored("nft")[0] == "iptables-nft-restore -w 7 --noflush"


def test_a_plain_program_serves_if_it_is_of_the_back_end(machine: Machine) -> None:
    machine.install("v1.8.9 (nf_tables)", "iptables-save", "iptables-restore")
    assert machine.restored("nft")[0] == "iptables-restore -w 7 --noflush"
    with pytest.raises(ApplyError, match="iptables-legacy is not installed") as failed:
        machine.restored("legacy")
    assert failed.value.reason == "IptablesMissing"
