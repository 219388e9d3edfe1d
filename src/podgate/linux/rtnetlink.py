"""rtnetlink(7): devices, addresses and routes of this network namespace, as plain values.

Here: dumps and their decoding, the groups that tell of changes, adding and deleting an address, deleting a device.
Not here: framing (netlink.py), what podgate makes of it (sources/machine.py, targets/addresses).
Invariant: a decoder takes what it knows and skips the rest, so an attribute of a newer kernel does no harm.
"""

import errno
import ipaddress
import socket
import struct
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from podgate.linux.netlink import (
    NLM_F_ACK,
    NLM_F_CREATE,
    NLM_F_EXCL,
    Connection,
    NetlinkError,
    attribute,
    attribute_list,
    attributes,
    string,
)

GROUPS: Final = (1, 5, 7, 9, 11)
"""RTNLGRP_LINK, _IPV4_IFADDR, _IPV4_ROUTE, _IPV6_IFADDR, _IPV6_ROUTE: what ``Listener`` has to join."""

ADDRESS_GROUPS: Final = (5, 9)
"""RTNLGRP_IPV4_IFADDR and _IPV6_IFADDR alone."""
SCOPES: Final[dict[Literal["global", "link", "host"], int]] = {"global": 0, "link": 253, "host": 254}
"""Scopes of addresses by the words of ip(8)."""

_RTM_NEWLINK, _RTM_DELLINK, _RTM_GETLINK = 16, 17, 18
_RTM_NEWADDR, _RTM_DELADDR, _RTM_GETADDR = 20, 21, 22
_RTM_NEWROUTE, _RTM_GETROUTE = 24, 26

_LINK: Final = struct.Struct("=BxHiII")
_ADDRESS: Final = struct.Struct("=BBBBi")
_ROUTE: Final = struct.Struct("=BBBBBBBBI")
_NEXT_HOP: Final = struct.Struct("=HBBi")
_U32: Final = struct.Struct("=I")
_FAMILY: Final = struct.Struct("=H")

_IFF_UP: Final = 1
_IFLA_IFNAME, _IFLA_MASTER, _IFLA_LINKINFO, _IFLA_EXT_MASK = 3, 10, 18, 29
_IFLA_INFO_KIND: Final = 1
_SKIP_STATISTICS: Final = 1 << 3
_IFA_ADDRESS, _IFA_LOCAL, _IFA_BROADCAST = 1, 2, 4
_RTA_DST, _RTA_OIF, _RTA_GATEWAY, _RTA_PREFSRC, _RTA_MULTIPATH, _RTA_TABLE, _RTA_VIA = 1, 4, 5, 7, 9, 15, 18
_RT_TABLE_MAIN: Final = 254
_RTN_UNICAST: Final = 1
_RTM_F_CLONED: Final = 0x200

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IPInterface = ipaddress.IPv4Interface | ipaddress.IPv6Interface


class Link(NamedTuple):
    """A device. ``kind`` is the driver's word (``veth``), empty for hardware and loopback; ``master`` 0: none."""

    device: int
    name: str
    kind: str
    master: int
    up: bool


class LinkAddress(NamedTuple):
    """An address on a device (its index); ``scope`` as rtnetlink numbers it: 0 global, 253 link, 254 host."""

    device: int
    address: IPAddress
    prefix: int
    scope: int
    broadcast: IPAddress | None


class LinkRoute(NamedTuple):
    """One way of a unicast route of the main table; a multipath route is one for each."""

    destination: IPAddress
    prefix: int
    device: int
    gateway: IPAddress | None
    source: IPAddress | None


def links(connection: Connection) -> list[Link]:
    """List all devices."""
    body = _LINK.pack(socket.AF_UNSPEC, 0, 0, 0, 0) + attribute(_IFLA_EXT_MASK, _U32.pack(_SKIP_STATISTICS))
    return [_link(one.body) for one in connection.dump(_RTM_GETLINK, body) if one.kind == _RTM_NEWLINK]


def addresses(connection: Connection) -> list[LinkAddress]:
    """List all IPv4 and IPv6 addresses."""
    found = connection.dump(_RTM_GETADDR, _ADDRESS.pack(socket.AF_UNSPEC, 0, 0, 0, 0))
    return [address for one in found if one.kind == _RTM_NEWADDR and (address := _address(one.body)) is not None]


def routes(connection: Connection) -> list[LinkRoute]:
    """List all IPv4 and IPv6 unicast routes of the main table."""
    found = connection.dump(_RTM_GETROUTE, _ROUTE.pack(socket.AF_UNSPEC, 0, 0, 0, 0, 0, 0, 0, 0))
    return [route for one in found if one.kind == _RTM_NEWROUTE for route in _routes(one.body)]


