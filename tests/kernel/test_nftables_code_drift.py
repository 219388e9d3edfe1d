"""What others change in a table whose rules are code is noticed and healed, without nft."""

import asyncio
import json
import re
from contextlib import closing
from functools import partial

import msgspec
import pytest

from podgate.joints import ApplyError, Signal
from podgate.targets.nftables.apply import NftablesTarget
from podgate.targets.nftables.state import Chain, State
from tests.support.netns import NetNamespace
from tests.support.nftables_code import balancing, endpoint, service
from tests.support.nftables_states import TABLE
from tests.support.nftables_target import OpenTarget, load_state, noticed, settled
from tests.support.poll import poll_async

pytestmark = pytest.mark.kernel

NO_NFT = "nft-that-is-missing"
WANT = balancing(
    {
        service("10.96.0.1"): (endpoint("10.0.0.1"), endpoint("10.0.0.2")),
        service("10.96.0.2", 53, "udp"): (endpoint("10.0.0.3"),),
    }
)

FOREIGN = {
    "the table is deleted": "delete table ip pg-test",
    "the ruleset is flushed": "flush ruleset",
    "a map is flushed": "flush map ip pg-test services",
    "an element is deleted": "delete element ip pg-test slots { 10.96.0.1 . tcp . 80 . 0x1 }",
    "an element is added": "add element ip pg-test slots { 10.96.0.1 . tcp . 80 . 0x2 : 10.0.0.9 . 80 }",
    "a verdict is changed": (
        "delete element ip pg-test counts { 0x0 . 0x2 }; add element ip pg-test counts { 0x0 . 0x2 : drop }"
    ),
    "a chain is flushed": "flush chain ip pg-test to-2",
    "a rule is added": "add rule ip pg-test to-2 drop",
    "a rule is put first": "insert rule ip pg-test prerouting accept",
    "a chain is added": "add chain ip pg-test other",
    "a set is added": "add set ip pg-test other { type ipv4_addr; }",
    "the policy is changed": "add chain ip pg-test prerouting { policy drop; }",
    "the table is put to sleep": "add table ip pg-test { flags dormant; }",
    "a counter is added": "add counter ip pg-test hits",
}


def handle_of(namespace: NetNamespace, chain: str) -> tuple[int, str]:
    """Give the handle and the comment of a chain's first rule."""
    listed = json.loads(namespace.run("nft", "-j", "-a", "list", "chain", "ip", TABLE, chain))["nftables"]
    rule = next(item["rule"] for item in listed if "rule" in item)
    return rule["handle"], rule["comment"]


async def healed(namespace: NetNamespace, target: NftablesTarget, command: str, seen: list[Signal]) -> None:
    """Change the table, and heal it when that is told."""
    before = namespace.run("nft", "list", "ruleset")
    namespace.run("nft", "-f", "-", text=f"{command}\n")
    await poll_async(lambda: seen)
    plan = target.diff(await target.read(), WANT)
    assert plan
    await target.apply(plan)
    assert not target.diff(await target.read(), WANT)
    assert sorted(namespace.run("nft", "list", "ruleset").split()) == sorted(before.split())


@pytest.mark.parametrize("command", FOREIGN.values(), ids=FOREIGN)
def test_a_foreign_change_is_noticed_and_healed(command: str, namespace: NetNamespace, open_target: OpenTarget) -> None:
    async def run() -> None:
        async def act(target: NftablesTarget, seen: list[Signal]) -> None:
            await healed(namespace, target, command, seen)
            await settled(namespace, seen, 2)

        seen = await noticed(open_target(namespace, program=NO_NFT), WANT, act)
        assert len(seen) == 2, seen

    asyncio.run(run())


@pytest.mark.parametrize("way", ["deleted", "replaced"])
def test_a_rule_that_others_delete_or_replace_is_healed(
    way: str, namespace: NetNamespace, open_target: OpenTarget
) -> None:
    """Also one that was replaced by another with the same comment."""

    async def run() -> None:
        async def act(target: NftablesTarget, seen: list[Signal]) -> None:
            handle, comment = handle_of(namespace, "prerouting")
            place = f"ip {TABLE} prerouting handle {handle}"
            command = f"delete rule {place}" if way == "deleted" else f'replace rule {place} accept comment "{comment}"'
            await healed(namespace, target, command, seen)

        assert await noticed(open_target(namespace, program=NO_NFT), WANT, act)

    asyncio.run(run())


