"""apply: the target that sets parameters of the kernel.

Here: files below /proc/sys. Not here: which are wanted.
Invariant: a parameter that cannot be set is refused by name, with what to do; the others are set.
"""

import errno
from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path

from podgate.joints import Key, Signal
from podgate.linux.waiting import silent
from podgate.targets.sysctl.diff import Plan, diff
from podgate.targets.sysctl.state import State


class SysctlTarget:
    """Sets parameters.

    Args:
        names: those that it looks at.
        root: where they are.
    """

    def __init__(self, names: Collection[str], root: Path = Path("/proc/sys")) -> None:
        self._names = tuple(sorted(names))
        self._root = root

    async def read(self) -> State:
        """Give their values."""
        values = {}
        for name in self._names:
            try:
                values[name] = int((self._root / name).read_text())
            except (OSError, ValueError):
                continue  # the kernel lacks it, or it is no number: what is wanted differs from that
        return State(values)

    def diff(self, have: State, want: State) -> Plan:
        """Give the plan."""
        return diff(have, want)

    async def apply(self, plan: Plan) -> Mapping[Key, str]:
        """Set them; what cannot be set is refused with the reason."""
        refused: dict[Key, str] = {}
        for name, value in plan.to_set.items():
            try:
                with (self._root / name).open("r+") as file:  # no parameter is made by writing to it
                    file.write(f"{value}\n")
            except OSError as error:
                refused[name] = why(name, value, error)
        return refused

    def signals(self) -> AsyncIterator[Signal]:
        """Wait for ever: the kernel tells nobody."""
        return silent()


def why(name: str, value: int, error: OSError) -> str:
    """Say why a parameter cannot be set, and what to do."""
    if error.errno == errno.ENOENT:
        return f"this kernel has no {name}: load the module that brings it, or leave it out"
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return f"{name} cannot be written here: set it to {value} on the node, or in a privileged init container"
    return f"{name} does not take {value} ({error.strerror})"
