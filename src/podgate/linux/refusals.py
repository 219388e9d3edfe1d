"""Refusals: what it means that the kernel refuses a request over netlink, in words and in one.

Here: the words, and raising them as an error of the caller's. Not here: what was asked (netlink.py and its families).
Invariant: whatever the kernel says, its own code stands in the message, and a missing right is told apart from a fault.
"""

import contextlib
import errno
from collections.abc import Callable, Iterator
from typing import NamedTuple

from podgate.linux.netlink import DumpInterruptedError, NetlinkError


class Refusal(NamedTuple):
    """What went wrong, as the rest of a sentence about what was done, and one word for it."""

    message: str
    reason: str


def refusal(problem: OSError | DumpInterruptedError, hint: str = "") -> Refusal:
    """Say what a failure of a request to the kernel means, and what to do.

    Args:
        problem: what was raised.
        hint: what to do where the kernel may know nothing of what it was asked; empty if every kernel does.
    """
    if isinstance(problem, DumpInterruptedError):
        return Refusal(f"failed ({problem}); it is tried again later", "ReadInterrupted")
    code = f"{errno.errorcode.get(problem.errno or 0, problem.errno)}: {problem.strerror}"
    if problem.errno in (errno.EPERM, errno.EACCES):
        right = "podgate needs CAP_NET_ADMIN in this network namespace"
        return Refusal(f"is not permitted ({code}): {right}", "NotPermitted")
    words = problem.words if isinstance(problem, NetlinkError) else ""
    unexplained = problem.errno == errno.EINVAL and not words
    if hint and (unexplained or problem.errno in (errno.EPROTONOSUPPORT, errno.EOPNOTSUPP)):
        return Refusal(f"failed ({code}): {hint}", "KernelLacksFeature")
    return Refusal(f"failed ({code})", "KernelRefused")


@contextlib.contextmanager
def refused(what: str, error: Callable[[str, str], Exception], hint: str = "") -> Iterator[None]:
    """Have what the kernel refuses in the body raised as an error of the caller's, made of a message and a reason.

    Args:
        what: what is done, as the beginning of a sentence: ``reading table ip kube-proxy``.
        error: makes the error.
        hint: what to do where the kernel may know nothing of what it was asked; empty if every kernel does.
    """
    try:
        yield
    except (OSError, DumpInterruptedError) as problem:
        message, reason = refusal(problem, hint)
        raise error(f"{what} {message}", reason) from problem