def test_a_process_without_memory_finds_nothing_to_do(namespace: NetNamespace, open_target: OpenTarget) -> None:
    async def run() -> None:
        await load_state(open_target(namespace, program=NO_NFT), WANT)
        before = namespace.run("nft", "list", "ruleset")
        again = open_target(namespace, program=NO_NFT)
        assert not again.diff(await again.read(), WANT)
        assert namespace.run("nft", "list", "ruleset") == before

    asyncio.run(run())


def large() -> State:
    slots = tuple(endpoint(f"10.1.0.{n}") for n in range(5))
    return balancing({service(f"10.97.{n >> 8}.{n & 255}"): slots for n in range(5000)})


def test_what_others_change_between_our_transactions_is_told_by_a_watch_that_starts_later(
    namespace: NetNamespace, open_target: OpenTarget
) -> None:
    async def run() -> None:
        target = open_target(namespace, program=NO_NFT)
        plan = target.diff(await target.read(), large())
        async with asyncio.TaskGroup() as group:
            load = group.create_task(target.apply(plan))
            while TABLE not in namespace.run("nft", "list", "tables"):
                await asyncio.sleep(0)
            assert not load.done()
            namespace.run("nft", "add", "chain", "ip", TABLE, "other")
        async with asyncio.timeout(60):
            assert "before it was watched" in str(await anext(aiter(target.signals())))

    asyncio.run(run())


def test_a_load_that_was_cut_off_is_finished(namespace: NetNamespace, open_target: OpenTarget) -> None:
    """By the same process or another: what is there by then is ours."""

    async def run() -> None:
        target = open_target(namespace, program=NO_NFT)
        await load_state(target, WANT)
        both = msgspec.structs.replace(large(), chains=(*large().chains, Chain("more", WANT.chains[0].rules)))
        async with asyncio.TaskGroup() as group:
            load = group.create_task(target.apply(target.diff(WANT, both)))
            while "chain more" not in namespace.run("nft", "list", "chains"):
                await asyncio.sleep(0)
            assert not load.done()
            load.cancel()
        for each in (target, open_target(namespace, program=NO_NFT)):
            plan = each.diff(await each.read(), both)
            assert plan
            assert "put there by somebody else" not in str(plan)
        await load_state(target, both)
        assert not target.diff(await target.read(), both)

    asyncio.run(run())


HOLD = "add chain ip pg-test other; add rule ip pg-test other jump to-2"
LET_GO = "delete chain ip pg-test other"


@pytest.mark.parametrize("lets_go", [True, False])
def test_what_goes_is_tried_again_while_something_refers_to_it(lets_go: bool, namespace: NetNamespace) -> None:
    """As Linux before 6.2 does for a moment; here others refer to a chain between our two transactions."""
    smaller = balancing({service("10.96.0.1"): (endpoint("10.0.0.1"),)})
    told: list[str] = []

    async def run(target: NftablesTarget) -> None:
        await load_state(target, WANT)

        async def others() -> None:
            namespace.run("nft", "-f", "-", text=f"{HOLD}\n")  # the first transaction is made
            await asyncio.sleep(0)
            if lets_go:
                namespace.run("nft", "-f", "-", text=f"{LET_GO}\n")  # the second one was refused

        done, _ = await asyncio.gather(target.apply(target.diff(WANT, smaller)), others(), return_exceptions=True)
        assert (done == {}) == lets_go
        if not lets_go:
            assert isinstance(done, ApplyError)
            assert re.search("EBUSY.*refused chain to-2", str(done))
            await load_state(target, smaller)
        assert not target.diff(await target.read(), smaller)
        assert told == ([] if lets_go else ["uncleaned"])

    noted = partial(told.append, "uncleaned")
    with closing(
        NftablesTarget("ip", TABLE, program=NO_NFT, namespace=namespace.descriptor, uncleaned=noted)
    ) as target:
        asyncio.run(run(target))


def test_a_large_load_of_ours_fills_no_buffer(namespace: NetNamespace, open_target: OpenTarget) -> None:
    """The kernel tells each element; what we did ourselves it does not tell us, so nothing that matters is lost."""

    async def run() -> None:
        async def act(target: NftablesTarget, seen: list[Signal]) -> None:
            await load_state(target, large())
            await settled(namespace, seen, 1)

        seen = await noticed(open_target(namespace, program=NO_NFT, buffer_bytes=4096), WANT, act)
        assert len(seen) == 1, seen

    asyncio.run(run())
