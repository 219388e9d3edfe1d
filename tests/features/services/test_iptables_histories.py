"""Whatever happens to Services, chains end as a fresh start writes them, and a change writes what it touches alone."""

import asyncio
from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from podgate.commandline.options import settings_from
from podgate.features.services.compile import Compiler
from podgate.features.services.intent import Intent
from podgate.features.services.iptables_names import NAMES, TABLES
from podgate.features.services.settings import Settings
from podgate.features.services.to_iptables import MANY_ENDPOINTS, Writer
from podgate.targets.iptables.fake import FakeIptables
from podgate.targets.iptables.state import Rule, State, TableName
from tests.features.services.flows import FAKE
from tests.features.services.test_same_answer import objects, services
from tests.features.services.test_to_iptables import fakes
from tests.support.service_inputs import inputs_of, machine_of, node_object

WORLD = FAKE["ip"]
SETTINGS = settings_from(
    Settings, {"backend": "iptables", "node_name": "node-1", "cluster_cidr": WORLD["cluster-cidr"]}
)
NODE = node_object("node-1", WORLD["node"])
OTHERS = """\
:KUBE-IPTABLES-HINT - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
:KUBE-FIREWALL - [0:0]
-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
"""

Found = list[dict[str, Any]]
Chains = Mapping[TableName, Mapping[str, tuple[Rule, ...]]]


class Node:
    """A node whose agent never stops, beside a kubelet's chains."""

    def __init__(self) -> None:
        self.compile = Compiler(SETTINGS, lambda intent: intent)
        self.writer = Writer("ip", "nft")
        self.held = fakes("ip")
        for table, fake in self.held.items():
            fake.restore(f"*{table}\n{OTHERS}COMMIT\n")
        self.have = {table: State("ip", "nft", table=table) for table in TABLES}

    def serve(self, made: Found) -> dict[TableName, State]:
        """Serve some objects; the agent compares what it wants with what it wrote last."""
        wanted = self.writer(self.intent(made))
        asyncio.run(self._apply(wanted))
        self.have = dict(wanted)
        return self.have

    def intent(self, made: Found) -> Intent:
        machine = machine_of(WORLD["node"] + "/24", WORLD["node-second"] + "/24")
        return self.compile(inputs_of([NODE, *made], SETTINGS, machine)).states

    async def _apply(self, wanted: Mapping[TableName, State]) -> None:
        for table, fake in self.held.items():
            plan = fake.diff(self.have[table], wanted[table])
            if plan:
                await fake.apply(plan)

    @property
    def chains(self) -> Chains:
        return {table: fake.chains for table, fake in self.held.items()}


def made_of(found: list[dict[str, Any]]) -> Found:
    return [each for index, service in enumerate(found, 1) for each in objects(index, service)]


@given(st.lists(st.lists(services, max_size=2), min_size=1, max_size=5))
def test_any_history_ends_where_a_fresh_start_does(history: list[list[dict[str, Any]]]) -> None:
    node = Node()
    for found in history:
        node.serve(made_of(found))
        fresh = Node()
        fresh.serve(made_of(found))
        assert node.chains == fresh.chains


@given(st.lists(services, max_size=2))
def test_taking_everything_away_leaves_what_others_have(found: list[dict[str, Any]]) -> None:
    node, bare = Node(), Node()
    node.serve(made_of(found))

    async def clean(table: TableName, fake: FakeIptables) -> None:
        await fake.apply(fake.diff(await fake.read(), State("ip", "nft", table=table)))

    for table, fake in node.held.items():
        asyncio.run(clean(table, fake))
    assert node.chains == bare.chains
    assert "KUBE-FIREWALL" in node.chains["filter"]


def service(index: int, *endpoints: str) -> Found:
    return objects(
        index,
        {
            "external": [],
            "balancers": [],
            "ranges": [],
            "ports": [("TCP", 80, 0)],
            "outside": "Cluster",
            "inside": "Cluster",
            "endpoints": [(place, True, False, []) for place in endpoints],
        },
    )


def written(node: Node, made: Found) -> dict[TableName, set[str]]:
    """Serve some objects, and give the chains that this wrote, by their kind."""
    before = {table: len(fake.restored) for table, fake in node.held.items()}
    node.serve(made)
    lines = {
        table: [line for text in fake.restored[before[table] :] for line in text.splitlines()]
        for table, fake in node.held.items()
    }
    return {
        table: {line[1:].partition(" ")[0][:9] for line in found if line.startswith(":")}
        for table, found in lines.items()
        if found
    }


def test_one_endpoint_writes_two_chains_of_its_own_service() -> None:
    node = Node()
    node.serve([*service(1, "local-1"), *service(2, "local-2")])
    assert written(node, [*service(1, "local-1", "remote-1"), *service(2, "local-2")]) == {
        "nat": {"KUBE-SVC-", "KUBE-SEP-"}
    }
    assert written(node, [*service(1, "local-1", "remote-1"), *service(2, "local-2")]) == {}


def test_the_last_endpoint_that_goes_writes_the_chains_of_all() -> None:
    node = Node()
    node.serve([*service(1, "local-1"), *service(2, "local-2")])
    assert written(node, [*service(1), *service(2, "local-2")]) == {"filter": {"KUBE-SERV"}, "nat": {"KUBE-SERV"}}
    assert not any(name.startswith("KUBE-SEP") and "10.180.0.1" in str(rules) for name, rules in named(node).items())


def named(node: Node) -> Mapping[str, tuple[Rule, ...]]:
    return {name: rules for name, rules in node.chains["nat"].items() if name in NAMES["nat"]}


def test_a_large_cluster_has_no_comments_on_rules_of_services() -> None:
    def comments(count: int) -> int:
        many = [{"addresses": [f"10.181.{index >> 8}.{index & 255}"]} for index in range(count)]
        service_object, slice_object = service(1)
        node = Node()
        node.serve([service_object, {**slice_object, "endpoints": many}])
        return sum(bool(rule.comment) for name, rules in named(node).items() for rule in rules if name != POSTROUTING)

    assert comments(MANY_ENDPOINTS) > MANY_ENDPOINTS
    assert comments(MANY_ENDPOINTS + 1) == 0


POSTROUTING = "KUBE-POSTROUTING"
