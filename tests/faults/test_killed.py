"""kill -9 at every system call that writes: what is left is whole, and the next run makes it right.

strace ends the process on entry to its N-th call, for N = 1, 2, … until the run survives, once without our table, when
nft makes it, and once with an older list in force, when elements are changed over netlink.
"""

import shutil
from pathlib import Path

import pytest

from tests.support.agent import Ended, elements, is_whole, podgate, rules
from tests.support.netns import NetNamespace

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

OLD, NEW = ("nonMasqueradeCIDRs: [10.0.0.0/8, 192.0.2.0/24]\n", "nonMasqueradeCIDRs: [10.0.0.0/8, 198.51.100.0/24]\n")
KEEPS = {
    OLD: frozenset({"10.0.0.0/8", "192.0.2.0/24", "169.254.0.0/16"}),
    NEW: frozenset({"10.0.0.0/8", "198.51.100.0/24", "169.254.0.0/16"}),
}
KEPT = "config.json"
LAST, MOST = 5, 30
"""How many calls before a run's last one to begin with, since all before are reading, and after how many to give up."""


class Node:
    """A node whose agent runs once at a time."""

    def __init__(self, namespace: NetNamespace, directory: Path) -> None:
        self.namespace = namespace
        self.state = directory / "state"
        self.config = directory / "ip-masq-agent"
        self._trace = directory / "trace"

    def once(self, text: str, *, kill: tuple[str, int] | None = None) -> Ended:
        """Run with a configuration, and die at the N-th call of a name; a child of it dies at its own N-th."""
        self.config.write_text(text)
        return self._run(f"inject={kill[0]}:signal=KILL:when={kill[1]}" if kill else "")

    def calls(self, name: str) -> int:
        """Count how often a whole run with the new configuration makes a call, its children's not counted."""
        self.config.write_text(NEW)
        assert self._run(f"trace={name}").code == 0
        lines = [line.split(maxsplit=1) for line in self._trace.read_text().splitlines()]
        return sum(pid == lines[0][0] and text.startswith(f"{name}(") for pid, text in lines)

    def _run(self, expression: str) -> Ended:
        under = ("strace", "-f", "-qqq", "-o", str(self._trace), "-e", expression) if expression else ()
        words = ("run", "--once", "--config", self.config, "--state-dir", self.state)
        return podgate("masquerade", *words, namespace=self.namespace, under=under)

    def begin(self, text: str | None) -> None:
        """Make the node as an earlier run with this configuration left it; None: as before the first run."""
        self.namespace.run("nft", "flush", "ruleset")
        shutil.rmtree(self.state, ignore_errors=True)
        if text is not None:
            assert self.once(text).code == 0
            assert is_whole(self.namespace, KEEPS[text])

    def kept(self) -> bytes | None:
        path = self.state / KEPT
        return path.read_bytes() if path.exists() else None

    def everything(self) -> tuple[str, dict[str, bytes]]:
        """Give all that a run may change, rules with their handles."""
        files = {path.name: path.read_bytes() for path in self.state.iterdir()} if self.state.exists() else {}
        return self.namespace.run("nft", "-a", "list", "ruleset"), files

    def right_with(self, kept: bytes | None) -> bool:
        """Say whether the new configuration is in force and kept, and nothing lies about."""
        return is_whole(self.namespace, KEEPS[NEW]) and self.everything()[1] == {KEPT: kept}

    def left_whole(self, before: str | None, kept: dict[str | None, bytes | None]) -> bool:
        """Say whether rules and kept file are each the old or the new ones."""
        tables = [KEEPS[NEW]] if before is None else [KEEPS[OLD], KEEPS[NEW]]
        absent = before is None and elements(self.namespace) is None and rules(self.namespace) == []
        whole = absent or any(is_whole(self.namespace, keep) for keep in tables)
        return whole and self.kept() in (kept[before], kept[NEW])


CALLS = [
    *((name, None) for name in ("sendmsg", "execve", "mkdir", "rename")),
    *((name, OLD) for name in ("sendto", "write", "fchmod", "fsync", "rename")),
]
"""Which calls write: nft sends with sendmsg; elements alone go over the agent's own socket, with sendto."""


@pytest.mark.parametrize(("call", "before"), CALLS, ids=lambda value: "change" if value == OLD else value or "first")
def test_whatever_call_it_is_killed_at_nothing_is_left_in_part(
    node: NetNamespace, tmp_path: Path, call: str, before: str | None
) -> None:
    one = Node(node, tmp_path)
    kept: dict[str | None, bytes | None] = {None: None}
    for text in (NEW, OLD):
        one.begin(text)
        kept[text] = one.kept()
    one.begin(before)
    first = max(1, one.calls(call) - LAST)
    one.begin(before)
    start, killed, code = one.everything(), 0, -1
    left: set[frozenset[str] | None] = set()
    for number in range(first, first + MOST):
        code = one.once(NEW, kill=(call, number)).code
        assert one.left_whole(before, kept), f"after {call} {number}"
        if code == 0:
            break
        killed += 1
        left.add(elements(node))
        if one.everything() != start:  # else the next run is the restart
            again = one.once(NEW)
            assert again.code == 0, again.err
            assert one.right_with(kept[NEW]), f"after {call} {number} and a restart"
            one.begin(before)
    assert killed > 0
    if call == "sendto":
        assert left == set(KEEPS.values()), "the transaction itself was not among the calls"
    assert code == 0, f"no run survived {MOST} calls of {call}"
    assert one.right_with(kept[NEW])
    assert podgate("masquerade", "plan", "--config", one.config, namespace=node) == (0, "no difference\n", "")
