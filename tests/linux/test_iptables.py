"""Which tables of iptables-legacy are in use, and which program a node's kubelet uses, in network namespaces."""

import pytest

from podgate.linux.iptables import hinted_binary, legacy_tables
from tests.support.netns import NetNamespace, netns
from tests.support.nobody import as_nobody

pytestmark = pytest.mark.kernel

NFT, LEGACY = "iptables-nft", "iptables-legacy"
NODES = {
    "nothing": ([], None),
    "a hint in nf_tables": ([(NFT, "KUBE-IPTABLES-HINT")], "nft"),
    "a hint in the old tables": ([(LEGACY, "KUBE-IPTABLES-HINT")], "legacy"),
    "an older kubelet's chain": ([(LEGACY, "KUBE-KUBELET-CANARY")], "legacy"),
    "a hint for IPv6 only": ([("ip6tables-legacy", "KUBE-IPTABLES-HINT")], "legacy"),
    "hints in both": ([(LEGACY, "KUBE-IPTABLES-HINT"), ("ip6tables-nft", "KUBE-KUBELET-CANARY")], "nft"),
    "chains of somebody else": ([(LEGACY, "KUBE-SERVICES")], None),
}


@pytest.mark.parametrize("node", NODES)
def test_the_program_of_a_node(node: str) -> None:
    chains, binary = NODES[node]
    with netns() as namespace:
        for program, chain in chains:
            namespace.run(program, "-t", "mangle", "-N", chain)
        assert namespace.call(hinted_binary) == binary


def test_who_may_not_look_finds_no_hint() -> None:
    with netns() as namespace:
        namespace.run(LEGACY, "-t", "mangle", "-N", "KUBE-IPTABLES-HINT")
        assert namespace.call(lambda: as_nobody(hinted_binary)) == "None"


def tables_of(namespace: NetNamespace, family: str) -> frozenset[str]:
    return namespace.call(lambda: legacy_tables(family))


def test_only_tables_that_were_used_are_there_and_asking_makes_none() -> None:
    with netns() as namespace:
        assert tables_of(namespace, "ip") == frozenset()
        namespace.call(hinted_binary)
        assert tables_of(namespace, "ip") == frozenset()
        namespace.run(LEGACY, "-t", "nat", "-L", "-n")
        assert tables_of(namespace, "ip") == {"nat"}
        assert tables_of(namespace, "ip6") == frozenset()
