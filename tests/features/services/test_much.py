"""What a log says when thousands of Services are written at once: how much, and never all of it."""

from collections.abc import Iterator
from functools import cache

import pytest

from podgate.engine.reconcile import MOST_SHOWN
from podgate.features.services.backends import Choice, States, StatesWriter
from podgate.features.services.intent import FamilyIntent, Intent, ServicePort
from podgate.features.services.settings import Settings
from podgate.model.frozen import ObjectRef
from podgate.model.table import Table
from podgate.targets.iptables.diff import diff as iptables_diff
from podgate.targets.iptables.state import State as IptablesState
from podgate.targets.nftables.diff import diff as nftables_diff
from podgate.targets.nftables.state import State as NftablesState

MANY = 2_000


def ports(count: int) -> Iterator[tuple[ObjectRef, tuple[ServicePort, ...]]]:
    for number in range(count):
        ip, pods = b"\x0a\x60" + number.to_bytes(2, "big"), b"\x0a\x01" + number.to_bytes(2, "big")
        endpoints = (pods + b"\x00\x50", pods + b"\x00\x51")
        port = ServicePort(f"shop/web-{number}:http", "tcp", 80, ip, cluster=endpoints, anywhere=True)
        yield ObjectRef("Service", f"web-{number}", "shop"), (port,)


@cache
def written(backend: str, count: int) -> States:
    settings = Settings(backend="nftables" if backend == "nftables" else "iptables")
    choice = Choice() if backend == "nftables" else Choice("nft", "v1.8.9")
    return StatesWriter(settings, choice)(Intent(FamilyIntent("ip", ports=Table.of(dict(ports(count))))))


LOADS = {
    "a start": (
        0,
        "table ip podgate-services: it does not exist: written 4",
        f"{4 * MANY + 64} elements; removed nothing",
    ),
    "all at once": (1, "table ip podgate-services: written ", f"{4 * (MANY - 1)} elements; removed nothing"),
}


@pytest.mark.parametrize(("before", "begins", "ends"), LOADS.values(), ids=LOADS)
def test_a_load_of_nftables_is_one_line_with_counts(before: int, begins: str, ends: str) -> None:
    have = written("nftables", before).ip if before else NftablesState.absent("ip", "podgate-services")
    line = nftables_diff(have, written("nftables", MANY).ip).brief()
    assert (line[: len(begins)], line[-len(ends) :]) == (begins, ends)
    assert len(line) < MOST_SHOWN


IPTABLES = {
    "iptables-nft/ip/nat": f"written {3 * MANY + 5} chains, {5 * MANY + 8} rules; removed nothing",
    "iptables-nft/ip/filter": "written 6 chains, 12 rules; removed nothing",
}


def test_a_load_of_iptables_is_one_line_with_counts() -> None:
    for name, expected in IPTABLES.items():
        state = written("nft", MANY).iptables[name]
        assert (
            iptables_diff(IptablesState("ip", "nft", table=state.table), state).brief()
            == f"table {state.table} (iptables-nft): {expected}"
        )
