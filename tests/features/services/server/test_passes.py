"""What passes over rules did, by kube-proxy's names."""

import asyncio
from collections.abc import Mapping
from contextlib import closing
from functools import partial

import pytest

from podgate.features.services.iptables_names import NAMES
from podgate.features.services.server.passes import Passes
from podgate.model.table import Table
from podgate.targets.iptables.apply import IptablesTarget
from podgate.targets.iptables.state import State
from tests.support.netns import netns

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


LAST = ("iptables_last", "IPv4", "nat")


def test_what_a_pass_wrote_is_told_once_it_has_committed_and_one_that_writes_nothing_wrote_none() -> None:
    passes = Passes("iptables")
    passes.wrote("ip", "nat", 7)
    assert LAST not in told(passes), "nothing is known before the first"
    passes.committed("ip", "nat")
    assert told(passes)[LAST] == 7
    passes.wrote("ip", "nat", 2)
    assert told(passes)[LAST] == 7, "it has not committed yet"
    passes.committed("ip", "nat")
    assert told(passes)[LAST] == 2
    passes.committed("ip", "nat")
    assert told(passes)[LAST] == 0
    passes.committed("ip6", "mangle")
    assert [labels for name, *labels in told(passes) if name == "iptables_last"] == [["IPv4", "nat"]], (
        "there is nothing but the canary"
    )


@pytest.mark.kernel
def test_rules_are_counted_where_they_are_written() -> None:
    passes = Passes("iptables")
    target = IptablesTarget(
        "ip", "nft", (), table="nat", names=NAMES["nat"], tells=False, wrote=partial(passes.wrote, "ip", "nat")
    )
    nothing = State("ip", "nft", table="nat")
    chains = {"KUBE-SVC-A": ("-j KUBE-SEP-A", "-j KUBE-SEP-A"), "KUBE-SEP-A": ("-j RETURN",)}
    plan = target.diff(nothing, State("ip", "nft", table="nat", named=Table.of(chains)))
    passes.committed("ip", "nat")
    assert told(passes)[LAST] == 0, "to plan is not to write"
    with netns() as namespace, closing(target):
        namespace.call(lambda: asyncio.run(target.apply(plan)))
    passes.committed("ip", "nat")
    assert told(passes)[LAST] == plan.rules_written == 3
