"""ports: which source ports a translated connection may get.

Here: the ranges, their text form, and what is wrong with a text. Not here: how a back end chooses between ranges.
Invariant: ranges that are given are within 1 to 65535, none overlaps another, and their order is the written one.

Grammar: pkg/interval of ip-masq-agent (``1024-29999,32768-65535``), without what iptables then refuses or takes for
something else: port 0, ports above 65535, signs, overlaps.
"""

import re
from itertools import pairwise
from typing import Final, NamedTuple

_NUMBER: Final = re.compile(r"[0-9]+")
HIGHEST: Final = 65535


class PortRange(NamedTuple):
    """Ports from ``first`` to ``last``, both included."""

    first: int
    last: int

    @property
    def size(self) -> int:
        """How many ports."""
        return self.last - self.first + 1

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


Ports = tuple[PortRange, ...]
"""Ranges to choose from, each by its size; empty: whichever port the kernel likes."""

NODE_PORTS: Final = PortRange(30000, 32767)
"""Where NodePorts are, unless the API server was told otherwise (--service-node-port-range)."""


class NotPorts(ValueError):  # noqa: N818 - it is the user's text, and the message is for the user
    """A text that is no list of port ranges; the message says why and what to write."""


def read_ports(text: str) -> Ports:
    """Read ``1024-29999,32768-65535``; an empty text is no range.

    Raises:
        NotPorts: with the first mistake.
    """
    if not text:
        return ()
    ranges = tuple(_range(part, text) for part in text.split(","))
    for before, after in pairwise(sorted(ranges)):
        if after.first <= before.last:
            raise NotPorts(f"{before} and {after} overlap: write each port once")
    return ranges


def _range(part: str, text: str) -> PortRange:
    if part != part.strip() or " " in part:
        raise NotPorts(f'there is white space in "{part}": write "{"".join(text.split())}"')
    if not part:
        raise NotPorts("a range is empty: remove the comma that is too many")
    first, dash, last = part.partition("-")
    if not _NUMBER.fullmatch(first) or (dash and not _NUMBER.fullmatch(last)):
        raise NotPorts(f'"{part}" is neither a port nor a range: write FIRST-LAST, as 1024-29999')
    low, high = int(first), int(last or first)
    if low == 0:
        raise NotPorts(f'"{part}" holds port 0, which no connection can have: begin with 1 or more')
    if max(low, high) > HIGHEST:
        raise NotPorts(f'"{part}" goes beyond the last port: end with {HIGHEST} or less')
    if low > high:
        raise NotPorts(f'"{part}" is reversed: write "{high}-{low}"')
    return PortRange(low, high)


def ports_text(ports: Ports) -> str:
    """Write ranges as they are read."""
    return ",".join(map(str, ports))


def within_node_ports(ports: Ports) -> Ports:
    """Give the part of the ranges that may be a NodePort."""
    cut = (PortRange(max(each.first, NODE_PORTS.first), min(each.last, NODE_PORTS.last)) for each in ports)
    return tuple(each for each in cut if each.first <= each.last)


def outside_node_ports(ports: Ports) -> Ports:
    """Give the ranges without NodePorts."""
    found: list[PortRange] = []
    for first, last in ports:
        for low, high in ((first, min(last, NODE_PORTS.first - 1)), (max(first, NODE_PORTS.last + 1), last)):
            if low <= high:
                found.append(PortRange(low, high))
    return tuple(found)
