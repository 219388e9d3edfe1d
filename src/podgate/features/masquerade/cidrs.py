"""cidrs: the text of one entry of nonMasqueradeCIDRs becomes a network, or a complaint that says what to write.

Here: Go's net.ParseCIDR, stricter where the old agent let through what iptables then refused. Not here: lists, limits
and origins (reading.py).
Invariant: a network that is given has no host bits and is of a family that is on; str() of it is what a kernel takes.
"""

import json
import re
from collections.abc import Sequence
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network, NetmaskValueError
from typing import Any, Final, NamedTuple

from podgate.model.machine import Family, IPNetwork

_IPV4: Final = re.compile(r"([0-9]+)\.([0-9]+)\.([0-9]+)\.([0-9]+)")
_LENGTH: Final = re.compile(r"[0-9]{1,9}")
_FORM: Final = "write ADDRESS/LENGTH, as 10.0.0.0/8"


class Complaint(NamedTuple):
    """Why an entry is not used (an error), or is used but should be written otherwise (a warning)."""

    reason: str
    message: str


class CIDR(NamedTuple):
    """A network, and a warning if it should be written otherwise."""

    network: IPNetwork
    warning: Complaint | None = None


def shown(value: Any) -> str:
    """Show a value that is of the wrong type, as JSON and shortened."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."


def read_cidr(value: Any, families: Sequence[Family]) -> CIDR | Complaint:
    """Read one entry of the list.

    Args:
        value: what the document holds there; only text can be right.
        families: the families that are on.
    """
    if value is None:
        return Complaint("NullEntry", "the entry is empty (null): write a CIDR there, or remove the line")
    if not isinstance(value, str):
        return Complaint("WrongType", f"{shown(value)} is not text: {_FORM}")
    if value != value.strip():
        inner = read_cidr(value.strip(), families)
        fix = f'write "{inner.network}"' if isinstance(inner, CIDR) else _FORM
        return Complaint("InvalidCIDR", f'"{value}" has white space around it: {fix}')
    if "," in value or " " in value:
        return Complaint("InvalidCIDR", f'"{value}" is more than one word: write each CIDR as a list item of its own')
    address, slash, length = value.partition("/")
    if not slash:
        return _without_length(value)
    if ":" in address:
        return _ipv6(value, address, length, families)
    return _ipv4(value, address, length)


def _without_length(value: str) -> Complaint:
    if not value:
        return Complaint("NullEntry", 'the entry is empty (""): write a CIDR there, or remove the line')
    try:
        bits = (IPv6Address(value) if ":" in value else IPv4Address(value)).max_prefixlen
    except AddressValueError:
        return Complaint("InvalidCIDR", f'"{value}" is not a CIDR: {_FORM}')
    return Complaint("BareAddress", f'"{value}" has no prefix length: for this one address write "{value}/{bits}"')


def _ipv4(value: str, address: str, length: str) -> CIDR | Complaint:
    octets = _IPV4.fullmatch(address)
    if octets is None:
        return Complaint("InvalidCIDR", f'"{value}" is not a CIDR: {_FORM}{_shorthand(address, length)}')
    number = 0
    for octet in octets.groups():
        if len(octet) > 1 and octet[0] == "0":
            why = f'"{octet}" begins with 0, which some programs read as octal: write it without'
            return Complaint("InvalidCIDR", f'"{value}" is not a CIDR: {why}')
        if len(octet) > 3 or int(octet) > 255:
            return Complaint("InvalidCIDR", f'"{value}" is not a CIDR: {octet} is more than 255')
        number = number << 8 | int(octet)
    if _IPV4.fullmatch(length):
        return Complaint("InvalidCIDR", f'"{value}" has a netmask: {_from_netmask(value)}')
    if not _LENGTH.fullmatch(length) or int(length) > 32:
        return Complaint("InvalidCIDR", f'"{value}" is not a CIDR: the prefix length must be a number from 0 to 32')
    return _aligned(value, IPv4Network((number, int(length)), strict=False), number, length)


def _shorthand(address: str, length: str) -> str:
    """Give a guess at what ``10.0/8`` means, as a hint."""
    parts = address.split(".")
    if not all(re.fullmatch(r"[0-9]{1,3}", part) for part in parts) or len(parts) > 3:
        return ""
    try:
        meant = IPv4Network(f"{'.'.join(parts + ['0'] * (4 - len(parts)))}/{length}")
    except ValueError:
        return " with all four numbers"
    return f' (did you mean "{meant}"?)'


def _from_netmask(value: str) -> str:
    try:
        return f'write the prefix length, "{IPv4Network(value, strict=False)}"'
    except (NetmaskValueError, AddressValueError):
        return "write the prefix length, as 10.0.0.0/8"


def _ipv6(value: str, address: str, length: str, families: Sequence[Family]) -> CIDR | Complaint:
    if "%" in address:
        zone = address.partition("%")[2]
        return Complaint("InvalidCIDR", f'"{value}" has a zone: a range has none, remove "%{zone}"')
    try:
        parsed = IPv6Address(address)
    except AddressValueError:
        return Complaint("InvalidCIDR", f'"{value}" is not a CIDR: {_FORM} or fd00::/8')
    if not _LENGTH.fullmatch(length) or int(length) > 128:
        return Complaint("InvalidCIDR", f'"{value}" is not a CIDR: the prefix length must be a number from 0 to 128')
    if parsed.ipv4_mapped is not None:
        if int(length) < 96:
            return Complaint("MappedAddress", f'"{value}" holds IPv4 addresses in IPv6 form: write an IPv4 CIDR')
        meant = IPv4Network((int(parsed.ipv4_mapped), int(length) - 96), strict=False)
        return Complaint("MappedAddress", f'"{value}" is an IPv4 range in IPv6 form: write "{meant}"')
    if "ip6" not in families:
        why = "is IPv6, and IPv6 is off: start podgate with --enable-ipv6, or remove the entry"
        return Complaint("IPv6Disabled", f'"{value}" {why}')
    return _aligned(value, IPv6Network((int(parsed), int(length)), strict=False), int(parsed), length)


def _aligned(value: str, network: IPNetwork, address: int, length: str) -> CIDR | Complaint:
    if address != int(network.network_address):
        one = f"{IPv4Address(address) if network.version == 4 else IPv6Address(address)}/{network.max_prefixlen}"
        fix = f'write "{network}" for the whole range, "{one}" for the one address'
        return Complaint("HostBits", f'"{value}" has bits set beyond its prefix length: {fix}')
    if len(length) > 1 and length[0] == "0":
        return CIDR(network, Complaint("LeadingZero", f'"{value}" is taken as "{network}": write it so'))
    return CIDR(network)
