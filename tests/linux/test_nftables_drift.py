"""Whose transaction was it, and what did it change: read from notifications as the kernel sends them."""

import struct

import pytest

from podgate.linux.netlink import Message, attribute, text
from podgate.linux.nftables import (
    DEL_ELEMENTS,
    DEL_RULE,
    DEL_TABLE,
    NEW_CHAIN,
    NEW_ELEMENTS,
    NEW_GENERATION,
    NEW_RULE,
    NEW_SET,
    Event,
)
from podgate.linux.nftables_drift import Drift, describe

OWN, NFT, OTHER = 111, 222, 333
IP, IP6 = 2, 10


def about(kind: int, name: str, *, family: int = IP, table: str = "t", port: int = OTHER) -> Message:
    names = text(1, table) + (text(3, name) if kind == NEW_CHAIN else text(2, name) if kind != DEL_TABLE else b"")
    return Message(kind, 0, 0, port, bytes((family, 0, 0, 0)) + names)


def end(generation: int, port: int = OTHER) -> Message:
    return Message(NEW_GENERATION, 0, 0, port, bytes(4) + attribute(1, struct.pack(">I", generation)))


@pytest.fixture
def drift() -> Drift:
    found = Drift(IP, "t")
    found.own_socket(OWN)
    return found


def test_nothing_is_told_before_a_transaction_ends(drift: Drift) -> None:
    assert drift.foreign([about(DEL_RULE, "base")]) == ""
    assert drift.foreign([end(5)]) == "rules deleted from chain base"
    assert drift.foreign([end(6)]) == ""


def test_other_tables_and_families_are_not_ours(drift: Drift) -> None:
    others = [about(DEL_RULE, "base", table="u"), about(DEL_RULE, "base", family=IP6), end(5)]
    assert drift.foreign(others) == ""


def test_what_our_socket_sent_is_ours(drift: Drift) -> None:
    assert drift.foreign([about(NEW_ELEMENTS, "keep", port=OWN), end(5, OWN)]) == ""


def test_an_nft_of_ours_owns_what_it_did_while_it_ran(drift: Drift) -> None:
    run = drift.run_started(NFT, 5)
    assert drift.foreign([about(NEW_RULE, "base", port=NFT), end(6, NFT)]) == ""
    run.last = 7
    assert drift.foreign([about(NEW_RULE, "base", port=NFT), end(7, NFT)]) == ""
    # The process id came round again: an nft of somebody else.
    assert drift.foreign([about(NEW_RULE, "base", port=NFT), end(8, NFT)]) == "rules added to chain base"
    assert drift.foreign([about(NEW_RULE, "base", port=NFT), end(5, NFT)]) == "rules added to chain base"


def test_foreign_transactions_between_our_own_are_told_together(drift: Drift) -> None:
    found = drift.foreign(
        [
            about(DEL_ELEMENTS, "keep"),
            about(DEL_ELEMENTS, "keep"),
            end(5),
            about(NEW_ELEMENTS, "keep", port=OWN),
            end(6, OWN),
            about(NEW_CHAIN, "extra"),
            end(7),
        ]
    )
    assert found == "elements deleted from set keep, chain extra added or changed"


def test_of_many_elements_each_set_is_told_once_and_others_families_are_not(drift: Drift) -> None:
    sets = ("keep", "kept", "keep", "keep", "else")
    found = [about(DEL_ELEMENTS, each) for each in sets]
    found += [
        about(NEW_ELEMENTS, "else"),
        about(DEL_ELEMENTS, "ours", family=IP6),
        about(DEL_ELEMENTS, "ours", table="u"),
    ]
    told = "elements deleted from set keep, elements deleted from set kept, elements deleted from set else"
    for generation in (5, 6):
        assert drift.foreign([*found, end(generation)]) == f"{told}, elements added to set else"
    assert drift.foreign([about(NEW_ELEMENTS, "else", port=OWN), end(7, OWN)]) == ""
    assert drift.foreign([about(NEW_ELEMENTS, "else"), end(8)]) == "elements added to set else"


def test_a_transaction_whose_end_was_lost_is_forgotten(drift: Drift) -> None:
    assert drift.foreign([about(DEL_RULE, "base")]) == ""
    drift.lost()
    assert drift.foreign([end(9)]) == ""


def many(kind: int = DEL_RULE, port: int = OTHER) -> list[Message]:
    return [about(kind, f"chain-{number}", port=port) for number in range(300)]


def test_a_large_transaction_of_others_is_told_once_before_its_end(drift: Drift) -> None:
    first = drift.foreign(many())
    assert first.startswith("rules deleted from chain chain-0, ")
    assert drift.foreign([*many(), about(DEL_TABLE, ""), end(5)]) == ""
    assert drift.foreign([about(DEL_RULE, "base"), end(6)]) == "rules deleted from chain base"


def test_a_large_transaction_of_one_of_us_is_told_by_its_end_alone(drift: Drift) -> None:
    drift.run_started(NFT, 5)
    for port in (OWN, NFT):
        assert drift.foreign(many(port=port)) == ""
        assert drift.foreign([end(6, port)]) == ""
    # The process id came round again.
    assert drift.foreign(many(port=NFT)) == ""
    assert drift.foreign([end(5, NFT)]).startswith("rules deleted from chain chain-0, ")


def test_rules_that_a_large_transaction_adds_are_all_known_before_its_last_telling() -> None:
    added: list[str] = []
    drift = Drift(IP, "t", rule_added=added.append)
    assert drift.foreign(many())
    assert added == []
    assert drift.foreign([about(NEW_RULE, "base"), about(DEL_RULE, "base")]) == ""
    assert drift.foreign([end(5)]) == "rules added to chain base"
    assert added == ["base"]


def test_of_many_rules_each_chain_is_told_once(drift: Drift) -> None:
    found = [about(DEL_RULE, each) for each in ("a", "a", "b", "a")] + [about(NEW_RULE, "a")]
    told = "rules deleted from chain a, rules deleted from chain b, rules added to chain a"
    assert drift.foreign([*found, end(5)]) == told


def test_what_a_rule_brings_along_is_not_told(drift: Drift) -> None:
    found = [about(NEW_SET, "__set0"), about(NEW_ELEMENTS, "__set0"), about(NEW_RULE, "base"), end(5)]
    assert drift.foreign(found) == "rules added to chain base"


def test_a_deleted_table_says_it_all() -> None:
    assert describe([Event(False, "rule", "base"), Event(False, "table", "t")]) == "the table was deleted"


def test_many_changes_are_cut_short() -> None:
    told = describe(Event(True, "set", f"set{number}") for number in range(7))
    assert told.endswith("set set3 added or changed, and 3 more changes")
