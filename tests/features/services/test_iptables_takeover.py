"""kube-proxy's chains as they were seen (1.36.3, iptables mode): taken over as they stand, and nothing of others'."""

import asyncio

import pytest

from podgate.features.services.addresses import packed
from podgate.features.services.intent import FamilyIntent, Intent, LocalTraffic, NodeWide, ServicePort
from podgate.features.services.iptables_names import NAMES
from podgate.features.services.to_iptables import Writer
from podgate.model.frozen import ObjectRef
from podgate.model.packet import Jump
from podgate.model.table import Table
from podgate.targets.iptables.diff import Plan
from podgate.targets.iptables.fake import FakeIptables
from podgate.targets.iptables.state import State, TableName

NAT = """\
*nat
:KUBE-EXT-OLDOLDOLDOLDOLDO - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-PROXY-CANARY - [0:0]
:KUBE-SEP-4KM3IIHMCZDH2JE4 - [0:0]
:KUBE-SEP-HHME4ENH6C2IVI4F - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-JXAAF2IUCSNA6KO5 - [0:0]
:KUBE-SVC-OLDOLDOLDOLDOLDO - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A KUBE-EXT-OLDOLDOLDOLDOLDO -j KUBE-SVC-OLDOLDOLDOLDOLDO
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-NODEPORTS -p tcp -m comment --comment "shop/old:http" -m tcp --dport 30081 -j KUBE-EXT-OLDOLDOLDOLDOLDO
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully
-A KUBE-SEP-4KM3IIHMCZDH2JE4 -s 10.180.0.2/32 -m comment --comment "shop/moved:http" -j KUBE-MARK-MASQ
-A KUBE-SEP-4KM3IIHMCZDH2JE4 -p tcp -m comment --comment "shop/moved:http" -m tcp -j DNAT --to-destination 10.180.0.2:8080
-A KUBE-SEP-HHME4ENH6C2IVI4F -s 10.180.0.1/32 -m comment --comment "shop/moved:http" -j KUBE-MARK-MASQ
-A KUBE-SEP-HHME4ENH6C2IVI4F -p tcp -m comment --comment "shop/moved:http" -m tcp -j DNAT --to-destination 10.180.0.1:8080
-A KUBE-SERVICES -d 10.96.0.42/32 -p tcp -m comment --comment "shop/moved:http cluster IP" -m tcp --dport 80 -j KUBE-SVC-JXAAF2IUCSNA6KO5
-A KUBE-SERVICES -d 10.140.0.1/32 -m comment --comment "kubernetes service nodeports; NOTE: this must be the last rule in this chain" -j KUBE-NODEPORTS
-A KUBE-SVC-JXAAF2IUCSNA6KO5 ! -s 10.180.0.0/16 -d 10.96.0.42/32 -p tcp -m comment --comment "shop/moved:http cluster IP" -m tcp --dport 80 -j KUBE-MARK-MASQ
-A KUBE-SVC-JXAAF2IUCSNA6KO5 -m comment --comment "shop/moved:http -> 10.180.0.1:8080" -m statistic --mode random --probability 0.50000000000 -j KUBE-SEP-HHME4ENH6C2IVI4F
-A KUBE-SVC-JXAAF2IUCSNA6KO5 -m comment --comment "shop/moved:http -> 10.180.0.2:8080" -j KUBE-SEP-4KM3IIHMCZDH2JE4
COMMIT
"""  # noqa: E501 - as iptables-save shows it
FILTER = """\
*filter
:KUBE-EXTERNAL-SERVICES - [0:0]
:KUBE-FIREWALL - [0:0]
:KUBE-FORWARD - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-PROXY-CANARY - [0:0]
:KUBE-PROXY-FIREWALL - [0:0]
:KUBE-SERVICES - [0:0]
-A INPUT -j KUBE-FIREWALL
-A INPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL
-A INPUT -m comment --comment "kubernetes health check service ports" -j KUBE-NODEPORTS
-A INPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes externally-visible service portals" -j KUBE-EXTERNAL-SERVICES
-A FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes externally-visible service portals" -j KUBE-EXTERNAL-SERVICES
-A OUTPUT -j KUBE-FIREWALL
-A OUTPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL
-A OUTPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A KUBE-FORWARD -m conntrack --ctstate INVALID -m nfacct --nfacct-name  ct_state_invalid_dropped_pkts -j DROP
-A KUBE-FORWARD -m comment --comment "kubernetes forwarding rules" -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-FORWARD -m comment --comment "kubernetes forwarding conntrack rule" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
COMMIT
"""  # noqa: E501 - as iptables-save shows it


def packed_address(text: str) -> bytes:
    return packed(text) or b""


def wanted() -> Intent:
    ends = tuple(packed_address(f"10.180.0.{last}") for last in (1, 2))
    port = ServicePort(
        "shop/moved:http",
        "tcp",
        80,
        packed_address("10.96.0.42"),
        cluster=tuple(each + (8080).to_bytes(2) for each in ends),
        own=ends,
        anywhere=True,
    )
    node = NodeWide(LocalTraffic(("10.180.0.0/16",)), node_port_ips=(packed_address("10.140.0.1"),))
    return Intent(FamilyIntent("ip", node, Table.of({ObjectRef("Service", "moved", "shop"): (port,)})))


def plan_of(table: TableName, saved: str) -> tuple[FakeIptables, Plan]:
    fake = FakeIptables("ip", "nft", (), table, names=NAMES[table])
    fake.restore(saved)
    return fake, fake.diff(asyncio.run(fake.read()), Writer("ip", "nft")(wanted())[table])


def test_what_is_right_is_not_written_and_what_nobody_needs_goes() -> None:
    fake, plan = plan_of("nat", NAT)
    assert plan.named == (("KUBE-NODEPORTS", ()),)
    assert plan.dropped == ("KUBE-EXT-OLDOLDOLDOLDOLDO", "KUBE-SVC-OLDOLDOLDOLDOLDO")
    assert (plan.added, plan.removed) == ((), ())
    asyncio.run(fake.apply(plan))
    assert "KUBE-KUBELET-CANARY" in fake.chains


def test_of_the_rules_of_all_only_what_counts_packets_is_written_anew() -> None:
    fake, plan = plan_of("filter", FILTER)
    assert [name for name, _ in plan.named] == ["KUBE-FORWARD"]
    assert (plan.dropped, plan.added, plan.removed) == ((), (), ())
    asyncio.run(fake.apply(plan))
    assert fake.chains["INPUT"][0].target == fake.chains["OUTPUT"][0].target == Jump("KUBE-FIREWALL")


@pytest.mark.parametrize(("table", "saved"), [("nat", NAT), ("filter", FILTER)])
def test_clean_takes_what_kube_proxy_left_and_leaves_the_kubelets(table: TableName, saved: str) -> None:
    fake, _ = plan_of(table, saved)
    asyncio.run(fake.apply(fake.diff(asyncio.run(fake.read()), State("ip", "nft", table=table))))
    left = {name for name in fake.chains if name.startswith("KUBE")}
    assert left == ({"KUBE-KUBELET-CANARY"} if table == "nat" else {"KUBE-FIREWALL"})
