"""packets: what rules counted, by kube-proxy's names.

Here: which rules, and reading them when somebody asks. Not here: writing them (to_nftables.py, to_iptables.py).
Invariant: only the few rules of short chains are listed, whatever the number of Services. What the kernel does not
tell is left out.
"""

from collections.abc import Iterator
from typing import Final

from podgate.features.services.backends import Choice
from podgate.features.services.intent import FAMILIES
from podgate.features.services.iptables_names import FORWARD, POSTROUTING
from podgate.features.services.old_metrics import IP_FAMILY
from podgate.features.services.server.forgotten import counts as forgotten
from podgate.features.services.to_iptables import LOOPBACK_COUNTED
from podgate.features.services.to_nftables import LOOPBACK_REFUSED, NEW_CONNECTIONS, NOT_PROXIED, TABLE
from podgate.linux.netlink import NETLINK_NETFILTER, Connection, DumpInterruptedError
from podgate.linux.nftables import FAMILIES as NUMBERS
from podgate.linux.nftables import rule_counts
from podgate.observe.metrics import Measured

_REFUSED: Final = "kubeproxy_nftables_localhost_nodeport_rejected_packets_total"
_INVALID: Final = "kubeproxy_iptables_ct_state_invalid_dropped_packets_total"
_FORGOTTEN: Final = "podgate_services_clients_not_remembered_total"
_LOOPBACK: Final = "kubeproxy_iptables_localhost_nodeports_accepted_packets_total"


def packet_readings(choice: Choice, table: str = TABLE) -> Iterator[Measured]:
    """Give the counts of this network namespace; none of iptables-legacy, which shows whole tables alone.

    Args:
        choice: the back end.
        table: our table of nftables.
    """
    if choice.backend == "nftables":
        yield from _refused(table)
        yield from _forgotten(table)
    elif choice.backend == "nft":
        yield from _of_iptables()


def _refused(table: str) -> Iterator[Measured]:
    try:
        with Connection(NETLINK_NETFILTER) as connection:
            found = {family: rule_counts(connection, NUMBERS[family], table, NEW_CONNECTIONS) for family in FAMILIES}
    except (OSError, DumpInterruptedError):
        return
    for family, counts in found.items():
        for protocol in NOT_PROXIED:
            comment = f"{LOOPBACK_REFUSED} {protocol}".encode()
            packets = sum(each.packets for each in counts if comment in each.body)
            labels = (("ip_family", IP_FAMILY[family]), ("protocol", protocol.upper()))
            text = "Packets to node ports on loopback addresses that were refused: only TCP is answered there."
            yield Measured(_REFUSED, packets, labels, "counter", text)


def _forgotten(table: str) -> Iterator[Measured]:
    try:
        found = forgotten(table)
    except (OSError, DumpInterruptedError):
        return
    for family, count in found.items():
        text = "Connections whose client should stay with its endpoint (ClientIP), and for which there was no room."
        yield Measured(_FORGOTTEN, count, (("family", family),), "counter", text)


def _of_iptables() -> Iterator[Measured]:
    try:
        with Connection(NETLINK_NETFILTER) as connection:
            forward = [
                each for family in FAMILIES for each in rule_counts(connection, NUMBERS[family], "filter", FORWARD)
            ]
            leaving = rule_counts(connection, NUMBERS["ip"], "nat", POSTROUTING)
    except (OSError, DumpInterruptedError):
        return
    invalid = sum(each.packets for each in forward if each.drops)
    text = "Packets that connection tracking can make nothing of, and that were dropped."
    yield Measured(_INVALID, invalid, kind="counter", help=text)
    accepted = sum(each.packets for each in leaving if LOOPBACK_COUNTED.encode() in each.body)
    text = "Connections to node ports on loopback addresses."
    yield Measured(_LOOPBACK, accepted, kind="counter", help=text)
