"""Chains of another back end go, unless kube-proxy may be at work: then nobody can say whose they are."""

import asyncio
from typing import Any

import pytest

from podgate.engine.reconcile import bring_to
from podgate.features.services.iptables_names import NAMES
from podgate.features.services.server.leftovers import NOTHING, OURS_ALONE, Leftovers, LeftoversTarget
from podgate.features.services.server.proxy_at_work import NAME
from podgate.joints import ApplyError, Step
from podgate.targets.iptables.fake import FakeIptables

KUBE_PROXYS = """\
*nat
:KUBE-SERVICES - [0:0]
:KUBE-SVC-A - [0:0]
:KUBE-SEP-A - [0:0]
:KUBE-MARK-DROP - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
:OTHER - [0:0]
-A KUBE-MARK-DROP -j MARK --set-xmark 0x8000/0x8000
-A KUBE-SERVICES -d 10.96.0.1/32 -j KUBE-SVC-A
-A KUBE-SVC-A -j KUBE-SEP-A
-A KUBE-SEP-A -p tcp -m tcp -j DNAT --to-destination 10.1.0.1:80
-I PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A PREROUTING -j OTHER
COMMIT
"""


class Node:
    """A table with kube-proxy's chains, and whether kube-proxy is at work."""

    def __init__(self, theirs: str = "") -> None:
        self.fake = FakeIptables("ip", "nft", (), names=NAMES["nat"])
        self.fake.restore(KUBE_PROXYS)
        self.theirs = theirs
        self.target = LeftoversTarget(self.fake, self._at_work)  # type: ignore[arg-type]  # does what it is asked
        self.step: Step[Any, Any, Any] = Step("iptables-nft/ip/nat", self.target, lambda _: NOTHING, OURS_ALONE)

    async def _at_work(self) -> str:
        return self.theirs

    @property
    def chains(self) -> set[str]:
        return {name for name in self.fake.chains if name.startswith(("KUBE", "OTHER"))}


OTHERS = {"KUBE-MARK-DROP", "KUBE-KUBELET-CANARY", "OTHER"}


@pytest.mark.parametrize("wanted", [NOTHING, OURS_ALONE], ids=["run", "clean"])
def test_chains_go_and_what_leads_to_them_and_no_others(wanted: Leftovers) -> None:
    node = Node()
    asyncio.run(bring_to(node.step, wanted))
    assert node.chains == OTHERS
    assert [rule.target for rule in node.fake.chains["PREROUTING"]] == [
        rule.target for rule in node.fake.chains["PREROUTING"] if getattr(rule.target, "chain", "") == "OTHER"
    ]
    reads = node.fake.reads
    assert not asyncio.run(bring_to(node.step, wanted))
    assert not asyncio.run(bring_to(node.step, wanted))
    assert node.fake.reads == reads + 1, "what is gone is not looked for again"


def test_while_kube_proxy_is_at_work_they_stay_and_that_is_said() -> None:
    node = Node("process 7 (kube-proxy) runs on this node")
    before = dict(node.fake.chains)
    with pytest.raises(ApplyError, match=r"process 7 .* stop it, and they go"):
        asyncio.run(bring_to(node.step, NOTHING))
    assert node.fake.chains == before
    node.theirs = ""
    assert asyncio.run(bring_to(node.step, NOTHING))
    assert node.chains == OTHERS


def test_it_may_start_while_they_are_about_to_go() -> None:
    async def started_in_between() -> dict[object, str]:
        node = Node()
        plan = node.target.diff(await node.target.read(), NOTHING)
        assert plan
        node.theirs = "somebody answers"
        return dict(await node.target.apply(plan))

    assert list(asyncio.run(started_in_between())) == [NAME]


def test_clean_leaves_them_to_a_kube_proxy_that_works_again() -> None:
    node = Node("somebody answers")
    assert not asyncio.run(bring_to(node.step, OURS_ALONE))
    assert node.chains > OTHERS
