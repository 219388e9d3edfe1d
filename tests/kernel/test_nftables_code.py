"""Tables whose rules are code, against the real kernel: written over netlink, read back, listed by nft."""

import asyncio
import sys

import pytest

from podgate.model.table import Table
from podgate.targets.nftables.code import Dispatch, Immediate, Lookup, Masquerading, Meta, Payload, Random, Translate
from podgate.targets.nftables.state import (
    DSTNAT,
    SRCNAT,
    Chain,
    Hook,
    Rule,
    Set,
    State,
    concatenation,
    port,
    protocol,
)
from tests.support.netns import NetNamespace
from tests.support.nftables_states import TABLE
from tests.support.nftables_target import OpenTarget

pytestmark = pytest.mark.kernel

ROOM = Immediate(bytes(8), 4)
KEY = (Payload("network", 16, 4, 0), Meta("l4proto", 1), Payload("transport", 2, 2, 2))


def number(value: int) -> bytes:
    return value.to_bytes(4, sys.byteorder)


def balanced() -> State:
    """Give a table that leads one address to one of two endpoints."""
    key = concatenation(bytes((10, 96, 0, 1)), protocol("tcp"), port(80))
    fields = ("ipv4_addr", "inet_proto", "inet_service")
    slots = {key + number(n): concatenation(bytes((10, 0, 0, n + 1)), port(8080)) for n in range(2)}
    return State(
        "ip",
        TABLE,
        comment="a legend",
        chains=(
            Chain(
                "prerouting",
                (Rule("to its number", "of endpoints", (*KEY, ROOM, Lookup("services", 0, 5), Dispatch("counts", 4))),),
                Hook("nat", "prerouting", DSTNAT),
            ),
            Chain("two", (Rule("one", "of two", (*KEY, Random(2, 3), Lookup("slots", 0, 4), Translate("ip", 4, 5))),)),
            Chain("postrouting", (Rule("all", "masq", (Masquerading(),)),), Hook("nat", "postrouting", SRCNAT)),
        ),
        sets=(
            Set("services", fields, data=("mark",), comment="how many endpoints"),
            Set("slots", (*fields, "mark"), data=("ipv4_addr", "inet_service")),
            Set("counts", ("mark", "mark"), data=("verdict",)),
        ),
        elements={
            "services": Table.of({key: number(2)}),
            "slots": Table.of(slots),
            "counts": Table.of({number(0) + number(2): "goto two"}),
        },
        last=("services",),
    )


def test_a_table_is_written_and_read_back_without_nft(namespace: NetNamespace, open_target: OpenTarget) -> None:
    async def run() -> None:
        target = open_target(namespace, program="nft-that-is-missing")
        want = balanced()
        await target.apply(target.diff(await target.read(), want))
        found = await target.read()
        assert not target.diff(found, want), str(target.diff(found, want))
        assert found.elements == want.elements
        await target.apply(target.diff(found, State.absent("ip", TABLE)))

    asyncio.run(run())
