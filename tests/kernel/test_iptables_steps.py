"""Steps of the iptables target under the engine's loop: order between back ends, healing, and independence."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from podgate.engine.reconcile import Applied, Board, StepTask
from podgate.joints import ApplyError, Compiled, Step
from podgate.model.frozen import Frozen
from podgate.model.machine import Family
from podgate.targets.iptables.apply import IptablesTarget
from podgate.targets.iptables.diff import Plan
from podgate.targets.iptables.state import Binary, State, program
from tests.support.iptables_states import BINARIES, CHAIN, OWNERS, keeping, nothing
from tests.support.netns import NetNamespace
from tests.support.poll import poll_async

pytestmark = [pytest.mark.kernel, pytest.mark.slow]


class States(Frozen, frozen=True):
    """What each step wants, by its name."""

    wanted: Mapping[str, State]


class Told:
    """Keeps what the loop reports."""

    def __init__(self) -> None:
        self.applied_steps: list[Applied] = []
        self.failures: list[tuple[str, str]] = []
        self.drifts: list[str] = []

    def applied(self, applied: Applied) -> None:
        self.applied_steps.append(applied)

    def failed(self, step: str, error: ApplyError, failures: int) -> None:
        self.failures.append((step, error.reason))

    def recovered(self, step: str) -> None: ...

    def followed(self, step: str, what: str) -> None: ...

    def drifted(self, step: str, what: str) -> None:
        self.drifts.append(step)

    def turned(self, step: str, what: str, *, fault: bool) -> None: ...

    def refused(self, step: str, refused: Mapping[Any, str]) -> None: ...

    @property
    def order(self) -> list[str]:
        """The steps that wrote something, in order."""
        return [each.step for each in self.applied_steps if each.plan]


def played(
    namespace: NetNamespace,
    wanted: Mapping[tuple[Family, Binary], State],
    story: Callable[[Board[States], Told], Awaitable[object]],
    after: Mapping[str, tuple[str, ...]] | None = None,
    resync: float | None = None,
) -> Told:
    """Run one step for each wanted state while a story goes on."""
    told = Told()

    def step(stack: ExitStack, family: Family, binary: Binary) -> Step[States, State, Plan]:
        name = program(family, binary)
        target = IptablesTarget(family, binary, OWNERS, namespace=namespace.descriptor, lock_seconds=1)
        stack.callback(target.close)
        return Step(
            name,
            target,
            lambda states: states.wanted[name],
            State(family, binary),
            after=(after or {}).get(name, ()),
            resync=lambda _: resync,
        )

    async def run() -> None:
        with ExitStack() as stack:
            board: Board[States] = Board([step(stack, *key) for key in wanted])
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(StepTask(each, board, told, lambda: 0.0).run()) for each in board.steps]
                board.publish(Compiled(States({program(*key): state for key, state in wanted.items()})))
                await story(board, told)
                for task in tasks:
                    task.cancel()

    asyncio.run(run())
    return told


def restore(namespace: NetNamespace, text: str, family: Family = "ip", binary: Binary = "nft") -> None:
    namespace.run(f"{program(family, binary)}-restore", "--noflush", text=f"*nat\n{text}\nCOMMIT\n")


def rules(namespace: NetNamespace, binary: Binary, family: Family = "ip") -> list[str]:
    lines = namespace.run(f"{program(family, binary)}-save", "-t", "nat").splitlines()
    return [line for line in lines if line.startswith("-A")]


OLD = f"""\
:{CHAIN} - [0:0]
-A {CHAIN} -m comment --comment "old: last" -j MASQUERADE
-A POSTROUTING -m comment --comment "old: all" -j {CHAIN}"""


@pytest.mark.parametrize(("chosen", "other"), [("nft", "legacy"), ("legacy", "nft")])
def test_the_other_programs_rules_go_once_ours_are_in(chosen: Binary, other: Binary, namespace: NetNamespace) -> None:
    restore(namespace, OLD, "ip", other)
    wanted = {("ip", chosen): keeping("10.0.0.0/8", binary=chosen), ("ip", other): nothing(binary=other)}
    after = {program("ip", other): (program("ip", chosen),)}

    async def story(board: Board[States], _: Told) -> None:
        await poll_async(board.settled)

    told = played(namespace, wanted, story, after)  # type: ignore[arg-type]
    assert told.order == [program("ip", chosen), program("ip", other)]
    assert rules(namespace, other) == []
    assert len(rules(namespace, chosen)) == 3


@pytest.mark.parametrize("binary", BINARIES)
def test_what_others_change_is_healed(binary: Binary, namespace: NetNamespace) -> None:
    """iptables-nft is heard of by notifications, iptables-legacy by reading again."""
    wanted = {("ip", binary): keeping("10.0.0.0/8", binary=binary)}

    async def story(board: Board[States], told: Told) -> None:
        await poll_async(board.settled)
        whole = rules(namespace, binary)
        restore(namespace, "-F\n-X", "ip", binary)
        await poll_async(lambda: len(told.order) == 2)
        assert rules(namespace, binary) == whole

    told = played(namespace, wanted, story, resync=0.1 if binary == "legacy" else None)  # type: ignore[arg-type]
    assert told.applied_steps[-1].healed
    assert told.drifts == ([program("ip", "nft")] if binary == "nft" else [])


def test_one_family_that_fails_does_not_hold_up_the_other(namespace: NetNamespace) -> None:
    restore(namespace, f":{CHAIN} - [0:0]\n-A {CHAIN} -j ACCEPT", "ip6")
    wanted = {("ip6", "nft"): keeping("fd00::/8", family="ip6"), ("ip", "nft"): keeping("10.0.0.0/8")}

    async def story(board: Board[States], told: Told) -> None:
        await poll_async(lambda: board.committed[program("ip", "nft")] and told.failures)
        assert not board.settled()

    told = played(namespace, wanted, story)  # type: ignore[arg-type]
    assert set(told.failures) == {("ip6tables-nft", "ForeignChain")}
    assert len(rules(namespace, "nft")) == 3
    assert rules(namespace, "nft", "ip6") == [f"-A {CHAIN} -j ACCEPT"]


def test_a_lock_that_is_held_too_long_is_tried_again_soon(
    namespace: NetNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T34: the lock is held for longer than iptables waits; soon after it is free the rules are in."""
    import fcntl

    lock = tmp_path / "xtables.lock"
    monkeypatch.setenv("XTABLES_LOCKFILE", str(lock))
    wanted = {("ip", "legacy"): keeping("10.0.0.0/8", binary="legacy"), ("ip", "nft"): keeping("10.0.0.0/8")}
    holder = lock.open("w")
    fcntl.flock(holder, fcntl.LOCK_EX)

    async def story(board: Board[States], told: Told) -> None:
        await poll_async(lambda: told.failures and board.committed[program("ip", "nft")])
        holder.close()
        await poll_async(board.settled)

    told = played(namespace, wanted, story)  # type: ignore[arg-type]
    assert set(told.failures) == {("iptables-legacy", "LockHeld")}
    assert len(rules(namespace, "legacy")) == 3
