"""prefixes: from a list of prefixes to disjoint intervals, by longest prefix.

Here: spans, entries, ``resolve`` and the set operations on spans. Not here: what an action does, text of a back end.
Invariant: intervals given are sorted and disjoint, and each address has the action of the longest prefix that holds
it, of equal prefixes the first one (tests compare with a naive oracle). All in O(n log n).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from ipaddress import IPv4Address, IPv6Address, summarize_address_range
from typing import Final, Literal, NamedTuple

from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.machine import Family, IPAddress, IPNetwork

Action = Literal["keep", "masquerade", "snat"]
"""What happens to the source address. ``keep``: it stays the Pod's; ``masquerade``: it becomes the node's, as the
outgoing interface has it; ``snat``: it becomes an address that a policy names."""


class Span(NamedTuple):
    """Addresses from ``first`` to ``last``, both included, as numbers. The family is known from where it stands."""

    first: int
    last: int


class RuleOrigin(Frozen, frozen=True):
    """Where a rule comes from: a field of something that a user wrote, or nowhere (``ref`` None): built in."""

    ref: ObjectRef | None = None
    field: str = ""


BUILT_IN: Final = RuleOrigin()


class Entry(Frozen, frozen=True):
    """One prefix with its action and where it was written."""

    network: IPNetwork
    action: Action
    origin: RuleOrigin = BUILT_IN


class Interval(NamedTuple):
    """A span and the entry that decides it."""

    first: int
    last: int
    entry: Entry


def family_of(network: IPNetwork | IPAddress) -> Family:
    """Give the family as nftables names it."""
    return "ip" if network.version == 4 else "ip6"


def span_of(network: IPNetwork) -> Span:
    """Give the addresses of a network as a span."""
    first = int(network.network_address)
    return Span(first, first | ((1 << (network.max_prefixlen - network.prefixlen)) - 1))


def resolve(entries: Iterable[Entry]) -> tuple[Interval, ...]:
    """Give the disjoint intervals of entries of one family.

    Adjacent intervals of different entries stay apart, so that each names the entry that decided it.
    """
    # Wider prefixes come before those inside them; of equal ones the first wins, so the sort must be stable.
    ordered = sorted(((*span_of(entry.network), entry) for entry in entries), key=lambda item: (item[0], -item[1]))
    found: list[Interval] = []
    open_: list[tuple[int, Entry]] = []  # last address and entry of the prefixes around the present position
    position = 0
    seen: tuple[int, int] | None = None
    for first, last, entry in ordered:
        if (first, last) == seen:
            continue
        seen = (first, last)
        position = _close(open_, position, first, found)
        if open_ and position < first:
            found.append(Interval(position, first - 1, open_[-1][1]))
        open_.append((last, entry))
        position = first
    _close(open_, position, None, found)
    return tuple(found)


def _close(open_: list[tuple[int, Entry]], position: int, before: int | None, found: list[Interval]) -> int:
    """Write out what is left of the prefixes that end before the next one begins."""
    while open_ and (before is None or open_[-1][0] < before):
        last, entry = open_.pop()
        if position <= last:
            found.append(Interval(position, last, entry))
            position = last + 1
    return position


def merged(spans: Iterable[tuple[int, int]]) -> tuple[Span, ...]:
    """Give the same addresses as the fewest spans: sorted, disjoint, none next to another."""
    result: list[Span] = []
    first = last = None
    for low, high in sorted(spans):
        if first is None or last is None:
            first, last = low, high
        elif low <= last + 1:
            last = max(last, high)
        else:
            result.append(Span(first, last))
            first, last = low, high
    if first is not None and last is not None:
        result.append(Span(first, last))
    return tuple(result)


def kept(intervals: Iterable[Interval]) -> tuple[Span, ...]:
    """Give the spans that are kept, as few as there can be: what goes into a kernel set."""
    return merged((low, high) for low, high, entry in intervals if entry.action == "keep")


def outside(spans: Iterable[tuple[int, int]], covered: Sequence[tuple[int, int]]) -> tuple[Span, ...]:
    """Give what of ``spans`` is not in ``covered``, which is sorted and disjoint."""
    result: list[Span] = []
    index = 0
    for first, last in merged(spans):
        position = first
        while index < len(covered) and covered[index][1] < first:
            index += 1
        at = index
        while position <= last and at < len(covered) and covered[at][0] <= last:
            low, high = covered[at]
            if position < low:
                result.append(Span(position, low - 1))
            position = max(position, high + 1)
            at += 1
        if position <= last:
            result.append(Span(position, last))
    return tuple(result)


def find(intervals: Sequence[Interval], address: int) -> Interval | None:
    """Give the interval that holds an address, by bisection."""
    low, high = 0, len(intervals)
    while low < high:
        middle = (low + high) // 2
        if intervals[middle].last < address:
            low = middle + 1
        else:
            high = middle
    return intervals[low] if low < len(intervals) and intervals[low].first <= address else None


def networks_of(span: tuple[int, int], family: Family) -> Iterator[IPNetwork]:
    """Give the fewest networks that make up a span."""
    make: Callable[[int], IPv4Address] | Callable[[int], IPv6Address] = IPv4Address if family == "ip" else IPv6Address
    yield from summarize_address_range(make(span[0]), make(span[1]))
