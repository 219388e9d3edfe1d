"""What the kernel's refusals mean, in words and in one; watching itself is tried in tests/kernel."""

import errno

import pytest

from podgate.linux.netlink import DumpInterruptedError, NetlinkError
from podgate.linux.nftables_watch import refusal

MEANT: dict[str, tuple[OSError | DumpInterruptedError, str, str]] = {
    "not root": (NetlinkError(errno.EPERM), "NotPermitted", "CAP_NET_ADMIN"),
    "no permission": (PermissionError(errno.EACCES, "no"), "NotPermitted", "CAP_NET_ADMIN"),
    "no nf_tables": (NetlinkError(errno.EOPNOTSUPP), "KernelLacksFeature", "load the module nf_tables"),
    "nothing knows the subsystem": (NetlinkError(errno.EINVAL), "KernelLacksFeature", "load the module nf_tables"),
    "a mistake that the kernel explains": (NetlinkError(errno.EINVAL, "bad priority"), "KernelRefused", "bad priority"),
    "no descriptors": (OSError(errno.EMFILE, "Too many open files"), "KernelRefused", "EMFILE: Too many open files"),
    "a list that kept changing": (DumpInterruptedError("it changed"), "ReadInterrupted", "tried again later"),
}


@pytest.mark.parametrize("case", MEANT)
def test_a_refusal_says_what_to_do(case: str) -> None:
    problem, reason, words = MEANT[case]
    message, found = refusal(problem)
    assert found == reason
    assert words in message
