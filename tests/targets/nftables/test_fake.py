"""The fake executes plans as the kernel does, and diff never asks for what the kernel would refuse."""

import asyncio
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podgate.joints import ApplyError, Drifted
from podgate.model.machine import Family
from podgate.model.packet import Locality, Masquerade, Packet, Return
from podgate.model.table import Table
from podgate.targets.nftables.fake import FakeNftables, as_read
from podgate.targets.nftables.state import MEMBER, SRCNAT, Chain, Hook, Rule, Set, State, interval
from tests.support.nftables_states import TABLE, states

FAMILIES: tuple[Family, ...] = ("ip", "ip6")


def keeping(*networks: str, rules: tuple[Rule, ...] = ()) -> State:
    return State(
        "ip",
        TABLE,
        sets=(Set("keep", ("ipv4_addr",), ("interval",)),),
        chains=(
            Chain(
                "postrouting",
                (
                    Rule("fib saddr type local return", "own sockets"),
                    Rule("ip daddr @keep return", "listed"),
                    *rules,
                    Rule("masquerade fully-random", "all others"),
                ),
                Hook("nat", "postrouting", SRCNAT),
            ),
        ),
        elements={"keep": Table.of((interval(ip_network(network)), MEMBER) for network in networks)},
    )


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@given(data=st.data())
def test_plans_lead_from_any_state_to_any_other(family: Family, data: st.DataObject) -> None:
    fake = FakeNftables(family, TABLE)

    async def walk() -> None:
        for want in data.draw(st.lists(states(family), min_size=2, max_size=4)):
            have = await fake.read()
            await fake.apply(fake.diff(have, want))
            assert not fake.diff(await fake.read(), want)
            assert not fake.diff(want, want)

    asyncio.run(walk())


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@given(data=st.data())
def test_a_plan_touches_only_chains_and_sets_that_differ(family: Family, data: st.DataObject) -> None:
    have, want = data.draw(states(family)), data.draw(states(family))
    if not (have.present and want.present):
        return
    plan = FakeNftables(family, TABLE).diff(as_read(have), want)
    equal_sets = {declared.name for declared in have.sets if declared in want.sets}
    assert equal_sets.isdisjoint(declared.name for declared in (*plan.dropped_sets, *plan.new_sets))
    for name, change in plan.elements.items():
        assert not set(change.removed) & set(change.added)
        assert have.elements_of(name) != want.elements_of(name)


def test_the_nth_apply_fails_and_changes_nothing() -> None:
    async def run() -> None:
        fake = FakeNftables("ip", TABLE)
        fake.fail_apply(2, "no memory")
        first, second = keeping("10.0.0.0/8"), keeping("172.16.0.0/12")
        await fake.apply(fake.diff(await fake.read(), first))
        with pytest.raises(ApplyError, match="no memory"):
            await fake.apply(fake.diff(first, second))
        assert not fake.diff(await fake.read(), first)
        await fake.apply(fake.diff(first, second))
        assert not fake.diff(await fake.read(), second)

    asyncio.run(run())


def test_refused_keys_stay_out_and_are_named() -> None:
    async def run() -> None:
        fake = FakeNftables("ip", TABLE)
        key = ("keep", interval(ip_network("10.0.0.0/8")))
        fake.refused[key] = "not this one"
        want = keeping("10.0.0.0/8", "172.16.0.0/12")
        assert await fake.apply(fake.diff(await fake.read(), want)) == {key: "not this one"}
        assert not fake.diff(await fake.read(), keeping("172.16.0.0/12"))

    asyncio.run(run())


def test_drift_changes_the_state_and_is_told() -> None:
    async def run() -> None:
        fake = FakeNftables("ip", TABLE)
        await fake.apply(fake.diff(await fake.read(), keeping("10.0.0.0/8")))
        fake.drift(lambda _: State.absent("ip", TABLE), "the table was deleted")
        assert await anext(aiter(fake.signals())) == Drifted("the table was deleted")
        assert not (await fake.read()).present

    asyncio.run(run())


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("ip daddr @other return", "set other, which the table does not have"),
        ("jump nowhere", "chain nowhere, which the table does not have"),
        ("limit rate 5/second accept", "does not know the word `limit`"),
    ],
)
def test_what_the_kernel_or_the_fake_cannot_take_is_refused(rule: str, message: str) -> None:
    async def run() -> None:
        fake = FakeNftables("ip", TABLE)
        with pytest.raises(ApplyError, match=message):
            await fake.apply(fake.diff(await fake.read(), keeping(rules=(Rule(rule, "x"),))))
        assert not fake.state.present

    asyncio.run(run())


def test_overlapping_intervals_are_refused() -> None:
    async def run() -> None:
        fake = FakeNftables("ip", TABLE)
        with pytest.raises(ApplyError, match=r"conflicting intervals in keep: 10\.0\.0\.0/8 and 10\.1\.0\.0/16"):
            await fake.apply(fake.diff(await fake.read(), keeping("10.0.0.0/8", "10.1.0.0/16")))

    asyncio.run(run())


def test_a_trace_names_the_rule_that_decided() -> None:
    async def run() -> FakeNftables:
        fake = FakeNftables("ip", TABLE)
        await fake.apply(fake.diff(await fake.read(), keeping("10.0.0.0/8")))
        return fake

    fake = asyncio.run(run())
    locality = Locality(local=frozenset([ip_address("192.0.2.1")]))

    def decided(source: str, destination: str) -> tuple[object, str]:
        found = fake.trace(Packet(ip_address(source), ip_address(destination)), locality)
        matched = [step.rule.comment for step in found.steps if step.rule]
        return found.verdict, matched[-1]

    assert decided("10.244.1.2", "203.0.113.5") == (Masquerade(fully_random=True), "all others")
    assert decided("10.244.1.2", "10.50.0.9")[1] == "listed"
    assert decided("192.0.2.1", "203.0.113.5")[1] == "own sockets"
    steps = fake.trace(Packet(ip_address("10.244.1.2"), ip_address("10.50.0.9")), locality).steps
    assert [str(step) for step in steps] == ["postrouting: ip daddr @keep return  # listed", "postrouting: policy"]
    assert steps[0].verdict == Return()
