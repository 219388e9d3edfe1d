"""Code that nft could not list is refused before the kernel gets it: nft would abort, or die.

Keys of the data of maps, and of registers that nft saw nothing in, were tried by hand: nft 1.0.6 ends by a signal.
"""

import asyncio

import msgspec
import pytest

from podgate.targets.nftables.code import (
    Bitwise,
    Code,
    Compare,
    Ct,
    Dispatch,
    Immediate,
    Lookup,
    Meta,
    Payload,
    Random,
    Remember,
    Translate,
)
from podgate.targets.nftables.fake import FakeNftables
from podgate.targets.nftables.listable import Width, check_listable, widths_of
from podgate.targets.nftables.state import Chain, Rule, Set
from tests.support.nftables_code import balancing, endpoint, service

WIDTHS = {
    "services": Width(3, 1),
    "pairs": Width(3, 2),
    "slots": Width(4, 2),
    "counts": Width(1),
    "flagged": Width(2),
    "flags": Width(2, 0, ("mark", "mark")),
    "clients": Width(1, 2),
    "six": Width(5),
    "marked": Width(5, 2, ("mark", "ipv4_addr", "inet_proto", "inet_service", "ipv4_addr")),
    "numbered": Width(5, 2, ("inet_service", "ipv4_addr", "inet_proto", "inet_service", "ipv4_addr")),
}
KEY = (Payload("network", 16, 4, 0), Meta("l4proto", 1), Payload("transport", 2, 2, 2))
CLIENT = Payload("network", 12, 4, 8)
ONES, ZERO = b"\xff" * 4, bytes(4)

PASSES: dict[str, Code] = {
    "a key as it was loaded": (*KEY, Lookup("services", 0, 3)),
    "the data of a map in a translation": (*KEY, Random(2, 3), Lookup("slots", 0, 4), Translate("ip", 4, 5)),
    "the data of a map in a comparison": (*KEY, Lookup("services", 0, 3), Compare(3, ZERO)),
    "a constant that begins the key and lies over the data": (
        *(Immediate(bytes(8), 4), *KEY, Lookup("services", 0, 5), Dispatch("flagged", 4)),
    ),
    "a constant in the place of the second word": (
        *(*KEY, Immediate(ZERO, 5), Lookup("pairs", 0, 4), Dispatch("counts", 5)),
    ),
    "an address of IPv6": (Payload("network", 8, 16, 0), Payload("transport", 2, 2, 4), Lookup("six", 0)),
    "a value that was masked": (Meta("mark", 0), Bitwise(0, ONES, ZERO, 0), Dispatch("counts", 0)),
    "what connection tracking knows": (Ct("original ip6 daddr", 0), Ct("original proto-dst", 4), Lookup("six", 0)),
    "a long constant in front of what was looked up, in the key of a client": (
        *(*KEY, Immediate(bytes(16), 4), Lookup("services", 0, 5), CLIENT, Immediate(bytes(8), 9)),
        Remember("numbered", "update", 4, 60, 9),
    ),
    "the same in the key of a set that is only looked into": (
        *(*KEY, Immediate(bytes(16), 4), Lookup("services", 0, 5), CLIENT, Lookup("marked", 4)),
    ),
}


@pytest.mark.parametrize("code", PASSES.values(), ids=PASSES)
def test_what_nft_lists_passes(code: Code) -> None:
    check_listable(code, WIDTHS)


REFUSED: dict[str, tuple[Code, str]] = {
    "a long constant that it would show as a mark": (
        (
            *(*KEY, Immediate(bytes(16), 4), Lookup("services", 0, 5), CLIENT, Immediate(bytes(8), 9)),
            Remember("marked", "update", 4, 60, 9),
        ),
        "it would show 16 bytes of a key as a mark; declare the key's part as inet_service",
    ),
    "a constant that is all of the key of an element": (
        (Immediate(bytes(8), 4), Remember("flags", "add", 4)),
        "it would take one value for a key of several parts; load it in two or more pieces",
    ),
    "the data of a map as a key": (
        (*KEY, Lookup("services", 0, 3), Dispatch("counts", 3)),
        "in register 3 of a key from 3 on it would find data of a map; load a constant there before",
    ),
    "masked data of a map as a key": (
        (*KEY, Lookup("services", 0, 3), Bitwise(3, ONES, ZERO, 4), Dispatch("counts", 4)),
        "in register 4 of a key from 4 on it would find data of a map",
    ),
    "the data of a map within a key": (
        (*KEY, Lookup("services", 0, 3), Lookup("slots", 0, 4)),
        "in register 3 of a key from 0 on it would find data of a map",
    ),
    "the second word of data": (
        (*KEY, Lookup("pairs", 0, 4), Dispatch("counts", 5)),
        "in register 5 of a key from 5 on it would find nothing",
    ),
    "data of a map as data of another": (
        (*KEY, Random(2, 3), Lookup("slots", 0, 4), Payload("network", 12, 4, 8), Remember("clients", "add", 8, 0, 4)),
        "in register 4 of a key from 4 on it would find data of a map",
    ),
    "a mask over nothing": ((Bitwise(5, ONES, ZERO, 0),), "it would find nothing in register 5"),
    "a value that is longer than the key": (
        (Payload("network", 8, 16, 0), Dispatch("counts", 0)),
        "what it finds in the registers from 0 on is not 1 long",
    ),
    "a set that is not there": ((*KEY, Lookup("other", 0)), "there is no set or map other"),
}


@pytest.mark.parametrize(("code", "message"), REFUSED.values(), ids=REFUSED)
def test_what_nft_would_stumble_over_is_refused(code: Code, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_listable(code, WIDTHS)


SIX = ("mark",) * 6


@pytest.mark.parametrize("wide", [Set("wide", SIX), Set("wide", ("mark",), data=SIX)], ids=["key", "data"])
def test_a_set_of_more_parts_than_nft_has_types_for_is_refused(wide: Set) -> None:
    with pytest.raises(ValueError, match="nft could not list wide: the number of its type has room for 5 parts"):
        widths_of([wide])


def test_the_fake_refuses_it_too() -> None:
    """So that a writer's own tests show it."""
    state = balancing({service("10.96.0.1"): (endpoint("10.0.0.1"),)})
    odd = Chain("odd", (Rule("odd", "why", (*KEY, Lookup("services", 0, 3), Lookup("slots", 0, 4))),))
    want = msgspec.structs.replace(state, chains=(*state.chains, odd))
    fake = FakeNftables("ip", want.name)
    with pytest.raises(ValueError, match="nft could not list it"):
        asyncio.run(fake.apply(fake.diff(fake.state, want)))
