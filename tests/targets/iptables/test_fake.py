"""The fake executes transactions as the kernel does, and refuses what the kernel refuses or it does not know."""

import asyncio
from ipaddress import ip_address
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podgate.joints import ApplyError, Drifted
from podgate.model.machine import Family
from podgate.model.packet import Accept, Locality, Masquerade, Packet
from podgate.targets.iptables.fake import FakeIptables
from podgate.targets.iptables.state import State
from tests.support.cases import Case, read_cases
from tests.support.iptables_states import CHAIN, FAMILIES, OWNERS, keeping, states

REFUSED = read_cases(Path(__file__).parent / "cases" / "refused.case")


async def loaded(*wanted: State) -> FakeIptables:
    fake = FakeIptables(wanted[0].family, wanted[0].binary, OWNERS)
    for want in wanted:
        await fake.apply(fake.diff(await fake.read(), want))
    return fake


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=20)
@given(data=st.data())
def test_plans_lead_from_any_state_to_any_other(family: Family, data: st.DataObject) -> None:
    async def walk() -> None:
        fake = FakeIptables(family, "nft", OWNERS)
        for want in data.draw(st.lists(states(family, "nft"), min_size=2, max_size=4)):
            await fake.apply(fake.diff(await fake.read(), want))
            left = fake.diff(await fake.read(), want)
            assert not left, str(left)
            assert not fake.diff(want, want)

    asyncio.run(walk())


def test_the_nth_apply_fails_and_changes_nothing() -> None:
    async def run() -> None:
        fake = await loaded(keeping("10.0.0.0/8"))
        fake.fail_apply(1, "no memory")
        plan = fake.diff(await fake.read(), keeping("172.16.0.0/12"))
        with pytest.raises(ApplyError, match="no memory"):
            await fake.apply(plan)
        assert not fake.diff(await fake.read(), keeping("10.0.0.0/8"))
        await fake.apply(plan)
        assert not fake.diff(await fake.read(), keeping("172.16.0.0/12"))

    asyncio.run(run())


def test_drift_is_told_and_healed_even_by_a_rule_without_a_comment() -> None:
    async def run() -> None:
        want = keeping("10.0.0.0/8")
        fake = await loaded(want)
        fake.drift(f"*nat\n-A {CHAIN} -j ACCEPT\nCOMMIT\n", "a rule was added")
        assert await anext(aiter(fake.signals())) == Drifted("a rule was added")
        plan = fake.diff(await fake.read(), want)
        assert plan
        await fake.apply(plan)
        assert not fake.diff(await fake.read(), want)

    asyncio.run(run())


def test_a_foreign_chain_is_refused_before_anything_is_touched() -> None:
    async def run() -> None:
        fake = FakeIptables("ip", "nft", OWNERS)
        fake.restore(f"*nat\n:{CHAIN} - [0:0]\n-A {CHAIN} -j ACCEPT\nCOMMIT\n")
        before = fake.save()
        with pytest.raises(ApplyError, match=f"chain {CHAIN} holds a rule that is not ours") as refused:
            await fake.apply(fake.diff(await fake.read(), keeping("10.0.0.0/8")))
        assert refused.value.reason == "ForeignChain"
        assert fake.save() == before

    asyncio.run(run())


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_what_the_kernel_refuses(case: Case) -> None:
    text, family, fake_says = case.one("text"), case.one("family"), case.one("fake says")
    assert text is not None
    assert fake_says is not None
    fake = FakeIptables("ip6" if family else "ip", "nft", OWNERS)
    with pytest.raises(ApplyError) as refused:
        fake.restore(text.text)
    assert fake_says.text.strip() in str(refused.value)
    assert fake.restored == []


def test_a_trace_names_the_rule_that_decided() -> None:
    fake = asyncio.run(loaded(keeping("10.0.0.0/8")))
    locality = Locality(local=frozenset([ip_address("192.0.2.1")]))

    def decided(destination: str) -> tuple[object, list[str]]:
        found = fake.trace(Packet(ip_address("10.244.1.2"), ip_address(destination)), locality)
        return found.verdict, [step.rule.comment for step in found.steps if step.rule]

    way = "ours: all traffic that leaves the node"
    assert decided("203.0.113.5") == (Masquerade(fully_random=True), [way, "ours: is masqueraded"])
    assert decided("10.50.0.9") == (Accept(), [way, "ours: stays as it is"])
    assert decided("192.0.2.1") == (Accept(), [])


def test_a_packet_that_meets_what_the_fake_does_not_know_is_an_error() -> None:
    fake = FakeIptables("ip", "nft", OWNERS)
    fake.restore("*nat\n-A POSTROUTING -m mark --mark 0x1 -j ACCEPT\nCOMMIT\n")
    with pytest.raises(ValueError, match="does not know what `-m mark --mark 0x1 -j ACCEPT` does"):
        fake.trace(Packet(ip_address("10.0.0.1"), ip_address("10.0.0.2")), Locality())
