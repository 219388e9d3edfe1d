"""Addresses and ranges: what is read, what is not, and that what is shown is read as the same."""

from ipaddress import ip_address, ip_network
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podgate.features.services.addresses import (
    address_text,
    canonical,
    endpoint_text,
    has_leading_zeros,
    merged,
    oddity,
    packed,
    range_text,
    span,
    special,
    with_port,
    within,
)


@given(st.ip_addresses())
def test_an_address_is_read_as_its_bytes_and_shown_again(address: object) -> None:
    text = str(address)
    mapped = getattr(address, "ipv4_mapped", None)
    assert canonical(text) == (None if mapped else ip_address(text).packed)
    assert packed(text) == (mapped or ip_address(text)).packed
    assert address_text(ip_address(text).packed) == text


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("010.001.000.09", "10.1.0.9"),
        ("10.0.0.00", "10.0.0.0"),
        ("0010.0.0.1", "10.0.0.1"),
        ("10.0.0.0256", None),
        ("10.0.0.256", None),
        ("10.0.0", None),
        ("10.0.0.1.", None),
        ("10.0.0.1 ", None),
        ("+10.0.0.1", None),
        ("1_0.0.0.1", None),
        ("-1.0.0.1", None),
        ("10.0.0.٣", None),
        ("10.0.0.1\n", None),
        ("", None),
        ("FD00::0001", "fd00::1"),
        ("fd00::1%eth0", None),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::FFFF:a00:1", "10.0.0.1"),
        ("::ffff:010.0.0.1", None),
        ("None", None),
    ],
)
def test_odd_texts(text: str, read: str | None) -> None:
    assert packed(text) == (None if read is None else ip_address(read).packed)
    odd = packed(text) != canonical(text)
    assert odd <= (oddity(text)[0] in ("LeadingZeros", "MappedAddress"))
    assert odd <= (has_leading_zeros(text) or ":" in text)


@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("10.1.2.3/8", "10.0.0.0/8"),
        ("010.0.0.0/8", "10.0.0.0/8"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("10.0.0.1/32", "10.0.0.1/32"),
        ("fd00::7/64", "fd00::/64"),
        ("10.0.0.0/33", None),
        ("10.0.0.0", None),
        ("10.0.0.0/255.0.0.0", None),
        ("10.0.0.0/-1", None),
        ("/8", None),
        ("fd00::/129", None),
        ("fd00::%eth0/64", None),
        ("::ffff:10.0.0.0/104", None),
        ("::ffff:10.0.0.0/8", None),
    ],
)
def test_ranges(text: str, network: str | None) -> None:
    expected = None if network is None else ip_network(network)
    found = span(text)
    assert found == (None if expected is None else (expected[0].packed, expected[-1].packed))
    assert range_text(text) == network


def test_endpoints_are_shown_with_their_port() -> None:
    assert endpoint_text(bytes((10, 0, 0, 1)) + (8080).to_bytes(2)) == "10.0.0.1:8080"
    assert with_port(ip_address("fd00::1").packed, 53) == "[fd00::1]:53"


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 6)), max_size=8), st.integers(0, 60))
def test_merged_ranges_hold_the_same_addresses(ranges: list[tuple[int, int]], address: int) -> None:
    spans = [(first.to_bytes(4), (first + size).to_bytes(4)) for first, size in ranges]
    found = merged(spans)
    assert within(address.to_bytes(4), found) is within(address.to_bytes(4), tuple(spans))
    assert all(int.from_bytes(one[1]) + 1 < int.from_bytes(two[0]) for one, two in pairwise(found))
    assert not within(address.to_bytes(16), found)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("0.0.0.0", "the address of nobody"),
        ("0.0.0.1", ""),
        ("::", "the address of nobody"),
        ("::2", ""),
        ("127.255.0.1", "a loopback address"),
        ("128.0.0.1", ""),
        ("::1", "a loopback address"),
        ("169.254.169.254", "a link-local address"),
        ("169.255.0.1", ""),
        ("224.0.0.251", "a link-local address"),
        ("224.0.1.1", ""),
        ("fe80::1", "a link-local address"),
        ("febf::1", "a link-local address"),
        ("fec0::1", ""),
        ("ff02::fb", "a link-local address"),
        ("ff05::1", ""),
        ("10.0.0.1", ""),
        ("fd00::1", ""),
    ],
)
def test_addresses_that_an_api_server_takes_for_nobodys(text: str, kind: str) -> None:
    assert special(ip_address(text).packed) == kind
