"""What iptables shows of the chains of Services is word for word what was written, by either program and family."""

import asyncio
from collections.abc import Mapping

import pytest

from podgate.features.services.addresses import packed
from podgate.features.services.intent import (
    FamilyIntent,
    Guard,
    HealthCheck,
    Intent,
    LocalTraffic,
    NodeWide,
    Protocol,
    ServicePort,
)
from podgate.features.services.iptables_names import NAMES, TABLES
from podgate.features.services.to_iptables import Writer
from podgate.model.frozen import ObjectRef
from podgate.model.machine import Family
from podgate.model.table import Table
from podgate.targets.iptables.apply import IptablesTarget
from podgate.targets.iptables.state import Binary, State, TableName
from tests.support.netns import NetNamespace

pytestmark = pytest.mark.kernel

PREFIX: Mapping[Family, str] = {"ip": "10.0.0.", "ip6": "fd00::"}


def address(family: Family, number: int) -> bytes:
    found = packed(f"{PREFIX[family]}{number}")
    assert found is not None
    return found


def endpoints(family: Family, *numbers: int) -> tuple[bytes, ...]:
    return tuple(address(family, number) + (8080).to_bytes(2) for number in numbers)


def everything(family: Family, local: LocalTraffic, *, localhost: bool) -> Intent:
    """Give Services of every kind: each word that rules can hold is in one of them."""
    three, here, outer = endpoints(family, 11, 12, 13), endpoints(family, 11), address(family, 99)
    own = (address(family, 11),)
    whole = (address(family, 0), address(family, 9))

    def port(name: str, number: int, protocol: Protocol = "tcp", **more: object) -> ServicePort:
        given = {"cluster": three, "own": own, "anywhere": True, **more}
        return ServicePort(name, protocol, number, address(family, 1), **given)  # type: ignore[arg-type]

    ports = (
        port("shop/web:http", 80, node_port=30080, external=(outer,)),
        port("shop/web:sctp", 81, "sctp", sticky=60),
        port('a "quoted" name', 82, "udp", local=here, external_local=True, external=(outer,), node_port=30082),
        port("shop/guarded:http", 83, external=(outer,), guard=Guard((outer,), (whole,))),
        port("shop/none:http", 84, cluster=(), anywhere=False, external=(outer,), node_port=30084),
        port("shop/none:guarded", 85, cluster=(), external=(outer,), guard=Guard((outer,), (whole,)), anywhere=False),
        port("shop/here:http", 86, local=here, internal_local=True, cluster=()),
        port("shop/elsewhere:http", 87, internal_local=True, external_local=True, node_port=30087),
    )
    node = NodeWide(local, node_port_ips=None if localhost else (address(family, 2),), localhost=localhost)
    part = FamilyIntent(family, node, Table.of({ObjectRef("Service", "web", "shop"): ports}))
    checks = Table.of({32000: HealthCheck("shop", "web", 1, 1)})
    return Intent(part if family == "ip" else None, part if family == "ip6" else None, checks)


def ranges(family: Family) -> LocalTraffic:
    return LocalTraffic(("10.0.0.0/8" if family == "ip" else "fd00::/16",))


def written(
    family: Family, binary: Binary, wanted: Mapping[TableName, State], namespace: NetNamespace
) -> dict[TableName, State]:
    """Write it, and give what is there then."""

    async def run() -> dict[TableName, State]:
        found: dict[TableName, State] = {}
        for table in TABLES:
            target = IptablesTarget(family, binary, (), table=table, names=NAMES[table], namespace=namespace.descriptor)
            try:
                await target.apply(target.diff(await target.read(), wanted[table]))
                found[table] = await target.read()
                assert not target.diff(found[table], wanted[table])
            finally:
                target.close()
        return found

    return asyncio.run(run())


@pytest.mark.parametrize("localhost", [False, True], ids=["ranges", "bridge and localhost"])
@pytest.mark.parametrize("binary", ["nft", "legacy"])
@pytest.mark.parametrize("family", ["ip", "ip6"])
def test_words_come_back_as_they_were_written(
    family: Family, binary: Binary, localhost: bool, namespace: NetNamespace
) -> None:
    local = LocalTraffic(interface="veth*") if localhost else ranges(family)
    wanted = Writer(family, binary)(everything(family, local, localhost=localhost))
    found = written(family, binary, wanted, namespace)
    for table in TABLES:
        assert dict(found[table].named) == dict(wanted[table].named)
        assert len(found[table].placed) == len(wanted[table].placed)
    nothing = {table: State(family, binary, table=table) for table in TABLES}
    left = written(family, binary, nothing, namespace)
    assert not any(state.named or state.placed for state in left.values())
