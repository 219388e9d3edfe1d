"""Longest prefix, against an oracle that asks every entry for every address."""

import gc
import itertools
import random
import time
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podgate.features.masquerade.prefixes import (
    Action,
    Entry,
    Interval,
    RuleOrigin,
    Span,
    family_of,
    find,
    kept,
    merged,
    networks_of,
    outside,
    resolve,
    span_of,
)

# All prefixes of a space of 64 addresses, at its start, its middle and its end.
BASES = (0, 1 << 31, (1 << 32) - 64)


@st.composite
def entries(draw: st.DrawFn, base: int) -> Entry:
    length = draw(st.integers(26, 32))
    offset = draw(st.integers(0, 63)) >> (32 - length) << (32 - length)
    action: Action = draw(st.sampled_from(("keep", "masquerade")))
    return Entry(IPv4Network((base + offset, length)), action, RuleOrigin(field=str(draw(st.integers(0, 1000)))))


lists = st.sampled_from(BASES).flatmap(lambda base: st.lists(entries(base), max_size=12))
spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 10)).map(lambda t: Span(t[0], t[0] + t[1])), max_size=8)


def decided(listed: list[Entry], address: int) -> Entry | None:
    holding = [entry for entry in listed if span_of(entry.network).first <= address <= span_of(entry.network).last]
    return max(holding, key=lambda entry: entry.network.prefixlen) if holding else None  # max gives the first


def points(listed: list[Entry]) -> range:
    base = int(listed[0].network.network_address) >> 6 << 6 if listed else 0
    return range(max(base - 1, 0), base + 65)


@given(lists)
def test_each_address_has_the_longest_prefix_that_holds_it(listed: list[Entry]) -> None:
    intervals = resolve(listed)
    for address in points(listed):
        found = find(intervals, address)
        assert (found.entry if found else None) == decided(listed, address)


@given(lists)
def test_intervals_are_sorted_and_disjoint_and_name_their_entry(listed: list[Entry]) -> None:
    intervals = resolve(listed)
    assert all(one.last < two.first for one, two in itertools.pairwise(intervals))
    for first, last, entry in intervals:
        outer = span_of(entry.network)
        assert outer.first <= first <= last <= outer.last
        assert entry in listed


@given(lists)
def test_kept_spans_are_as_few_as_can_be(listed: list[Entry]) -> None:
    spans_kept = kept(resolve(listed))
    assert all(one.last + 1 < two.first for one, two in itertools.pairwise(spans_kept))
    for address in points(listed):
        entry = decided(listed, address)
        is_kept = any(span.first <= address <= span.last for span in spans_kept)
        assert is_kept == (entry is not None and entry.action == "keep")


def test_of_equal_prefixes_the_first_one_wins() -> None:
    network = IPv4Network("10.0.0.0/8")
    first, second = Entry(network, "keep", RuleOrigin(field="a")), Entry(network, "masquerade", RuleOrigin(field="b"))
    assert [interval.entry for interval in resolve([first, second])] == [first]


def test_keep_except_except() -> None:
    wide, inner, one = (
        Entry(IPv4Network("10.0.0.0/8"), "keep"),
        Entry(IPv4Network("10.20.20.0/24"), "masquerade"),
        Entry(IPv4Network("10.20.20.7/32"), "keep"),
    )
    ten, twenty = int(wide.network.network_address), int(inner.network.network_address)
    assert resolve([one, wide, inner]) == (
        Interval(ten, twenty - 1, wide),
        Interval(twenty, twenty + 6, inner),
        Interval(twenty + 7, twenty + 7, one),
        Interval(twenty + 8, twenty + 255, inner),
        Interval(twenty + 256, ten + (1 << 24) - 1, wide),
    )


def test_the_whole_space_of_both_families() -> None:
    all4, all6 = Entry(IPv4Network("0.0.0.0/0"), "keep"), Entry(IPv6Network("::/0"), "keep")
    assert resolve([all4]) == (Interval(0, (1 << 32) - 1, all4),)
    assert resolve([all6]) == (Interval(0, (1 << 128) - 1, all6),)
    assert resolve([]) == ()
    assert [family_of(entry.network) for entry in (all4, all6)] == ["ip", "ip6"]


@given(spans, spans)
def test_merged_and_outside_are_set_operations(some: list[Span], others: list[Span]) -> None:
    def members(listed: list[Span] | tuple[Span, ...]) -> set[int]:
        return {address for first, last in listed for address in range(first, last + 1)}

    together = merged(some)
    assert members(together) == members(some)
    assert all(one.last + 1 < two.first for one, two in itertools.pairwise(together))
    left = outside(some, merged(others))
    assert members(left) == members(some) - members(others)
    assert list(left) == sorted(left)


@given(st.integers(0, (1 << 32) - 1), st.integers(0, 1 << 20))
def test_networks_of_a_span_make_it_up(first: int, length: int) -> None:
    span = Span(first, min(first + length, (1 << 32) - 1))
    networks = list(networks_of(span, "ip"))
    assert merged(span_of(network) for network in networks) == (span,)


def some(count: int, lengths: Sequence[int]) -> list[Entry]:
    chance = random.Random(7)
    listed = []
    for _ in range(count):
        length = chance.choice(lengths)
        listed.append(Entry(IPv4Network((chance.getrandbits(32) >> (32 - length) << (32 - length), length)), "keep"))
    return listed


def cpu_seconds(listed: list[Entry]) -> float:
    """Give the least CPU time of three runs, without what a collection of other tests' garbage takes."""
    taken = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            begin = time.process_time()
            resolve(listed)
            taken.append(time.process_time() - begin)
    finally:
        gc.enable()
    return min(taken)


@pytest.mark.parametrize("lengths", [range(8, 33), (24,)], ids=["nested", "side by side"])
def test_sixteen_times_as_many_entries_take_about_sixteen_times_as_long(lengths: Sequence[int]) -> None:
    """Where each entry was compared with each, they would take 256 times as long."""
    assert cpu_seconds(some(16_000, lengths)) < 64 * cpu_seconds(some(1_000, lengths))
