"""What passes over rules did, by kube-proxy's names."""

from collections.abc import Mapping

from podgate.features.services.iptables_names import NAMES
from podgate.features.services.server.passes import CountedIptables, Passes
from podgate.model.table import Table
from podgate.targets.iptables.state import State

RULES = "kubeproxy_sync_proxy_rules"


def told(passes: Passes) -> Mapping[tuple[str, ...], float]:
    return {
        (each.name.removeprefix(f"{RULES}_"), *(value for _, value in each.labels)): each.value
        for each in passes.readings()
        if isinstance(each.value, int | float)
    }


def test_failures_are_told_from_the_start_of_the_back_end_that_is_chosen() -> None:
    for backend, name in {"iptables": "iptables_partial_restore", "nftables": "nftables_cleanup"}.items():
        passes = Passes(backend)
        assert told(passes) == {(f"{name}_failures_total", "IPv4"): 0, (f"{name}_failures_total", "IPv6"): 0}
        for whole in (True, False, False):
            passes.failed("ip6", whole=whole)
        assert told(passes) == {(f"{name}_failures_total", "IPv4"): 0, (f"{name}_failures_total", "IPv6"): 2}


def test_a_pass_tells_how_many_rules_it_wrote_and_one_without_a_difference_none() -> None:
    passes = Passes("iptables")
    target = CountedIptables(
        passes, "ip", "nft", table="nat", names=NAMES["nat"], tells=False, seconds=1.0, buffer_bytes=4096
    )
    last = ("iptables_last", "IPv4", "nat")
    assert last not in told(passes), "nothing is known before the first"
    have = State("ip", "nft", table="nat", named=Table.of({"KUBE-SVC-A": ("-j KUBE-SEP-A", "-j KUBE-SEP-B")}))
    passes.wrote("ip", "nat", 7)
    assert target.diff(State("ip", "nft", table="nat"), have).rules_written == 2
    assert told(passes)[last] == 7, "it is not written yet"
    target.diff(have, have)
    assert told(passes)[last] == 0
