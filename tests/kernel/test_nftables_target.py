"""The nftables target against the real kernel, in a network namespace of its own."""

import asyncio
import socket
import sys
import threading
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from podgate.joints import ApplyError
from podgate.linux.namespaces import inside_network
from podgate.model.machine import Family
from podgate.targets.nftables.fake import as_read
from podgate.targets.nftables.render import render, transaction
from podgate.targets.nftables.state import Chain, Hook, Rule, Set, State
from tests.support.netns import NetNamespace
from tests.support.nftables_states import TABLE, intervals, plain, services, states, verdicts, with_every_set
from tests.support.nftables_target import OpenTarget, keeping, load_state, many

pytestmark = pytest.mark.kernel

FAMILIES: tuple[Family, ...] = ("ip", "ip6")


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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
        asyncio.run(asyncio.wait_for(write(), 120))
    finally:
        stop.set()
        thread.join()
    assert seen["mixed"] == 0
    assert min(seen["first"], seen["second"]) >= 10


@pytest.mark.slow
def test_sixty_thousand_elements_are_one_transaction(namespace: NetNamespace, open_target: OpenTarget) -> None:
    async def run() -> None:
        target = open_target(namespace)
        empty, full = keeping(), many(60_000)
        await load_state(target, empty)
        for have, want in ((empty, full), (full, empty)):
            before = await target.read()
            assert not target.diff(before, have)
            await target.apply(target.diff(have, want))
            assert not target.diff(await target.read(), want)

    asyncio.run(run())


@pytest.mark.slow
def test_rules_and_many_elements_change_in_one_transaction(namespace: NetNamespace, open_target: OpenTarget) -> None:
    """nft reads the deletion of thousands of intervals slowly, so such a set is filled anew: the state is the same."""
    have, want = (
        many(2_000),
        msgspec.structs.replace(
            many(1_500, 2 << 24), chains=(Chain("postrouting", (), Hook("nat", "postrouting", 100)),)
        ),
    )

    async def run() -> None:
        target = open_target(namespace)
        await load_state(target, have)
        plan = target.diff(have, want)
        assert plan.is_structural
        text = transaction(plan)
        assert "delete element" not in text
        assert text.count("flush set") == 1
        await target.apply(plan)
        assert not target.diff(await target.read(), want)

    asyncio.run(run())


ADD_TEN = "add element ip pg-test keep { 10.0.0.0/8 }"
DISGUISED = {
    "an element of ours with a comment": ("", 'add element ip pg-test keep { 10.0.0.0/8 comment "mine" }', True),
    "the same set with auto-merge": (
        "flags interval; auto-merge;",
        "add element ip pg-test keep { 10.0.0.0/8 }",
        False,
    ),
    "the same set with timeouts": ("flags interval, timeout;", ADD_TEN, False),
}


@pytest.mark.parametrize(("flags", "command", "equal"), DISGUISED.values(), ids=DISGUISED)
def test_elements_are_compared_by_value_and_sets_by_declaration(
    flags: str, command: str, equal: bool, namespace: NetNamespace, open_target: OpenTarget
) -> None:
    want = keeping("10.0.0.0/8")

    async def run() -> None:
        target = open_target(namespace)
        await load_state(target, want)
        namespace.run("nft", "delete", "element", "ip", TABLE, "keep", "{ 10.0.0.0/8 }")
        if flags:
            text = render(keeping()).replace("flags interval", flags)
            namespace.run("nft", "-f", "-", text=text)
        namespace.run("nft", "-f", "-", text=command + "\n")
        plan = target.diff(await target.read(), want)
        assert bool(plan) is not equal, str(plan)
        await target.apply(plan)
        assert not target.diff(await target.read(), want)

    asyncio.run(run())


def test_what_packets_write_into_a_dynamic_set_is_left_alone(namespace: NetNamespace, open_target: OpenTarget) -> None:
    seen = Set("seen", ("ipv4_addr",), ("dynamic",), timeout=60, comment="who was here")
    rule = Rule("update @seen { ip daddr }", "remembers")
    chain = Chain("output", (rule,), Hook("filter", "output", 0))
    want = State("ip", TABLE, chains=(chain,), sets=(seen,))

    async def run() -> None:
        target = open_target(namespace)
        await load_state(target, want)
        with inside_network(namespace.descriptor), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"seen", ("127.0.0.1", 9))
        assert "127.0.0.1" in namespace.run("nft", "list", "set", "ip", TABLE, "seen")
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
            await load_state(target, keeping())
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
                await load_state(target, keeping())

    before = children()
    asyncio.run(run())
    assert children() <= before


def children() -> set[str]:
    """Give the processes that this one has started and not seen end; a session's control plane may be among them."""
    return {child for task in Path("/proc/self/task").iterdir() for child in (task / "children").read_text().split()}


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
