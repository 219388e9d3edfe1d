"""Where a change is split, packets never see a part of it that matters: transaction by transaction, in the fake."""

import asyncio
from ipaddress import ip_address

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podgate.model.packet import Locality, Packet
from podgate.model.table import Table
from podgate.targets.nftables.code import Go
from podgate.targets.nftables.diff import diff
from podgate.targets.nftables.fake import FakeNftables, as_read
from podgate.targets.nftables.registers import flow
from podgate.targets.nftables.stages import Stage, stages
from podgate.targets.nftables.state import MEMBER, Chain, Element, Rule, Set, State, interval
from tests.support.nftables_code import balancing, coded_states, endpoint, service
from tests.support.nftables_states import TABLE

NOTHING = State.absent("ip", TABLE)
ADDRESSES = [f"10.96.0.{n}" for n in range(1, 7)]
ENDPOINTS = [endpoint(f"10.0.0.{n}") for n in range(1, 6)]

services = st.dictionaries(
    st.sampled_from(ADDRESSES), st.lists(st.sampled_from(ENDPOINTS), min_size=1, max_size=5, unique=True), max_size=6
)


def balanced(chosen: dict[str, list[bytes]]) -> State:
    return balancing({service(address): tuple(found) for address, found in chosen.items()}, (1,))


def served(state: State, address: str) -> set[str]:
    """Give the endpoints that a service's packets may go to; empty text for none."""
    packet = Packet(ip_address("10.1.0.1"), ip_address(address), dport=80)
    return {str(found.endpoint[0]) if found.endpoint else "" for found in flow(state, packet, Locality())}


def keys(state: State) -> set[tuple[str, Element]]:
    return {(name, key) for name, elements in state.elements.items() for key in elements}


@given(history=st.lists(services, min_size=1, max_size=5), most=st.integers(1, 12))
def test_a_service_that_stays_is_served_after_every_transaction(
    history: list[dict[str, list[bytes]]], most: int
) -> None:
    """By endpoints that it had or will have; and no key that stays is ever missing."""

    async def walk() -> None:
        fake = FakeNftables("ip", TABLE, most)
        before: dict[str, list[bytes]] = {}
        for after in history:
            have, want = fake.state, balanced(after)
            await fake.apply(fake.diff(as_read(have), want))
            assert not fake.diff(await fake.read(), want)
            for state in fake.history:
                assert keys(have) & keys(want) <= keys(state)
                for address in before.keys() & after.keys():
                    known = {str(ip_address(each[:4])) for each in (*before[address], *after[address])}
                    assert served(state, address) <= known
            fake.history.clear()
            before = after

    asyncio.run(walk())


@given(chosen=services, most=st.integers(1, 12))
def test_a_table_that_is_loaded_in_parts_serves_nothing_or_all(chosen: dict[str, list[bytes]], most: int) -> None:
    """Also one that others emptied, whose rules are there."""

    async def walk() -> None:
        for start in (NOTHING, msgspec.structs.replace(balanced(chosen), elements={})):
            fake = FakeNftables("ip", TABLE, most)
            fake.state = start
            await fake.apply(fake.diff(as_read(start), balanced(chosen)))
            for state in fake.history:
                for address, endpoints in chosen.items():
                    assert served(state, address) in ({""}, {str(ip_address(each[:4])) for each in endpoints})

    asyncio.run(walk())


@given(have=coded_states("ip"), want=coded_states("ip"), most=st.integers(1, 30))
def test_split_plans_lead_from_any_state_to_any_other(have: State, want: State, most: int) -> None:
    async def walk() -> None:
        fake = FakeNftables("ip", TABLE, most)
        for each in (have, want):
            await fake.apply(fake.diff(await fake.read(), each))
            assert not fake.diff(await fake.read(), each)
        kept = {declared.name for declared in have.sets if declared in want.sets}
        for state in fake.history[-1:]:
            assert {pair for pair in keys(have) & keys(want) if pair[0] in kept} <= keys(state)

    asyncio.run(walk())


def planned(have: State, want: State, most: int) -> tuple[Stage, ...]:
    return stages(diff(as_read(have), want), most)


