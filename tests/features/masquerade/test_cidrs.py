"""Single entries, in both families; cases/config.case has the messages."""

from ipaddress import IPv4Network, IPv6Network, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podgate.features.masquerade.cidrs import CIDR, Complaint, read_cidr, shown
from podgate.model.machine import Family

BOTH: tuple[Family, ...] = ("ip", "ip6")


@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("10.0.0.1/32", "10.0.0.1/32"),
        ("FD00:0:0:0::/8", "fd00::/8"),
        ("fc00::/7", "fc00::/7"),
        ("::/0", "::/0"),
        ("fe80::/010", "fe80::/10"),
    ],
)
def test_canonical_networks(text: str, network: str) -> None:
    read = read_cidr(text, BOTH)
    assert isinstance(read, CIDR)
    assert str(read.network) == network


@pytest.mark.parametrize(
    ("value", "reason", "fix"),
    [
        ("fc00::1/7", "HostBits", 'write "fc00::/7"'),
        ("::ffff:10.1.2.3/104", "MappedAddress", 'write "10.0.0.0/8"'),
        ("::ffff:10.0.0.0/96", "MappedAddress", 'write "0.0.0.0/0"'),
        ("fd00::/129", "InvalidCIDR", "from 0 to 128"),
        ("fd00::1", "BareAddress", 'write "fd00::1/128"'),
        ("fe80::%eth0/10", "InvalidCIDR", 'remove "%eth0"'),
        ("1\u0660.0.0.0/8", "InvalidCIDR", "ADDRESS/LENGTH"),
        ("10.0.0.0/\u0668", "InvalidCIDR", "from 0 to 32"),
        ("10.0.0.0/" + "9" * 5000, "InvalidCIDR", "from 0 to 32"),
        ("9" * 5000 + ".0.0.0/8", "InvalidCIDR", "more than 255"),
        ("10.0.0.0/255.0.255.0", "InvalidCIDR", "as 10.0.0.0/8"),
        ("a\n", "InvalidCIDR", "white space"),
        (None, "NullEntry", "remove the line"),
        (8, "WrongType", "8 is not text"),
    ],
)
def test_complaints(value: object, reason: str, fix: str) -> None:
    complaint = read_cidr(value, BOTH)
    assert isinstance(complaint, Complaint)
    assert complaint.reason == reason
    assert fix in complaint.message


def test_a_family_that_is_off_is_named() -> None:
    assert isinstance(read_cidr("fd00::/8", BOTH), CIDR)
    complaint = read_cidr("fd00::/8", ("ip",))
    assert isinstance(complaint, Complaint)
    assert complaint.reason == "IPv6Disabled"


@given(
    st.one_of(
        st.builds(IPv4Network, st.tuples(st.integers(0, (1 << 32) - 1), st.integers(0, 32)), st.just(False)),
        st.builds(IPv6Network, st.tuples(st.integers(0, (1 << 128) - 1), st.integers(0, 128)), st.just(False)),
    )
)
def test_every_network_is_read_as_itself(network: IPv4Network | IPv6Network) -> None:
    mapped = network.version == 6 and network.network_address.ipv4_mapped is not None
    assert mapped or read_cidr(str(network), BOTH) == CIDR(network)


@given(st.text(alphabet="0123456789./:fd%+ ", max_size=20))
def test_what_is_taken_is_what_is_written(text: str) -> None:
    read = read_cidr(text, BOTH)
    if isinstance(read, CIDR):
        address, length = text.split("/")
        assert ip_network(f"{address}/{int(length)}") == read.network
        assert (read.warning is None) == (str(int(length)) == length)


def test_values_are_shown_short() -> None:
    assert shown({"a": True}) == '{"a": true}'
    assert len(shown("x" * 1000)) == 60
