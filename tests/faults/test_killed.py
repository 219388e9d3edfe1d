"""kill -9 at system calls that write: what is left is whole, and the next run makes it right.

strace ends the process on entry to its N-th call: the last ones, the first and the one in the middle. Once without our
table, when nft makes it, and once with an older list in force, when elements change over netlink. The last calls are
those that matter: what comes before them is reading, in which nothing changes.
"""

import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.support.agent import Ended, is_whole, podgate
from tests.support.netns import NetNamespace

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

OLD, NEW = ("nonMasqueradeCIDRs: [10.0.0.0/8, 192.0.2.0/24]\n", "nonMasqueradeCIDRs: [10.0.0.0/8, 198.51.100.0/24]\n")
KEEPS = {
    OLD: frozenset({"10.0.0.0/8", "192.0.2.0/24", "169.254.0.0/16"}),
    NEW: frozenset({"10.0.0.0/8", "198.51.100.0/24", "169.254.0.0/16"}),
}
KEPT = "config.json"


class Left(NamedTuple):
    """All that a run may change: the ruleset, and the files of the state directory."""

    ruleset: str = ""
    files: Mapping[str, bytes] = {}

    @property
    def kept(self) -> bytes | None:
        return self.files.get(KEPT)


class Node:
    """A node whose agent runs once at a time."""

    def __init__(self, namespace: NetNamespace, directory: Path) -> None:
        self.namespace = namespace
        self.config = directory / "ip-masq-agent"
        self._state = directory / "state"
        self._trace = directory / "trace"

    def once(self, text: str, expression: str = "") -> Ended:
        """Run with a configuration, under strace with an expression if there is one."""
        self.config.write_text(text)
        under = ("strace", "-f", "-qqq", "-o", str(self._trace), "-e", expression) if expression else ()
        words = ("run", "--once", "--config", self.config, "--state-dir", self._state)
        return podgate("masquerade", *words, namespace=self.namespace, under=under)

    def killed_at(self, call: str, number: int) -> Ended:
        """Run with the new configuration, and die at the N-th call; a child dies at its own N-th."""
        return self.once(NEW, f"inject={call}:signal=KILL:when={number}")

    def calls(self, name: str) -> int:
        """Count how often a whole run with the new configuration makes a call, or else its busiest child."""
        assert self.once(NEW, f"trace={name}").code == 0
        lines = [line.split(maxsplit=1) for line in self._trace.read_text().splitlines()]
        made = Counter(pid for pid, text in lines if text.startswith(f"{name}("))
        first = min(made, key=int)
        return max(made.values()) if name == "sendmsg" else made[first]

    def left(self) -> Left:
        files = {path.name: path.read_bytes() for path in self._state.iterdir()} if self._state.exists() else {}
        return Left(self.namespace.run("nft", "list", "ruleset"), files)

    def begin(self, left: Left) -> None:
        """Make the node as an earlier run left it."""
        self.namespace.run("nft", "-f", "-", text=f"flush ruleset\n{left.ruleset}")
        shutil.rmtree(self._state, ignore_errors=True)
        if left.files:
            self._state.mkdir(mode=0o700)
        for name, data in left.files.items():
            (self._state / name).write_bytes(data)

    def left_by(self, text: str) -> Left:
        """Run with a configuration on a fresh node, and give what that leaves."""
        self.begin(Left())
        assert self.once(text).code == 0
        assert is_whole(self.namespace, KEEPS[text])
        return self.left()


CALLS = [
    *((name, None) for name in ("clone3", "pidfd_open", "sendmsg", "mkdir", "rename")),
    *((name, OLD) for name in ("sendto", "write", "fchmod", "fsync", "rename")),
]
"""Which calls write: nft is started, and sends with sendmsg; elements alone go over the agent's own socket."""


LAST: Final = 2
"""How many of the last calls are tried."""


@pytest.mark.parametrize(("call", "before"), CALLS, ids=lambda value: "change" if value == OLD else value or "first")
def test_whatever_call_it_is_killed_at_nothing_is_left_in_part(
    node: NetNamespace, tmp_path: Path, call: str, before: str | None
) -> None:
    one = Node(node, tmp_path)
    new, start = one.left_by(NEW), one.left_by(before) if before else Left()
    one.begin(start)
    last = one.calls(call)
    one.begin(start)
    while one.killed_at(call, last + 1).code != 0:  # where a child dies of it, a run may write more
        last += 1
        one.begin(start)
    assert one.left() == new
    for number in sorted({*range(max(1, last - LAST + 1), last + 1), 1, (last + 1) // 2}, reverse=True):
        one.begin(start)
        assert one.killed_at(call, number).code != 0
        left = one.left()
        assert left.ruleset in (start.ruleset, new.ruleset), f"after {call} {number}"
        assert left.kept in (start.kept, new.kept), f"after {call} {number}"
        assert one.once(NEW).code == 0
        assert one.left() == new, f"after {call} {number} and a restart"
        if left == start:
            break  # whatever it is killed at before, it had only read
    assert podgate("masquerade", "plan", "--config", one.config, namespace=node) == (0, "no difference\n", "")