def add_address(connection: Connection, device: int, address: IPInterface, scope: int) -> None:
    """Add an address to a device; one that is there already stays as it is. Raises NetlinkError."""
    _try(connection, _RTM_NEWADDR, _assigned(device, address, scope), NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL)


def delete_address(connection: Connection, device: int, address: IPInterface) -> None:
    """Delete an address of a device; one that is gone already is no error. Raises NetlinkError."""
    _try(connection, _RTM_DELADDR, _assigned(device, address, 0), NLM_F_ACK)


def delete_link(connection: Connection, device: int) -> None:
    """Delete a device with all its addresses; one that is gone already is no error. Raises NetlinkError."""
    _try(connection, _RTM_DELLINK, _LINK.pack(socket.AF_UNSPEC, 0, device, 0, 0), NLM_F_ACK)


def _assigned(device: int, address: IPInterface, scope: int) -> bytes:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    both = b"".join(attribute(kind, address.packed) for kind in (_IFA_LOCAL, _IFA_ADDRESS))
    return _ADDRESS.pack(family, address.network.prefixlen, 0, scope, device) + both


def _try(connection: Connection, kind: int, body: bytes, flags: int) -> None:
    try:
        connection.request(kind, body, flags)
    except NetlinkError as problem:
        if problem.errno not in (errno.EEXIST, errno.EADDRNOTAVAIL, errno.ENODEV):
            raise


def _link(body: bytes) -> Link:
    _, _, index, flags, _ = _LINK.unpack_from(body)
    found = attributes(body, _LINK.size)
    info = attributes(found.get(_IFLA_LINKINFO, b""))
    return Link(
        device=index,
        name=string(found.get(_IFLA_IFNAME, b"")),
        kind=string(info.get(_IFLA_INFO_KIND, b"")),
        master=_u32(found.get(_IFLA_MASTER)),
        up=bool(flags & _IFF_UP),
    )


def _address(body: bytes) -> LinkAddress | None:
    family, prefix, _, scope, index = _ADDRESS.unpack_from(body)
    found = attributes(body, _ADDRESS.size)
    # Of a point-to-point link IFA_ADDRESS is the other end's; IFA_LOCAL, where it is given, is always ours.
    address = _ip(family, found.get(_IFA_LOCAL) or found.get(_IFA_ADDRESS))
    if address is None:
        return None
    return LinkAddress(index, address, prefix, scope, _ip(family, found.get(_IFA_BROADCAST)))


def _routes(body: bytes) -> Iterator[LinkRoute]:
    family, prefix, _, _, table, _, _, kind, flags = _ROUTE.unpack_from(body)
    found = attributes(body, _ROUTE.size)
    if _RTA_TABLE in found:  # tables above 255 do not fit into the header
        table = _u32(found[_RTA_TABLE])
    if kind != _RTN_UNICAST or table != _RT_TABLE_MAIN or flags & _RTM_F_CLONED or family not in _ANY:
        return
    destination = _ip(family, found.get(_RTA_DST)) or _ANY[family]
    source = _ip(family, found.get(_RTA_PREFSRC))
    if _RTA_OIF in found:
        yield LinkRoute(destination, prefix, _u32(found[_RTA_OIF]), _gateway(family, found), source)
    for index, hop in _next_hops(found.get(_RTA_MULTIPATH, b"")):
        yield LinkRoute(destination, prefix, index, _gateway(family, hop), source)


def _next_hops(data: bytes) -> Iterator[tuple[int, dict[int, bytes]]]:
    offset = 0
    while offset + _NEXT_HOP.size <= len(data):
        length, _, _, index = _NEXT_HOP.unpack_from(data, offset)
        if length < _NEXT_HOP.size:
            return
        yield index, dict(attribute_list(data[offset + _NEXT_HOP.size : offset + length]))
        offset += (length + 3) & ~3


def _gateway(family: int, found: dict[int, bytes]) -> IPAddress | None:
    if _RTA_VIA in found:  # a gateway of the other family (RFC 5549)
        via = found[_RTA_VIA]
        return _ip(_FAMILY.unpack_from(via)[0], via[_FAMILY.size :])
    return _ip(family, found.get(_RTA_GATEWAY))


_ANY: Final[dict[int, IPAddress]] = {
    socket.AF_INET: ipaddress.IPv4Address(0),
    socket.AF_INET6: ipaddress.IPv6Address(0),
}


def _ip(family: int, value: bytes | None) -> IPAddress | None:
    if value is None or family not in _ANY:
        return None
    return ipaddress.IPv4Address(value) if family == socket.AF_INET else ipaddress.IPv6Address(value)


def _u32(value: bytes | None) -> int:
    return int(_U32.unpack_from(value)[0]) if value else 0
