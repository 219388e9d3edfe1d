"""Taking our table away beside another proxy's, as ``clean`` does after a way back: no connection notices.

Here: the table of services, again and again, and many connections. Not here: kube-proxy itself, the verb
(tests/cluster/test_services_takeover.py).
Invariant: the other proxy's rules are in force all the time, so that whatever is refused ours refused.
"""

import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from podgate.features.services.addresses import packed
from podgate.features.services.intent import FamilyIntent, LocalTraffic, NodeWide, ServicePort
from podgate.features.services.to_nftables import Writer
from podgate.model.frozen import ObjectRef
from podgate.model.table import Table
from podgate.targets.nftables.apply import NftablesTarget
from podgate.targets.nftables.state import State
from tests.support.service_flows import THIS, WORLDS, flow_lab, place
from tests.support.service_lab import ServiceLab

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

WORLD: Final = WORLDS["ip"]
ADDRESS: Final = WORLD["cluster-ip-1"]
PORT: Final = 8080
TABLE: Final = "podgate-services"
TIMES: Final = 120
"""How often it is made and taken away: without care about every seventh time refuses a connection (measured)."""

OTHER: Final = f"""\
table ip other {{
    chain arriving {{
        type nat hook prerouting priority dstnat
        ip daddr {ADDRESS} tcp dport {PORT} dnat to {WORLD["local-1"]}:{PORT}
    }}
}}
"""
CONNECTS: Final = """
import json, select, socket, struct, sys
print("connecting", flush=True)
seen = {}
while not select.select([sys.stdin], [], [], 0)[0]:
    with socket.socket() as client:
        client.settimeout(20)
        # Reset at the end, so that no port waits for its last packets.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        try:
            client.connect((sys.argv[1], int(sys.argv[2])))
            said = "connected"
        except OSError as error:
            said = str(error)
    seen[said] = seen.get(said, 0) + 1
print(json.dumps(seen))
"""


def wanted() -> State:
    """Give our table, with one Service."""
    own = packed(WORLD["node"])
    ends = [packed(WORLD[end]) for end in ("local-1", "remote-1")]
    endpoints = tuple((end or b"") + PORT.to_bytes(2) for end in ends)
    port = ServicePort("shop/web:http", "tcp", PORT, packed(ADDRESS) or b"", cluster=endpoints, anywhere=True)
    node = NodeWide(LocalTraffic((WORLD["cluster-cidr"],)), node_port_ips=(own or b"",))
    return Writer("ip")(FamilyIntent("ip", node, Table.of({ObjectRef("Service", "web", "shop"): (port,)})), "")


async def come_and_go() -> None:
    """Make our table and take it away, again and again."""
    target, want, absent = NftablesTarget("ip", TABLE), wanted(), State.absent("ip", TABLE)
    for _ in range(TIMES):
        await target.apply(target.diff(absent, want))
        await target.apply(target.diff(want, absent))
    target.close()


@contextmanager
def connecting(lab: ServiceLab, seen: dict[str, int]) -> Iterator[None]:
    """Connect from a Pod as fast as one process can, while the body runs; what came of it is in ``seen`` then."""
    command = (sys.executable, "-c", CONNECTS, ADDRESS, str(PORT))
    with lab.namespace(place("pod")).running(*command, says="connecting") as client:
        yield
        seen.update(json.loads(client.communicate("\n", timeout=60)[0]))


def test_no_connection_is_refused_while_our_table_goes() -> None:
    seen: dict[str, int] = {}
    with flow_lab() as lab:
        lab.run(THIS, "nft", "-f", "-", text=OTHER)
        with connecting(lab, seen):
            lab.namespace(THIS).call(lambda: asyncio.run(come_and_go()))
        assert TABLE not in lab.run(THIS, "nft", "list", "tables")
    assert seen.keys() == {"connected"}
    assert seen["connected"] > TIMES
