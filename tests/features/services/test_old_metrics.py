"""kube-proxy's metrics by their names, from our own and from what is in force."""

from podgate.features.services.intent import FamilyIntent, Intent, ServicePort
from podgate.features.services.old_metrics import IptablesRules, WithoutLocal, failures
from podgate.model.frozen import ObjectRef
from podgate.model.table import Table
from podgate.observe.metrics import Measured
from podgate.targets.iptables.state import State as IptablesState


def passes(step: str, count: float, result: str = "failure") -> Measured:
    return Measured("podgate_services_sync_total", count, (("step", step), ("result", result)), "counter")


OURS = (
    passes("nftables/ip6", 7.0),
    passes("nftables/ip6", 9.0, "success"),
    passes("iptables-nft/ip/nat", 1.0),
    passes("iptables-nft/ip/filter", 2.0),
    passes("listeners", 5.0),
    Measured("podgate_services_ready", 1.0),
)

FAILED = {
    "nftables": ("kubeproxy_sync_proxy_rules_nftables_sync_failures_total", {"IPv4": 0, "IPv6": 7}),
    "iptables": ("kubeproxy_sync_proxy_rules_iptables_restore_failures_total", {"IPv4": 3, "IPv6": 0}),
}


def test_failed_passes_are_those_of_the_back_end_that_is_chosen_by_family() -> None:
    for backend, (name, counts) in FAILED.items():
        found = [(each.name, dict(each.labels)["ip_family"], each.value) for each in failures(OURS, backend)]
        assert found == [(name, family, count) for family, count in counts.items()]


def port(**more: bool) -> ServicePort:
    fields = {"anywhere": True, "local": (b"\x0a\x00\x00\x01\x00\x50",) if more.pop("here", False) else ()}
    return ServicePort("shop/web:http", "tcp", 80, b"\x0a\x60\x00\x0a", **{**fields, **more})  # type: ignore[arg-type]


LONELY: dict[str, tuple[tuple[ServicePort, ...], tuple[int, int]]] = {
    "no policy": ((port(),), (0, 0)),
    "an endpoint here": ((port(internal_local=True, external_local=True, here=True),), (0, 0)),
    "no endpoint at all": ((port(internal_local=True, anywhere=False),), (0, 0)),
    "internal": ((port(internal_local=True),), (1, 0)),
    "both": ((port(internal_local=True, external_local=True),), (1, 1)),
    "one Service counts once": ((port(external_local=True), port(external_local=True)), (0, 1)),
}


def test_a_service_counts_whose_policy_finds_no_endpoint_here_while_there_are_some() -> None:
    count = WithoutLocal()  # one for all: a Service that changes is counted anew
    for name, (ports, expected) in LONELY.items():
        intent = Intent(FamilyIntent("ip", ports=Table.of({ObjectRef("Service", "web", "shop"): ports})))
        found = [each.value for each in count(intent) if ("ip_family", "IPv4") in each.labels]
        assert tuple(found) == expected, name


def test_rules_of_iptables_are_counted_by_family_and_table() -> None:
    count = IptablesRules()
    chains = Table.of({"KUBE-SVC-A": ("-j KUBE-SEP-A", "-j KUBE-SEP-B"), "KUBE-SEP-A": ("-j DNAT",), "KUBE-EMPTY": ()})
    for named, total in ((chains, 3), (chains.updated({"KUBE-SVC-A": ("-j KUBE-SEP-A",)}), 2), (Table(), 0)):
        (found,) = count({"step": IptablesState("ip6", "nft", table="nat", named=named)})
        assert found.name == "kubeproxy_sync_proxy_rules_iptables_total"
        assert (found.value, dict(found.labels)) == (total, {"ip_family": "IPv6", "table": "nat"})
