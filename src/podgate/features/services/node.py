"""node: what this node adds: its addresses, how Pods' traffic is known, where node ports are open.

Here: a Node, the machine and the options as Here and NodeWide. Not here: any Service.
Invariant: what is given is small and compares equal while nothing that matters changed, so that a Node's heartbeat
costs nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from podgate.features.services.addresses import Span, family_of, packed, range_text, span, within
from podgate.features.services.endpoints import Here
from podgate.features.services.intent import FAMILIES, FamilyIntent, LocalTraffic, NodeWide
from podgate.features.services.settings import ALL, LOCALHOST, PRIMARY, Settings
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.networking import ServiceCIDR
from podgate.model.kinds.nodes import NODE, Node
from podgate.model.machine import Family, Machine
from podgate.model.problems import Problem

ZONE_LABEL: Final = "topology.kubernetes.io/zone"
DELETED_TAINT: Final = "ToBeDeletedByClusterAutoscaler"
"""Set by the cluster autoscaler before it removes a node (KEP-3836)."""

IPVS_DEVICE: Final = "kube-ipvs0"
"""What kube-proxy makes in mode ipvs: a dummy device that has the addresses of all Services."""

_LOOPBACK: Final[tuple[Span, ...]] = (
    (packed("127.0.0.0") or b"", packed("127.255.255.255") or b""),
    (packed("::1") or b"", packed("::1") or b""),
)


def here_of(name: str, node: Node | None, machine: Machine) -> Here:
    """Give what the choice of endpoints needs of this node."""
    labels: Mapping[str, str] = {} if node is None else node.metadata.labels
    return Here(name, labels.get(ZONE_LABEL, ""), primary_addresses(node, machine))


def primary_addresses(node: Node | None, machine: Machine) -> tuple[bytes, ...]:
    """Give the first address of each family: internal ones before external ones, IPv4 first.

    Without a Node, or without addresses in it, the machine's own: those of the devices with the default routes.
    """
    addresses = () if node is None else node.status.addresses
    found: dict[Family, bytes] = {}
    for wanted in ("InternalIP", "ExternalIP"):
        for each in addresses:
            address = packed(each.address) if each.type == wanted else None
            if address is not None:
                found.setdefault(family_of(address), address)
    if not found:
        for address in _machine_addresses(machine):
            found.setdefault(family_of(address), address)
    return tuple(found[family] for family in FAMILIES if family in found)


def _machine_addresses(machine: Machine) -> Iterable[bytes]:
    for family in FAMILIES:
        for uplink in machine.uplinks(family):
            for each in machine.addresses:
                address = each.address.ip.packed
                if each.interface == uplink and each.scope == "global" and family_of(address) == family:
                    yield address


def local_addresses(node: Node | None, machine: Machine) -> frozenset[bytes]:
    """Give all addresses of this node but loopback and those of IPVS; of its Node where the machine is not known."""
    devices = (each for each in machine.addresses if each.scope != "link" and each.interface != IPVS_DEVICE)
    own = {each.address.ip.packed for each in devices}
    if not own and node is not None:
        own = {address for each in node.status.addresses if (address := packed(each.address)) is not None}
    return frozenset(address for address in own if not is_loopback(address))


def is_loopback(address: bytes) -> bool:
    """Say whether an address never leaves the machine."""
    return within(address, _LOOPBACK)


def is_eligible(node: Node | None) -> bool:
    """Say whether load balancers should send new connections here: not while the node is being removed (KEP-3836)."""
    if node is None:
        return True
    return node.metadata.deletion_timestamp is None and all(taint.key != DELETED_TAINT for taint in node.spec.taints)


def node_wide(
    family: Family, settings: Settings, node: Node | None, machine: Machine, service_ranges: Sequence[str]
) -> NodeWide:
    """Give what holds for all Services of a family.

    iptables knows neither ranges nor unused ports of Services, as with kube-proxy: each would be a rule that all
    packets meet. Loopback addresses it opens in IPv4 alone, where the kernel can route them (route_localnet).

    A proxy with a name of its own does not speak for the ranges of Services: most addresses are the default one's.
    """
    iptables = settings.backend == "iptables"
    localhost = LOCALHOST in settings.nodeport_words and not (iptables and family == "ip6")
    return NodeWide(
        _local_traffic(family, settings, node),
        settings.masquerade_all,
        1 << settings.masquerade_bit,
        _node_port_ips(family, settings.nodeport_words, node, machine),
        () if iptables or settings.service_proxy_name else _of_family(family, service_ranges),
        localhost=localhost,
        proxied=localhost and not iptables,
        closed=not iptables,
    )


def _of_family(family: Family, ranges: Iterable[str]) -> tuple[str, ...]:
    """Give the ranges of a family in their own form, sorted; what is no range is left out."""
    texts = {text for each in ranges if (text := range_text(each)) is not None}
    return tuple(sorted(text for text in texts if (":" in text) is (family == "ip6")))


def _local_traffic(family: Family, settings: Settings, node: Node | None) -> LocalTraffic:
    ranges = settings.cluster_ranges
    match settings.detect_local_mode:
        case "BridgeInterface":
            return LocalTraffic(interface=settings.pod_bridge_interface)
        case "InterfaceNamePrefix":
            return LocalTraffic(interface=settings.pod_interface_name_prefix + "*")
        case "NodeCIDR":
            ranges = () if node is None else node.pod_ranges
        case "ClusterCIDR":
            pass
    return LocalTraffic(_of_family(family, ranges))


def _node_port_ips(
    family: Family, words: Sequence[str], node: Node | None, machine: Machine
) -> tuple[bytes, ...] | None:
    """Give the addresses that node ports are open on, None for all.

    As with kube-proxy, ranges of one family alone leave the other family open on all addresses.
    """
    if ALL in words:
        return None
    ranges = [given for word in words if (given := span(word)) is not None]
    own_ranges = tuple(given for given in ranges if family_of(given[0]) == family)
    if (ranges and not own_ranges and PRIMARY not in words) or any(_holds_all(given) for given in own_ranges):
        return None
    found = {address for address in local_addresses(node, machine) if within(address, own_ranges)}
    if PRIMARY in words:
        found.update(address for address in primary_addresses(node, machine) if family_of(address) == family)
    return tuple(sorted(address for address in found if family_of(address) == family))


def _holds_all(given: Span) -> bool:
    return not any(given[0]) and all(byte == 255 for byte in given[1])


def node_problems(name: str, settings: Settings, node: Node | None) -> tuple[Problem, ...]:
    """Complain about a Node that is not there, or that has no Pod range where one is needed."""
    ref = ObjectRef(NODE.kind, name)
    if node is None:
        message = "there is no such Node, so no endpoint is on this node: give this node's name with --node-name"
        return (Problem(ref, "warning", "UnknownNode", "", message),)
    if no_pod_range(settings, node):
        message = (
            "no Pod range is known, so Pods' traffic is not told from other traffic (--detect-local-mode NodeCIDR)"
        )
        return (Problem(ref, "warning", "NoPodRange", "spec.podCIDRs", message),)
    if settings.detect_local_mode != "NodeCIDR":
        return ()
    return tuple(
        _bad_range(ref, f"spec.podCIDRs[{index}]", text, "10.244.1.0/24")
        for index, text in enumerate(node.pod_ranges)
        if span(text) is None
    )


def closed_problems(
    name: str, settings: Settings, node: Node | None, machine: Machine, families: Iterable[FamilyIntent]
) -> tuple[Problem, ...]:
    """Complain about a node whose own address nobody tells, where node ports are to be open on that.

    Of another machine than this one only its Node is known: its addresses may lie in ranges.
    """
    words, parts, known = settings.nodeport_words, tuple(families), bool(machine.addresses)
    if PRIMARY not in words or any(part.node.node_port_ips != () for part in parts):
        return ()
    if not known and (node is None or any(span(word) for word in words)):
        return ()
    if not any(port.node_port for part in parts for ports in part.ports.values() for port in ports):
        return ()
    routes = "there is no default route whose device has one" if known else "its routes are not known here"
    nowhere = "on loopback addresses alone" if LOCALHOST in words else "nowhere"
    message = (
        f"no address of this node is known: its Node has none in status.addresses, and {routes}, so node ports are "
        f"open {nowhere}: give the kubelet --node-ip, or give ranges with --nodeport-addresses"
    )
    return (Problem(ObjectRef(NODE.kind, name), "warning", "NoNodeAddress", "status.addresses", message),)


def ipvs_problems(name: str, settings: Settings, machine: Machine) -> tuple[Problem, ...]:
    """Complain about what mode ipvs left on this machine, which nothing of ours takes away: connections may need it.

    With that device the addresses of Services are this machine's own. podgate translates before routes and IPVS see a
    packet, so that new connections go its way all the same.
    """
    if settings.service_proxy_name or all(each.name != IPVS_DEVICE for each in machine.interfaces):
        return ()
    count = len({each.address for each in machine.addresses if each.interface == IPVS_DEVICE and each.scope != "link"})
    message = (
        f"kube-proxy's mode ipvs left the device {IPVS_DEVICE}, with {count} addresses: new connections go our way, "
        f"open ones may need it; once those have ended: ip link delete {IPVS_DEVICE}; ipvsadm --clear"
    )
    return (Problem(ObjectRef(NODE.kind, name), "warning", "IpvsLeftOver", "", message),)


def _bad_range(ref: ObjectRef, field: str, text: str, example: str) -> Problem:
    return Problem(
        ref, "error", "BadRange", field, f'"{text}" is no range, and is not used: write one as {example}, for example'
    )


def no_pod_range(settings: Settings, node: Node | None) -> str:
    """Say that this node waits for its Pod range; empty where it has one, or needs none."""
    if settings.detect_local_mode != "NodeCIDR" or node is None or node.pod_ranges:
        return ""
    return f"Node/{node.metadata.name} has no Pod range yet, which --detect-local-mode NodeCIDR asks for"


def service_ranges(ref: ObjectRef, found: ServiceCIDR) -> tuple[tuple[str, ...], tuple[Problem, ...]]:
    """Give a ServiceCIDR's ranges, and complaints about it."""
    ranges: list[str] = []
    problems: list[Problem] = []
    for index, text in enumerate(found.spec.cidrs):
        given = range_text(text)
        if given is None:
            problems.append(_bad_range(ref, f"spec.cidrs[{index}]", text, "10.96.0.0/16"))
        else:
            ranges.append(given)
    return tuple(ranges), tuple(problems)
