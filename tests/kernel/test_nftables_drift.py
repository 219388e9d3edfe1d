"""What others change in the kernel is noticed and healed, and what podgate changes is not mistaken for it."""

import asyncio
import json
import os
from contextlib import suppress
from pathlib import Path

import pytest

from podgate.joints import ApplyError, Drifted, Signal
from podgate.targets.nftables.apply import NftablesTarget
from podgate.targets.nftables.render import render
from podgate.targets.nftables.state import Rule, State
from tests.support.netns import NetNamespace
from tests.support.nftables_states import TABLE
from tests.support.nftables_target import OpenTarget, keeping, load_state, many, noticed, settled
from tests.support.poll import poll_async
from tests.support.signals import signals_of

pytestmark = pytest.mark.kernel


FOREIGN = {
    "an element is deleted": "delete element ip pg-test keep { 10.0.0.0/8 }",
    "an element is added": "add element ip pg-test keep { 100.64.0.0/10 }",
    "a set is flushed": "flush set ip pg-test keep",
    "a set is added": "add set ip pg-test other { type ipv4_addr; }",
    "a rule is added": "add rule ip pg-test postrouting accept",
    "a rule is put first": "insert rule ip pg-test postrouting accept",
    "a chain is flushed": "flush chain ip pg-test postrouting",
    "a chain is added": "add chain ip pg-test other",
    "the policy is changed": "add chain ip pg-test postrouting { policy drop; }",
    "the table is put to sleep": "add table ip pg-test { flags dormant; }",
    "a counter is added": "add counter ip pg-test hits",
    "the table is deleted": "delete table ip pg-test",
    "the ruleset is flushed": "flush ruleset",
}


@pytest.mark.parametrize("command", FOREIGN.values(), ids=FOREIGN)
def test_a_foreign_change_is_noticed_and_healed(command: str, namespace: NetNamespace, open_target: OpenTarget) -> None:
    want = keeping("10.0.0.0/8", "172.16.0.0/12")

    async def run() -> None:
        async def act(target: NftablesTarget, seen: list[Signal]) -> None:
            namespace.run("nft", "-f", "-", text=command + "\n")
            await poll_async(lambda: seen)
            plan = target.diff(await target.read(), want)
            assert plan
            await target.apply(plan)
            assert not target.diff(await target.read(), want)
            await settled(namespace, seen, 2)

        seen = await noticed(open_target(namespace), want, act)
        assert len(seen) == 2, seen

    asyncio.run(run())


def _sockets() -> set[int]:
    found = set()
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the descriptor that lists them
            if each.readlink().name.startswith("socket:"):
                found.add(int(each.name))
    return found


def test_a_watch_that_breaks_is_an_error_that_is_retried(namespace: NetNamespace, open_target: OpenTarget) -> None:
    """Here its socket is taken away: no plain OSError may end the agent for what happens to a descriptor."""

    async def run() -> None:
        target = open_target(namespace)
        await load_state(target, keeping())
        namespace.run("nft", "add", "chain", "ip", TABLE, "other")
        before, signals = _sockets(), aiter(target.signals())
        assert isinstance(await anext(signals), Drifted)
        (listener,) = _sockets() - before
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, listener)
        os.close(nothing)
        with pytest.raises(ApplyError, match="watching table ip pg-test"):
            await anext(signals)

    asyncio.run(run())


def _replace(namespace: NetNamespace, place: int, text: str) -> None:
    """Put a rule in the place of one of ours, under the same comment."""
    listed = json.loads(namespace.run("nft", "-j", "-a", "list", "chain", "ip", TABLE, "postrouting"))["nftables"]
    rule = [item["rule"] for item in listed if "rule" in item][place]
    command = f'replace rule ip {TABLE} postrouting handle {rule["handle"]} {text} comment "{rule["comment"]}"'
    namespace.run("nft", "-f", "-", text=command + "\n")


