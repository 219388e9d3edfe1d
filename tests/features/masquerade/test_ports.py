"""Ranges of ports: the old agent's table, but for what iptables then refused, and NodePorts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podgate.features.masquerade.ports import (
    NotPorts,
    PortRange,
    outside_node_ports,
    ports_text,
    read_ports,
    within_node_ports,
)


@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        ("", ()),
        ("42", ((42, 42),)),
        ("42-42", ((42, 42),)),
        ("42-44", ((42, 44),)),
        ("1024-29999,32768-65535", ((1024, 29999), (32768, 65535))),
        ("65535,1024", ((65535, 65535), (1024, 1024))),
        ("1-65535", ((1, 65535),)),
        ("0042-044", ((42, 44),)),
    ],
)
def test_ranges_in_the_order_written(text: str, ranges: tuple[tuple[int, int], ...]) -> None:
    assert read_ports(text) == ranges


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("0", "port 0"),
        ("0-10", "port 0"),
        ("70000", "goes beyond the last port"),
        ("1-65536", "goes beyond the last port"),
        ("10-5", 'is reversed: write "5-10"'),
        ("42-41", 'is reversed: write "41-42"'),
        ("42 - 44", 'write "42-44"'),
        ("42, 43", 'write "42,43"'),
        (" 42", 'write "42"'),
        ("42-43-44", "neither a port nor a range"),
        ("4x", "neither a port nor a range"),
        ("4x-44", "neither a port nor a range"),
        ("42-4x", "neither a port nor a range"),
        ("-44", "neither a port nor a range"),
        ("42-", "neither a port nor a range"),
        ("-1--5", "neither a port nor a range"),
        ("+5", "neither a port nor a range"),
        ("\u0664\u0662", "neither a port nor a range"),
        ("1-2,", "a range is empty"),
        (",", "a range is empty"),
        ("1024-2000,1500-3000", "1024-2000 and 1500-3000 overlap"),
        ("5,1-9", "1-9 and 5 overlap"),
        ("7,7", "7 and 7 overlap"),
    ],
)
def test_t23_what_is_refused_says_what_to_write(text: str, complaint: str) -> None:
    with pytest.raises(NotPorts, match=complaint):
        read_ports(text)


def test_sizes() -> None:
    assert [PortRange(42, 44).size, PortRange(42, 42).size] == [3, 1]
    assert [str(PortRange(42, 44)), str(PortRange(42, 42))] == ["42-44", "42"]


ports = st.lists(st.integers(1, 65535), max_size=8, unique=True).map(
    lambda ends: tuple(
        PortRange(first, last) for first, last in zip(sorted(ends)[::2], sorted(ends)[1::2], strict=False)
    )
)


@given(ports)
def test_ranges_read_back_and_are_cut_at_the_node_ports(ranges: tuple[PortRange, ...]) -> None:
    assert read_ports(ports_text(ranges)) == ranges
    inside, outside = within_node_ports(ranges), outside_node_ports(ranges)
    assert sum(each.size for each in (*inside, *outside)) == sum(each.size for each in ranges)
    assert all(first >= 30000 and last <= 32767 for first, last in inside)
    assert all(last < 30000 or first > 32767 for first, last in outside)