def test_what_comes_is_one_transaction_and_what_goes_another() -> None:
    one, two = balanced({"10.96.0.1": ENDPOINTS[:3]}), balanced({"10.96.0.1": ENDPOINTS[:2]})
    first, second = planned(one, two, 100)
    assert [chain.name for chain in first.declared] == ["to-2"]
    assert first.added.keys() == {"counts", "services"}
    assert first.removed.keys() == {"counts", "services", "slots"}
    assert not first.dropped_chains
    assert second == Stage(dropped_chains=("to-3",))
    assert second.only_drops


def test_a_load_fills_dispatching_maps_after_all_others_and_rules_last() -> None:
    steps = planned(NOTHING, balanced(dict.fromkeys(ADDRESSES, ENDPOINTS[:2])), 8)
    assert [step.table for step in steps] == ["anew", *[""] * (len(steps) - 1)]
    assert [sorted(step.added) for step in steps] == [[], ["counts"], ["slots"], ["slots"], ["services"], []]
    assert [[chain.name for chain in step.declared] for step in steps] == [
        *(["to-1", "to-2"], [], [], [], []),
        ["prerouting", "postrouting"],
    ]
    assert [bool(step.filled) for step in steps] == [False] * 5 + [True]
    assert all(sum(map(len, step.added.values())) <= 8 for step in steps)


def test_a_table_that_sleeps_wakes_when_it_holds_what_it_should() -> None:
    asleep = msgspec.structs.replace(balanced({}), dormant=True)
    steps = planned(asleep, balanced(dict.fromkeys(ADDRESSES, ENDPOINTS[:2])), 8)
    assert [step.table for step in steps] == [*[""] * (len(steps) - 1), "woken"]


def test_a_table_goes_after_its_rules() -> None:
    assert planned(balanced({"10.96.0.1": ENDPOINTS}), NOTHING, 8) == (Stage("emptied"), Stage("gone"))
    assert planned(NOTHING, NOTHING, 8) == ()


def test_a_small_change_of_a_large_table_is_one_transaction() -> None:
    large = dict.fromkeys(ADDRESSES, ENDPOINTS)
    (step,) = planned(balanced(large), balanced({**large, ADDRESSES[0]: ENDPOINTS[::-1]}), 8)
    assert {name: len(found) for name, found in step.added.items()} == {"slots": 4}


def test_a_set_that_is_declared_anew_is_never_without_its_elements() -> None:
    """However large it is: nothing else would leave its elements in place."""
    have = balanced(dict.fromkeys(ADDRESSES, ENDPOINTS))
    sets = tuple(
        msgspec.structs.replace(each, comment="another") if each.name == "slots" else each for each in have.sets
    )
    (step,) = planned(have, msgspec.structs.replace(have, sets=sets), 8)
    assert [declared.name for declared in step.dropped_sets] == ["slots"] == list(step.added)
    assert step.flushed == ("to-1", "to-5")


def test_intervals_change_in_one_transaction() -> None:
    """Other intervals may cover the same addresses: the old ones must go before the new ones come."""
    ranges = [ip_address(f"10.{n}.0.0") for n in range(20)]

    def ranged(step: int) -> State:
        found = {interval(each, each + step): MEMBER for each in ranges}
        rule = Rule("accept", "all", (Go("accept"),))
        return State(
            "ip",
            TABLE,
            chains=(Chain("any", (rule,)),),
            sets=(Set("keep", ("ipv4_addr",), ("interval",)),),
            elements={"keep": Table.of(found)},
        )

    (step,) = planned(ranged(1), ranged(2), 8)
    assert (len(step.removed["keep"]), len(step.added["keep"])) == (20, 20)


def test_a_table_with_text_and_code_is_none() -> None:
    state = balanced({"10.96.0.1": ENDPOINTS[:1]})
    mixed = msgspec.structs.replace(state, chains=(*state.chains, Chain("text", (Rule("accept", "all"),))))
    with pytest.raises(ValueError, match="all must have it: 'accept'"):
        diff(NOTHING, mixed)
