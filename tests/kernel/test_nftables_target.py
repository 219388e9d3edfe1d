"""The nftables target against the real kernel, in a network namespace of its own."""

import asyncio
import os
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from ipaddress import ip_network
from pathlib import Path
from typing import Protocol

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from podgate.joints import ApplyError, Drifted, Signal
from podgate.linux.namespaces import inside_network
from podgate.model.machine import Family
from podgate.model.table import Table
from podgate.targets.nftables.apply import NftablesTarget
from podgate.targets.nftables.fake import as_read
from podgate.targets.nftables.render import render
from podgate.targets.nftables.state import MEMBER, SRCNAT, Chain, Hook, Rule, Set, State, address_interval, interval
from tests.support.netns import NetNamespace, netns
from tests.support.nftables_states import TABLE, intervals, plain, services, states, verdicts, with_every_set
from tests.support.poll import poll_async

pytestmark = pytest.mark.kernel

FAMILIES: tuple[Family, ...] = ("ip", "ip6")


@pytest.fixture(scope="module")
def shared() -> Iterator[NetNamespace]:
    with netns() as namespace:
        yield namespace


class OpenTarget(Protocol):
    def __call__(
        self, namespace: NetNamespace, family: Family = "ip", program: str = "nft", buffer_bytes: int = 1 << 20
    ) -> NftablesTarget: ...


@pytest.fixture
def open_target() -> Iterator[OpenTarget]:
    with ExitStack() as stack:

        def opened(
            namespace: NetNamespace, family: Family = "ip", program: str = "nft", buffer_bytes: int = 1 << 20
        ) -> NftablesTarget:
            target = NftablesTarget(
                family, TABLE, program=program, namespace=namespace.descriptor, buffer_bytes=buffer_bytes
            )
            stack.callback(target.close)
            return target

        yield opened


@pytest.fixture
def namespace() -> Iterator[NetNamespace]:
    with netns() as fresh:
        yield fresh


def keeping(*networks: str, rules: tuple[Rule, ...] = ()) -> State:
    return State(
        "ip",
        TABLE,
        comment="a legend",
        sets=(Set("keep", ("ipv4_addr",), ("interval",), comment="ranges that see the Pod's address"),),
        chains=(
            Chain(
                "postrouting",
                (
                    Rule("counter fib saddr type local return", "own sockets"),
                    Rule("ip daddr @keep return", "listed"),
                    *rules,
                    Rule("masquerade fully-random", "all others"),
                ),
                Hook("nat", "postrouting", SRCNAT),
            ),
        ),
        elements={"keep": Table.of((interval(ip_network(network)), MEMBER) for network in networks)},
    )


async def load_state(target: NftablesTarget, want: State) -> None:
    await target.apply(target.diff(await target.read(), want))


def many(count: int, start: int = 1 << 24) -> State:
    state = keeping()
    keys = (address_interval("ip", start + 8 * n, start + 8 * n + 3) for n in range(count))
    return State(
        "ip", TABLE, chains=state.chains, sets=state.sets, elements={"keep": Table.of((key, MEMBER) for key in keys)}
    )


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_plans_lead_from_any_state_to_any_other(
    family: Family, data: st.DataObject, shared: NetNamespace, open_target: OpenTarget
) -> None:
    async def walk() -> None:
        target = open_target(shared, family)
        for want in data.draw(st.lists(states(family), min_size=2, max_size=4)):
            have = await target.read()
            await target.apply(target.diff(have, want))
            found = await target.read()
            assert not target.diff(found, want), str(target.diff(found, want))
            assert (found.elements, found.sets and set(found.sets)) == (
                as_read(want).elements,
                want.sets and set(want.sets),
            )

    asyncio.run(walk())


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_elements_alone_need_no_nft(
    family: Family, data: st.DataObject, shared: NetNamespace, open_target: OpenTarget
) -> None:
    """With nft missing there is nothing to fall back to, so the kernel took the batch as it was."""
    kinds = {
        "keep": intervals(family),
        "services": services(family),
        "verdicts": verdicts(family),
        "plain": plain(family),
    }

    async def walk() -> None:
        whole = with_every_set(family)
        await load_state(open_target(shared, family), whole)
        target = open_target(shared, family, program="nft-that-is-missing")
        have = whole
        for _ in range(3):
            want = msgspec.structs.replace(whole, elements={name: data.draw(kind) for name, kind in kinds.items()})
            await target.apply(target.diff(have, want))
            plan = target.diff(await target.read(), want)
            assert not plan, str(plan)
            have = want

    asyncio.run(walk())


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_rendered_state_loads_by_hand(
    family: Family, data: st.DataObject, shared: NetNamespace, open_target: OpenTarget
) -> None:
    want = data.draw(states(family))
    shared.run("nft", "-f", "-", text=render(want))

    async def compare() -> None:
        target = open_target(shared, family)
        plan = target.diff(await target.read(), want)
        assert not plan, str(plan)

    asyncio.run(compare())


