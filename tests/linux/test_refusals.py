"""What the kernel's refusals mean, in words and in one."""

import errno

import pytest

from podgate.linux.netlink import DumpInterruptedError, NetlinkError
from podgate.linux.refusals import refusal

HINT = "load the module"
MEANT: dict[str, tuple[OSError | DumpInterruptedError, str, str, str]] = {
    "not root": (NetlinkError(errno.EPERM), HINT, "NotPermitted", "CAP_NET_ADMIN"),
    "no permission": (PermissionError(errno.EACCES, "no"), "", "NotPermitted", "CAP_NET_ADMIN"),
    "the kernel lacks it": (NetlinkError(errno.EOPNOTSUPP), HINT, "KernelLacksFeature", HINT),
    "nothing knows the subsystem": (NetlinkError(errno.EINVAL), HINT, "KernelLacksFeature", HINT),
    "every kernel has it": (NetlinkError(errno.EINVAL), "", "KernelRefused", "EINVAL: Invalid argument"),
    "a mistake that the kernel explains": (
        NetlinkError(errno.EINVAL, "bad priority"),
        HINT,
        "KernelRefused",
        "bad pri",
    ),
    "no descriptors": (OSError(errno.EMFILE, "Too many open files"), HINT, "KernelRefused", "EMFILE: Too many open"),
    "a list that kept changing": (DumpInterruptedError("it changed"), "", "ReadInterrupted", "tried again later"),
}


@pytest.mark.parametrize("case", MEANT)
def test_a_refusal_says_what_to_do(case: str) -> None:
    problem, hint, reason, words = MEANT[case]
    message, found = refusal(problem, hint)
    assert found == reason
    assert words in message