@pytest.mark.parametrize("memory", ["written", "read"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_rule_that_was_replaced_is_healed(
    place: int, memory: str, namespace: NetNamespace, open_target: OpenTarget
) -> None:
    """Its comment says that it is ours; but whoever wrote the table, or found it, knows that it is another rule."""
    want = keeping("10.0.0.0/8")

    async def run() -> None:
        async def act(target: NftablesTarget, seen: list[Signal]) -> None:
            text = namespace.run("nft", "list", "table", "ip", TABLE)
            _replace(namespace, place, "accept")
            await poll_async(lambda: seen)
            plan = target.diff(await target.read(), want)
            assert "put there by somebody else" in str(plan)
            await target.apply(plan)
            assert namespace.run("nft", "list", "table", "ip", TABLE) == text
            assert not target.diff(await target.read(), want)
            await settled(namespace, seen, 2)

        if memory == "read":
            writer = open_target(namespace)
            await writer.apply(writer.diff(await writer.read(), want))
        seen = await noticed(open_target(namespace), want, act)
        assert len(seen) == 2, seen

    asyncio.run(run())


def test_a_rule_that_was_replaced_before_the_watch_is_told(namespace: NetNamespace, open_target: OpenTarget) -> None:
    want = keeping("10.0.0.0/8")

    async def run() -> None:
        target = open_target(namespace)
        await load_state(target, want)
        _replace(namespace, 1, "accept")
        async with asyncio.timeout(60):
            assert "before it was watched" in str(await anext(aiter(target.signals())))
        assert target.diff(await target.read(), want)

    asyncio.run(run())


def test_a_table_that_others_loaded_again_is_not_ours(namespace: NetNamespace, open_target: OpenTarget) -> None:
    """The kernel numbers the rules of a new table from the start: the same numbers are other rules."""
    want = keeping("10.0.0.0/8")

    async def run() -> None:
        target = open_target(namespace)
        await load_state(target, want)
        other = render(want).replace("ip daddr @keep return comment", "ip daddr @keep accept comment")
        namespace.run("nft", "-f", "-", text=other)
        plan = target.diff(await target.read(), want)
        assert plan
        await target.apply(plan)
        assert "@keep return" in namespace.run("nft", "list", "table", "ip", TABLE)

    asyncio.run(run())


def test_own_changes_and_other_tables_are_not_drift(namespace: NetNamespace, open_target: OpenTarget) -> None:
    async def run() -> None:
        async def act(target: NftablesTarget, seen: list[Signal]) -> None:
            have = await target.read()
            for want in (
                keeping("192.168.0.0/16"),
                keeping("10.0.0.0/8", rules=(Rule("accept", "extra"),)),
                many(2000),
                State.absent("ip", TABLE),
                keeping("10.0.0.0/8"),
            ):
                await target.apply(target.diff(have, want))
                have = want
            namespace.run("nft", "add", "table", "ip", "another")
            namespace.run("nft", "add", "table", "ip6", TABLE)
            await settled(namespace, seen, 1)

        seen = await noticed(open_target(namespace), keeping("10.0.0.0/8"), act)
        assert len(seen) == 1, seen

    asyncio.run(run())


def test_lost_notifications_count_as_drift(namespace: NetNamespace, open_target: OpenTarget) -> None:
    async def run() -> None:
        async def act(target: NftablesTarget, seen: list[Signal]) -> None:
            # Nobody reads meanwhile: the loop is held up while more arrives than the buffer takes.
            other = render(many(2000)).replace(f"table ip {TABLE}", "table ip other")
            namespace.run("nft", "-f", "-", text=other)
            await poll_async(lambda: seen)

        seen = await noticed(open_target(namespace, buffer_bytes=4096), keeping("10.0.0.0/8"), act)
        assert seen == [Drifted("notifications were lost")]

    asyncio.run(run())


def test_a_change_before_the_watch_is_told(namespace: NetNamespace, open_target: OpenTarget) -> None:
    async def run() -> None:
        target = open_target(namespace)
        await target.read()
        namespace.run("nft", "add", "table", "ip", TABLE)
        async with asyncio.timeout(60):
            assert "before it was watched" in str(await anext(aiter(target.signals())))

    asyncio.run(run())


def test_another_table_that_changes_before_the_watch_is_not_ours(
    namespace: NetNamespace, open_target: OpenTarget
) -> None:
    """A feature has a table per family, in one process: writing one must not send the other back to reading."""

    async def run() -> None:
        target = open_target(namespace)
        await load_state(target, keeping("10.0.0.0/8"))
        namespace.run("nft", "add", "table", "ip6", TABLE)
        async with signals_of(target) as seen:
            await settled(namespace, seen, 1)
        assert seen == [Drifted("chain the-end added or changed")]

    asyncio.run(run())
