"""standing_rules: whether rules for a Service's address stand in the kernel, whoever wrote them.

Here: looking for one address and port in our own tables, kube-proxy's nftables and iptables, and on its device of mode
ipvs; the ranges of Services that our own tables remember. Not here: what follows from it (bootstrap.py).
Invariant: nothing is written, also no table of iptables that was not there. What may not be looked at holds nothing.
A rule that refuses is one too: whoever wrote it knew the Service, which had no endpoint then.
"""

import asyncio
import contextlib
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from ipaddress import ip_address
from typing import Final

from podgate.features.services.addresses import Span, address_text, family_of
from podgate.features.services.iptables_names import SERVICES
from podgate.features.services.layout import PROTOCOLS, REJECTED, SERVICE_IPS, SERVICE_RANGES
from podgate.features.services.node import IPVS_DEVICE
from podgate.features.services.server.proxy_at_work import NAME
from podgate.features.services.to_nftables import TABLE
from podgate.joints import ApplyError
from podgate.linux.iptables import legacy_tables
from podgate.linux.netlink import NETLINK_NETFILTER, Connection, DumpInterruptedError
from podgate.linux.nftables import FAMILIES, find_table
from podgate.linux.nftables_elements import SetShape, has_element, list_elements
from podgate.linux.rtnetlink import addresses
from podgate.model.machine import Family
from podgate.targets.iptables.program import Iptables
from podgate.targets.iptables.state import Binary, TableName

_MAPS: Final = ((TABLE, SERVICE_IPS), (TABLE, REJECTED), (NAME, "service-ips"), (NAME, "no-endpoint-services"))
"""Tables and their maps with the key address, protocol, port: ours, and those of kube-proxy."""

_TABLES: Final[tuple[TableName, ...]] = ("nat", "filter")
_SECONDS: Final = 30.0
"""How long a listing of iptables may take: one of 10,000 Services needs about two seconds."""


def has_rules(address: bytes, port: int) -> bool:
    """Say whether there are rules for TCP to an address and port, in this process's network namespace."""
    ways: tuple[Callable[[bytes, int], bool], ...] = (_by_nftables, _by_ipvs, _by_iptables_nft, _by_iptables_legacy)
    return any(_looked(way, address, port) for way in ways)


def _looked(way: Callable[[bytes, int], bool], address: bytes, port: int) -> bool:
    with contextlib.suppress(OSError, ApplyError, DumpInterruptedError):
        return way(address, port)
    return False


def _by_nftables(address: bytes, port: int) -> bool:
    key = address + PROTOCOLS["tcp"] + port.to_bytes(2) + b"\0\0"
    with Connection(NETLINK_NETFILTER) as connection:
        family = FAMILIES[family_of(address)]
        return any(has_element(connection, family, table, name, key) for table, name in _MAPS)


def _by_ipvs(address: bytes, port: int) -> bool:  # noqa: ARG001 - the device has addresses alone
    device = socket.if_nametoindex(IPVS_DEVICE)
    with Connection(socket.NETLINK_ROUTE) as connection:
        wanted = ip_address(address)
        return any(each.device == device and each.address == wanted for each in addresses(connection))


def _by_iptables_nft(address: bytes, port: int) -> bool:
    family = family_of(address)
    with Connection(NETLINK_NETFILTER) as connection:
        tables = [table for table in _TABLES if find_table(connection, FAMILIES[family], table)]
    return _is_listed(family, "nft", tables, address, port)


def _by_iptables_legacy(address: bytes, port: int) -> bool:
    family = family_of(address)
    there = legacy_tables(family)
    return _is_listed(family, "legacy", [table for table in _TABLES if table in there], address, port)


def _is_listed(family: Family, binary: Binary, tables: Sequence[TableName], address: bytes, port: int) -> bool:
    iptables = Iptables(family, binary, seconds=_SECONDS)
    return any(is_in(asyncio.run(iptables.save(table)), address, port) for table in tables)


def is_in(listing: str, address: bytes, port: int) -> bool:
    """Say whether what ``iptables-save`` shows has a rule for TCP to a Service's address and port."""
    whom = f"{re.escape(address_text(address))}/{len(address) * 8}"
    rule = rf"^-A {SERVICES} -d {whom} -p tcp .*--dport {port} .*-j (?:KUBE-(?:SVC|SVL|EXT)-|REJECT|DROP)"
    return re.search(rule, listing, re.MULTILINE) is not None


def remembered_ranges() -> tuple[Span, ...]:
    """Give the ranges of Services of both families that our own tables hold."""
    return tuple(each for family, size in (("ip", 4), ("ip6", 16)) for each in _ranges(family, size))


def _ranges(family: str, size: int) -> Iterator[Span]:
    with contextlib.suppress(OSError, DumpInterruptedError), Connection(NETLINK_NETFILTER) as connection:
        shape = SetShape(size, is_interval=True)
        for key, _ in list_elements(connection, FAMILIES[family], TABLE, SERVICE_RANGES, shape):
            yield key[:size], key[size:]
