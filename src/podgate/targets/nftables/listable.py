"""listable: whether nft can list a rule whose code it did not write.

Here: what nft, as it reads a rule back, takes each register for. Not here: what code does (evaluation.py). Pure.
Invariant: of code that passes, nft finds a value in every place of every key, so that it neither aborts nor dies.

nft reads expressions back into a language in which the data of a map cannot be part of a key. It notes the first
register of each load alone. The data of a map count as something of no length there, and nft aborts when it meets them
in a key (``Assertion consumed > 0``, 1.0.6 and later); where it noted nothing it dies. What helps is a
constant that is loaded before: one so long that it lies in the place of the data too (nft takes the constant for the
key), or one for each register but the first in which the data will be.

In the key of a statement that changes an element nft gives the n-th value that it finds the n-th type of the set, and
aborts over a mark of more than 8 bytes (``expr->len / BITS_PER_BYTE <= sizeof(val)``, 1.0.6). A constant that is all of
such a key gets the type of the key (netlink_parse_dynset, later than 1.0.6): of a concatenation, which has no text.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from podgate.targets.nftables.code import (
    Bitwise,
    Code,
    Ct,
    Dispatch,
    Expression,
    Immediate,
    Lookup,
    Meta,
    Payload,
    Register,
    Remember,
)
from podgate.targets.nftables.elements import key_size
from podgate.targets.nftables.state import Set

_WORD: Final = 4
_LONG: Final = {"iifname": 4, "oifname": 4, "original ip6 daddr": 4}
_LONGEST_MARK: Final = 2
_MOST_PARTS: Final = 5


class Width(NamedTuple):
    """How many registers a set's key and a map's data take, and the types of the key's parts."""

    key: int
    data: int = 0
    types: tuple[str, ...] = ()


def widths_of(sets: Iterable[Set]) -> dict[str, Width]:
    """Give the widths of sets and maps by name; ValueError for one of more parts than nft can tell the types of."""
    sets = tuple(sets)
    for declared in sets:
        if max(len(declared.key), len(declared.data)) > _MOST_PARTS:
            raise ValueError(
                f"nft could not list {declared.name}: the number of its type has room for {_MOST_PARTS} parts"
            )
    return {declared.name: Width(_words(declared.key), _words(declared.data), declared.key) for declared in sets}


def _words(types: tuple[str, ...]) -> int:
    return -(-key_size(types) // _WORD) if types and types != ("verdict",) else 0


def check_listable(code: Code, widths: Mapping[str, Width]) -> None:
    """See that nft can list a rule.

    Args:
        code: the rule's code.
        widths: of the table's sets and maps, by name.

    Raises:
        ValueError: it cannot; or the rule names a set that is not there.
    """
    seen: dict[Register, int] = {}  # so many registers of a value; 0 for data of a map
    for each in code:
        for first, count in _keys(each, widths):
            found = _check_key(seen, first, count)
            if isinstance(each, Remember) and first == each.source:
                _check_parts(found, widths[each.name].types)
        if isinstance(each, Bitwise):
            if each.source not in seen:
                raise ValueError(f"nft could not list it: it would find nothing in register {each.source}")
            seen[each.to] = seen[each.source]
        elif isinstance(each, Lookup) and each.to is not None:
            seen[each.to] = 0
        elif hasattr(each, "to") and each.to is not None:
            seen[each.to] = _count(each)


def _check_key(seen: Mapping[Register, int], first: Register, count: int) -> list[int]:
    """See that a key is made of values; give how many registers each of them takes."""
    number = first
    found: list[int] = []
    while number < first + count:
        if not seen.get(number):
            what = "data of a map" if number in seen else "nothing"
            raise ValueError(
                f"nft could not list it: in register {number} of a key from {first} on it would find {what}; "
                "load a constant there before the look-up, long enough to begin the key"
            )
        found.append(seen[number])
        number += seen[number]
    if number != first + count:
        raise ValueError(f"nft could not list it: what it finds in the registers from {first} on is not {count} long")
    return found


def _check_parts(found: Sequence[int], types: Sequence[str]) -> None:
    if len(found) < len(types) and len(found) == 1:
        raise ValueError(
            "nft could not list it: it would take one value for a key of several parts; load it in two or more pieces"
        )
    for words, kind in zip(found, types, strict=False):
        if kind == "mark" and words > _LONGEST_MARK:
            raise ValueError(
                f"nft could not list it: it would show {4 * words} bytes of a key as a mark; "
                "declare the key's part as inet_service, which it shows as a number"
            )


def _keys(each: Expression, widths: Mapping[str, Width]) -> Iterator[tuple[Register, int]]:
    """Give where the keys and data that an expression hands to a set begin, and how many registers they take."""
    if not isinstance(each, Lookup | Dispatch | Remember):
        return
    if each.name not in widths:
        raise ValueError(f"there is no set or map {each.name}")
    yield each.source, widths[each.name].key
    if isinstance(each, Remember) and each.data is not None:
        yield each.data, widths[each.name].data


def _count(each: Expression) -> int:
    """Give how many registers an expression loads."""
    match each:
        case Payload(_, _, length):
            return -(-length // _WORD)
        case Immediate(data):
            return -(-len(data) // _WORD)
        case Meta(key) | Ct(key):
            return _LONG.get(key, 1)
        case _:
            return 1