def test_counters_are_kept_when_only_elements_change(namespace: NetNamespace, open_target: OpenTarget) -> None:
    async def run() -> None:
        target = open_target(namespace)
        first, second = keeping("10.0.0.0/8"), keeping("172.16.0.0/12")
        await load_state(target, first)
        namespace.run("ip", "addr", "add", "192.0.2.1/24", "dev", "lo")
        with inside_network(namespace.descriptor), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"counted", ("192.0.2.1", 9))
        counted = namespace.run("nft", "list", "chain", "ip", TABLE, "postrouting")
        assert "packets 0" not in counted
        await target.apply(target.diff(first, second))
        assert namespace.run("nft", "list", "chain", "ip", TABLE, "postrouting") == counted

    asyncio.run(run())


def test_counters_of_other_chains_are_kept_when_one_chain_changes(
    namespace: NetNamespace, open_target: OpenTarget
) -> None:
    async def run() -> None:
        target = open_target(namespace)
        extra = Chain("extra", (Rule("counter", "counts"),), Hook("filter", "output", 0))
        first = keeping("10.0.0.0/8")
        first = msgspec.structs.replace(first, chains=(*first.chains, extra))
        await load_state(target, first)
        with inside_network(namespace.descriptor), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"counted", ("127.0.0.1", 9))
        counted = namespace.run("nft", "list", "chain", "ip", TABLE, "extra")
        assert "packets 0" not in counted
        second = keeping("10.0.0.0/8", rules=(Rule("accept", "new"),))
        await target.apply(target.diff(first, msgspec.structs.replace(second, chains=(*second.chains, extra))))
        assert namespace.run("nft", "list", "chain", "ip", TABLE, "extra") == counted

    asyncio.run(run())


async def _noticed(
    target: NftablesTarget, start: State, act: Callable[[NftablesTarget, list[Signal]], Awaitable[object]]
) -> list[Signal]:
    """Watch while something happens; gives the signals, which ``act`` sees as they come."""
    await target.apply(target.diff(await target.read(), start))
    seen: list[Signal] = []

    async def watch() -> None:
        async for signal in target.signals():
            seen.append(signal)  # noqa: PERF401 - act looks at the list while it grows

    async with asyncio.TaskGroup() as group:
        task = group.create_task(watch())
        await asyncio.sleep(0)
        await act(target, seen)
        task.cancel()
    return seen


async def _settled(namespace: NetNamespace, seen: list[Signal], count: int) -> None:
    """Add a chain by hand and wait for that to be signal number ``count``: all that came before has been looked at."""
    namespace.run("nft", "add", "chain", "ip", TABLE, "the-end")
    await poll_async(lambda: len(seen) >= count)
    assert seen[-1] == Drifted("chain the-end added or changed")


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
            await poll_async(lambda: seen, timeout=0.2)
            plan = target.diff(await target.read(), want)
            assert plan
            await target.apply(plan)
            assert not target.diff(await target.read(), want)
            await _settled(namespace, seen, 2)

        seen = await _noticed(open_target(namespace), want, act)
        assert len(seen) == 2, seen

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
            await _settled(namespace, seen, 1)

        seen = await _noticed(open_target(namespace), keeping("10.0.0.0/8"), act)
        assert len(seen) == 1, seen

    asyncio.run(run())


def test_lost_notifications_count_as_drift(namespace: NetNamespace, open_target: OpenTarget) -> None:
    async def run() -> None:
        async def act(target: NftablesTarget, seen: list[Signal]) -> None:
            # Nobody reads meanwhile: the loop is held up while more arrives than the buffer takes.
            other = render(many(2000)).replace(f"table ip {TABLE}", "table ip other")
            namespace.run("nft", "-f", "-", text=other)
            await poll_async(lambda: seen)

        seen = await _noticed(open_target(namespace, buffer_bytes=4096), keeping("10.0.0.0/8"), act)
        assert seen == [Drifted("notifications were lost")]

    asyncio.run(run())


def test_a_change_before_the_watch_is_told(namespace: NetNamespace, open_target: OpenTarget) -> None:
    async def run() -> None:
        target = open_target(namespace)
        await target.read()
        namespace.run("nft", "add", "table", "ip", TABLE)
        async with asyncio.timeout(1):
            assert "before it was watched" in str(await anext(aiter(target.signals())))

    asyncio.run(run())


