"""Elements: their compact form, and the text that nft reads."""

import re
import sys
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

import podgate
from podgate.targets.nftables.elements import (
    ByteOrder,
    address,
    address_interval,
    concatenation,
    data_text,
    host_word,
    host_words,
    interval,
    key_size,
    key_text,
    key_texts,
    port,
    protocol,
)


@pytest.mark.parametrize(
    ("types", "key", "shown"),
    [
        (("ipv4_addr",), address(ip_address("10.0.0.1")), "10.0.0.1"),
        (("ipv6_addr",), address(ip_address("fd00::1")), "fd00::1"),
        (("inet_service",), port(443), "443"),
        (("inet_proto",), protocol("sctp"), "sctp"),
        (("inet_proto",), b"\x59", "89"),
        (("mark",), host_words(0x4000), "0x00004000"),
        (("ether_addr",), bytes(range(6)), "00:01:02:03:04:05"),
        (("ifname",), b"eth0".ljust(16, b"\0"), '"eth0"'),
        (
            ("ipv4_addr", "inet_proto", "inet_service"),
            concatenation(address(ip_address("10.0.0.1")), protocol("tcp"), port(80)),
            "10.0.0.1 . tcp . 80",
        ),
        (("ipv4_addr",), b"", "*"),
    ],
)
def test_a_key_as_nft_reads_it(types: tuple[str, ...], key: bytes, shown: str) -> None:
    assert key_text(types, key, is_interval=False) == shown
    assert not key or key_size(types) == len(key)


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        (interval(ip_network("10.0.0.0/8")), "10.0.0.0/8"),
        (interval(ip_network("0.0.0.0/0")), "0.0.0.0/0"),
        (interval(ip_network("255.255.255.255/32")), "255.255.255.255"),
        (interval(ip_address("10.0.0.1"), ip_address("10.0.0.2")), "10.0.0.1-10.0.0.2"),
        (interval(ip_address("10.0.0.0"), ip_address("10.0.0.255")), "10.0.0.0/24"),
        (interval(ip_address("10.0.0.128"), ip_address("10.0.1.127")), "10.0.0.128-10.0.1.127"),
    ],
)
def test_an_interval_is_shown_as_a_prefix_where_it_is_one(key: bytes, shown: str) -> None:
    assert key_text(("ipv4_addr",), key, is_interval=True) == shown
    assert key_texts(("ipv4_addr",), [key, b""], is_interval=True) == [shown, "*"]
    assert key_texts(("ipv4_addr",), [key, key], is_interval=True) == [shown, shown]


@pytest.mark.parametrize(
    ("order", "packed"), [("<", b"\x00\x40\x00\x00\x05\x00\x01\x00"), (">", b"\x00\x00\x40\x00\x00\x01\x00\x05")]
)
def test_numbers_that_the_kernel_calculates_with_are_in_the_order_of_the_machine(
    order: ByteOrder, packed: bytes
) -> None:
    assert host_words(0x4000, 0x10005, order=order) == packed
    assert (host_word(packed[:4], order=order), host_word(packed[4:], order=order)) == (0x4000, 0x10005)
    assert host_words(7) == host_words(7, order="<" if sys.byteorder == "little" else ">")


def test_what_packets_hold_is_in_network_order_on_every_machine() -> None:
    assert (port(443), protocol("tcp")) == (b"\x01\xbb", b"\x06")
    assert address(ip_address("10.0.0.1")) == b"\x0a\x00\x00\x01"


def test_no_module_guesses_the_order_of_the_machine() -> None:
    for path in Path(podgate.__file__).parent.rglob("*.py"):
        assert not re.search(r"""["']little["']|(pack\w*|Struct)\(f?["']<""", path.read_text()), path


def test_an_interval_of_ip6() -> None:
    assert key_text(("ipv6_addr",), interval(ip_network("::/0")), is_interval=True) == "::/0"
    assert key_text(("ipv6_addr",), interval(ip_network("fc00::/7")), is_interval=True) == "fc00::/7"
    assert address_interval("ip6", 0, (1 << 128) - 1) == interval(ip_network("::/0"))
    assert address_interval("ip", 10 << 24, (11 << 24) - 1) == interval(ip_network("10.0.0.0/8"))


def test_intervals_of_concatenations() -> None:
    first = concatenation(address(ip_address("10.0.0.0")), port(80))
    last = concatenation(address(ip_address("10.0.0.255")), port(90))
    assert key_text(("ipv4_addr", "inet_service"), first + last, is_interval=True) == "10.0.0.0/24 . 80-90"


def test_a_verdict_is_its_own_text() -> None:
    assert data_text(("verdict",), "goto bucket") == "goto bucket"
    assert data_text(("inet_service",), port(80)) == "80"


@pytest.mark.parametrize("last", ["10.0.0.1", "fd00::1", None])
def test_an_interval_needs_a_last_address_after_the_first(last: str | None) -> None:
    with pytest.raises(ValueError, match=r"an interval from 10\.0\.0\.2 needs a last address"):
        interval(ip_address("10.0.0.2"), ip_address(last) if last else None)  # type: ignore[arg-type]
