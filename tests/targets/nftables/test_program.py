"""What nft says, turned into an error that shows where and hints at what is missing."""

import pytest

from podgate.targets.nftables.program import failure

TEXT = """\
table ip t {
\tchain base {
\t\ttype nat hook postrouting priority 100; policy accept;
\t\tfib daddr type local return
\t\tmasquerade fully-random
\t}
}
"""


def test_the_lines_around_the_failing_one_are_numbered() -> None:
    problem = failure(
        TEXT, "/dev/stdin:5:3-12: Error: syntax error, unexpected masquerade\n\t\tmasquerade\n\t\t^^^^\n", 1
    )
    assert str(problem).splitlines() == [
        "nft refused line 5: syntax error, unexpected masquerade",
        "     3          type nat hook postrouting priority 100; policy accept;",
        "     4          fib daddr type local return",
        ">    5          masquerade fully-random",
        "     6      }",
        "     7  }",
    ]
    assert problem.reason == "NftRejected"


@pytest.mark.parametrize(
    ("line", "feature"),
    [(4, "the fib expression (CONFIG_NFT_FIB_IPV4"), (5, "masquerading (CONFIG_NFT_MASQ"), (3, "NAT chains")],
)
@pytest.mark.parametrize("message", ["Could not process rule: No such file or directory", "Operation not supported"])
def test_a_feature_that_the_kernel_may_lack_is_named(line: int, feature: str, message: str) -> None:
    problem = failure(TEXT, f"/dev/stdin:{line}:3-12: Error: {message}\n", 1)
    assert problem.reason == "KernelLacksFeature"
    assert f"the kernel lacks {feature}" in str(problem)


def test_a_mistake_is_not_a_lacking_feature() -> None:
    assert failure(TEXT, "/dev/stdin:4:3-12: Error: Could not parse fib address type\n", 1).reason == "NftRejected"


def test_many_failing_lines_are_cut_short() -> None:
    said = "".join(f"/dev/stdin:{number}:1-1: Error: wrong\n" for number in range(1, 8))
    assert str(failure(TEXT, said, 1)).endswith("and 4 more")


def test_a_missing_privilege_is_named() -> None:
    problem = failure(TEXT, "netlink: Error: cache initialization failed: Operation not permitted\n", 1)
    assert problem.reason == "NotPermitted"
    assert "CAP_NET_ADMIN" in str(problem)


@pytest.mark.parametrize(("said", "shown"), [("Segmentation fault\n", "Segmentation fault"), ("", "no message")])
def test_other_ends_show_what_nft_said(said: str, shown: str) -> None:
    assert str(failure(TEXT, said, 139)) == f"nft ended with 139: {shown}"