def test_an_observer_never_sees_a_part_of_a_change(namespace: NetNamespace, open_target: OpenTarget) -> None:
    """While 1,000 elements change to 1,000 others again and again, every reading holds one of the two sets, whole."""
    first, second = many(1000), many(1000, start=1 << 28)
    writer, observer = open_target(namespace), open_target(namespace)
    stop = threading.Event()
    seen = {"first": 0, "second": 0, "mixed": 0}

    async def observe() -> None:
        while not stop.is_set():
            try:
                elements = (await observer.read()).elements
            except ApplyError:
                continue  # the writer was faster ten times; counted out below
            known = {"first": first, "second": second}
            seen[next((name for name, state in known.items() if elements == state.elements), "mixed")] += 1

    async def write() -> None:
        have, want = first, second
        while min(seen["first"], seen["second"]) < 10 and not seen["mixed"]:
            await writer.apply(writer.diff(have, want))
            have, want = want, have
            await asyncio.sleep(0.005)

    async def load() -> None:
        await load_state(writer, first)

    asyncio.run(load())
    thread = threading.Thread(target=lambda: asyncio.run(observe()))
    thread.start()
    try:
        asyncio.run(asyncio.wait_for(write(), 20))
    finally:
        stop.set()
        thread.join()
    assert seen["mixed"] == 0
    assert min(seen["first"], seen["second"]) >= 10


def test_sixty_thousand_elements_are_one_transaction(namespace: NetNamespace, open_target: OpenTarget) -> None:
    async def run() -> None:
        target = open_target(namespace)
        empty, full = keeping(), many(60_000)
        await target.apply(target.diff(await target.read(), empty))
        for have, want in ((empty, full), (full, empty)):
            before = await target.read()
            assert not target.diff(before, have)
            await target.apply(target.diff(have, want))
            assert not target.diff(await target.read(), want)

    asyncio.run(run())


def test_a_stale_plan_still_leads_to_what_is_wanted(namespace: NetNamespace, open_target: OpenTarget) -> None:
    async def run() -> None:
        target = open_target(namespace)
        first, second = keeping("10.0.0.0/8", "172.16.0.0/12"), keeping("192.168.0.0/16")
        await load_state(target, first)
        plan = target.diff(first, second)
        namespace.run("nft", "flush", "set", "ip", TABLE, "keep")
        await target.apply(plan)
        assert not target.diff(await target.read(), second)

    asyncio.run(run())


def test_what_nft_refuses_changes_nothing(namespace: NetNamespace, open_target: OpenTarget) -> None:
    async def run() -> None:
        target = open_target(namespace)
        first = keeping("10.0.0.0/8")
        await load_state(target, first)
        with pytest.raises(ApplyError) as failed:
            await target.apply(target.diff(first, keeping(rules=(Rule("ip daddr @nowhere return", "wrong"),))))
        assert "refused line 18: " in str(failed.value)
        assert ">   18          ip daddr @nowhere return" in str(failed.value)
        assert failed.value.reason == "NftRejected"
        assert not target.diff(await target.read(), first)

    asyncio.run(run())


def test_a_missing_nft_says_what_to_install(namespace: NetNamespace, open_target: OpenTarget) -> None:
    async def run() -> None:
        target = open_target(namespace, program="nft-that-is-missing")
        with pytest.raises(ApplyError, match="install the package nftables") as failed:
            await target.apply(target.diff(await target.read(), keeping()))
        assert failed.value.reason == "NftMissing"

    asyncio.run(run())


def test_a_cancelled_apply_leaves_no_process(namespace: NetNamespace, tmp_path: Path, open_target: OpenTarget) -> None:
    slow = tmp_path / "nft"
    slow.write_text("#!/bin/sh\nexec sleep 100\n")
    slow.chmod(0o755)

    async def run() -> None:
        target = open_target(namespace, program=str(slow))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await target.apply(target.diff(await target.read(), keeping()))

    asyncio.run(run())
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_without_privileges_it_says_which_one_is_missing(namespace: NetNamespace) -> None:
    code = (
        "from podgate.targets.nftables.apply import NftablesTarget\n"
        "from podgate.joints import ApplyError\n"
        "import asyncio, os; os.setgid(65534); os.setuid(65534)\n"
        "try: asyncio.run(NftablesTarget('ip', 'pg-test').read())\n"
        "except ApplyError as problem: print(problem.reason, problem)\n"
    )
    said = namespace.run(sys.executable, "-c", code)
    assert said.startswith("NotPermitted")
    assert "CAP_NET_ADMIN" in said
