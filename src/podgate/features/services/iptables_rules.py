"""iptables_rules: one port of a Service as rules of iptables, in kube-proxy's chains.

Here: which chains and rules a port needs, and their words. Not here: the chains' names (iptables_names.py), what all
Services share (to_iptables.py).
Invariant: what a port gives depends on that port and on Style alone; words are as iptables-save shows them, so that
what is read back compares as text.

    KUBE-SERVICES ── cluster IP ─────────────────────────────> KUBE-SVC- or, policy Local, KUBE-SVL-
                  ── other addresses ── KUBE-FW- (ranges) ──> KUBE-EXT- ──> KUBE-SVC- or, policy Local, KUBE-SVL-
                  ── this node ── KUBE-NODEPORTS ───────────> KUBE-EXT-
    KUBE-SVC-, KUBE-SVL- ── a draw of chance, or the client's last ──> KUBE-SEP- ──> the endpoint

What has no endpoint is in none of these: table filter refuses it by its address.
"""

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, summarize_address_range
from typing import Final

from podgate.features.services.addresses import address_text, endpoint_text
from podgate.features.services.intent import LocalTraffic, ServicePort
from podgate.features.services.iptables_names import EXTERNAL, FIREWALL, MARK, NODE_PORTS, SERVICES, PortChains
from podgate.features.services.iptables_names import proxy_name as name_of
from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.machine import Family
from podgate.targets.iptables.words import quoted

CHAINS: Final = "chains"
NAT_SERVICES: Final = f"nat {SERVICES}"
NAT_NODE_PORTS: Final = f"nat {NODE_PORTS}"
FILTER_SERVICES: Final = f"filter {SERVICES}"
FILTER_EXTERNAL: Final = f"filter {EXTERNAL}"
FILTER_FIREWALL: Final = f"filter {FIREWALL}"

Rules = tuple[str, ...]
Line = tuple[str, str, int]
"""Where the rules of a port stand in a chain of all: the port, the protocol, and a number."""
Item = tuple[str, str | Line, Rules]
"""A chain of the port's own (in ``CHAINS``), or its rules in a chain of all."""

_CHANCE_PARTS: Final = 1 << 31
_WHOLE: Final[dict[Family, str]] = {"ip": "255.255.255.255", "ip6": ":".join(["ffff"] * 8)}


class Style(Frozen, frozen=True):
    """What holds for the rules of all Services.

    Attributes:
        family: ``ip`` or ``ip6``.
        local: how Pods' traffic is known. Of several ranges the first counts: a cluster has one of each family.
        masquerade_all: whether Pods' traffic to cluster IPs leaves with the node's address too.
        node_ports: words that match each of the addresses that node ports are open on.
        comments: whether rules have comments, which cost the kernel memory and everybody time.
    """

    family: Family
    local: LocalTraffic = LocalTraffic()
    masquerade_all: bool = False
    node_ports: tuple[tuple[str, str], ...] = ()
    comments: bool = True

    def comment(self, text: str) -> str:
        """Give the words of a comment."""
        return f"-m comment --comment {quoted(text)}" if self.comments else ""

    def address(self, address: bytes) -> str:
        """Show an address as one that rules match."""
        return f"{address_text(address)}/{len(address) * 8}"

    @property
    def reject(self) -> str:
        """The words that refuse a packet."""
        return f"-j REJECT --reject-with icmp{'6' if self.family == 'ip6' else ''}-port-unreachable"


def said(*words: str) -> str:
    """Join the words that there are."""
    return " ".join(filter(None, words))


class PortRules:
    """Gives what the ports of a Service need, as ``model.table.spread`` takes it."""

    def __init__(self, style: Style) -> None:
        self._style = style

    def __call__(self, _ref: ObjectRef, ports: tuple[ServicePort, ...]) -> Iterator[Item]:
        """Give chains, and rules in the chains of all."""
        for port in ports:
            yield from _Port(self._style, port).items()


class _Port:
    """One port."""

    def __init__(self, style: Style, port: ServicePort) -> None:
        self._style = style
        self._port = port
        self._name = name_of(port)
        self._chains = PortChains(port)
        self._is_reached = bool(port.external or port.node_port)
        self._inside = port.local if port.internal_local else port.cluster

    def items(self) -> Iterator[Item]:
        """Give everything."""
        port, chains = self._port, self._chains
        yield from self._lines()
        used: set[bytes] = set()
        if port.cluster and (self._is_reached or not port.internal_local):
            used.update(port.cluster)
            yield CHAINS, chains.cluster, tuple(self._choice(port.cluster, inside=not port.internal_local))
        if port.local and (port.internal_local or (port.external_local and self._is_reached)):
            used.update(port.local)
            yield CHAINS, chains.local, tuple(self._choice(port.local, inside=port.internal_local))
        if self._is_reached and port.cluster:
            yield CHAINS, chains.external, tuple(self._external())
            if port.guard:
                yield CHAINS, chains.firewall, tuple(self._guard())
        for endpoint in used:
            yield CHAINS, chains.endpoint(endpoint), tuple(self._endpoint(endpoint))

    def _to(self, address: bytes, why: str, *, before: str = "", between: str = "") -> str:
        """Match what goes to this port of an address."""
        where = f"-d {self._style.address(address)}"
        return said(before, where, between, self._at(self._port.port, why))

    def _at(self, number: int, why: str, match: str = "") -> str:
        protocol = self._port.protocol
        return said(f"-p {protocol}", self._style.comment(why), match, f"-m {protocol} --dport {number}")

    def _lines(self) -> Iterator[Item]:
        """Give the rules in the chains of all."""
        port, name, chains = self._port, self._name, self._chains
        if self._inside:
            target = chains.local if port.internal_local else chains.cluster
            yield self._line(NAT_SERVICES, 0, f"{self._to(port.cluster_ip, f'{name} cluster IP')} -j {target}")
        else:
            yield self._line(FILTER_SERVICES, 0, self._refusal(port.cluster_ip, local=port.internal_local))
        guarded = port.guard.addresses if port.guard else ()
        for number, address in enumerate(port.external, 1):
            yield from self._external_lines(number, address, is_guarded=address in guarded)
        if port.node_port:
            yield from self._node_port_lines()

    def _line(self, chain: str, number: int, *rules: str) -> Item:
        return chain, (self._port.name, self._port.protocol, number), rules

    def _external_lines(self, number: int, address: bytes, *, is_guarded: bool) -> Iterator[Item]:
        port, name, chains = self._port, self._name, self._chains
        # The address may be this node's own: what its chain lets through must not meet the node ports, so it is a goto.
        if not port.cluster:
            refused = self._refusal(address, local=False)
            yield self._line(NAT_SERVICES, number, f"{self._to(address, f'{name} has no endpoints')} -j RETURN")
            # KUBE-EXTERNAL-SERVICES sees what comes in, KUBE-SERVICES what this node sends.
            yield self._line(FILTER_SERVICES, number, refused)
            yield self._line(FILTER_EXTERNAL, number, refused)
        else:
            why = f"{name} {'loadbalancer' if is_guarded else 'external'} IP"
            target = chains.firewall if is_guarded else chains.external
            yield self._line(NAT_SERVICES, number, f"{self._to(address, why)} -g {target}")
            if port.external_local and not port.local:
                yield self._line(FILTER_EXTERNAL, number, self._refusal(address, local=True))
        if is_guarded:
            yield self._line(FILTER_FIREWALL, number, *self._unguarded(address))

    def _unguarded(self, address: bytes) -> Iterator[str]:
        """Drop what the firewall's chain did not let through, which is what still has this destination."""
        why = f"{self._name} traffic not accepted by {self._chains.firewall}"
        if not self._port.cluster:
            for source in self._sources():
                yield f"{self._to(address, f'{self._name} has no endpoints', before=f'-s {source}')} -j RETURN"
        yield f"{self._to(address, why)} -j DROP"

    def _node_port_lines(self) -> Iterator[Item]:
        port, name = self._port, self._name
        if port.cluster:
            yield self._line(NAT_NODE_PORTS, 0, f"{self._at(port.node_port, name)} -j {self._chains.external}")
        if not port.cluster or (port.external_local and not port.local):
            why, verdict = self._why_refused(local=bool(port.cluster))
            rules = (
                said(where, self._at(port.node_port, why, match), verdict) for where, match in self._style.node_ports
            )
            yield self._line(FILTER_EXTERNAL, 0, *rules)

    def _refusal(self, address: bytes, *, local: bool) -> str:
        why, verdict = self._why_refused(local=local and self._port.anywhere)
        return f"{self._to(address, why)} {verdict}"

    def _why_refused(self, *, local: bool) -> tuple[str, str]:
        if local:
            return f"{self._name} has no local endpoints", "-j DROP"
        return f"{self._name} has no endpoints", self._style.reject

    def _choice(self, endpoints: tuple[bytes, ...], *, inside: bool) -> Iterator[str]:
        """Choose one of some endpoints; ``inside``: the cluster IP leads here, too."""
        port, style = self._port, self._style
        foreign = not_local(style.local)
        if inside and (style.masquerade_all or any(foreign)):
            before, between = ("", "") if style.masquerade_all else foreign
            match = self._to(port.cluster_ip, f"{self._name} cluster IP", before=before, between=between)
            yield f"{match} -j {MARK}"
        ways = [(endpoint, self._chains.endpoint(endpoint)) for endpoint in endpoints]
        if port.sticky:
            for endpoint, chain in ways:
                recent = f"-m recent --rcheck --seconds {port.sticky} --reap {self._recent(chain)}"
                yield said(self._leads_to(endpoint), recent, f"-j {chain}")
        for left, (endpoint, chain) in zip(range(len(ways), 0, -1), ways, strict=True):
            yield said(self._leads_to(endpoint), chance(left), f"-j {chain}")

    def _leads_to(self, endpoint: bytes) -> str:
        return self._style.comment(f"{self._name} -> {endpoint_text(endpoint)}")

    def _recent(self, chain: str) -> str:
        return f"--name {chain} --mask {_WHOLE[self._style.family]} --rsource"

    def _external(self) -> Iterator[str]:
        """Lead what comes by other addresses than the cluster IP."""
        style, chains, what = self._style, self._chains, f"{self._name} external destinations"
        if not self._port.external_local:
            yield said(style.comment(f"masquerade traffic for {what}"), f"-j {MARK}")
            yield f"-j {chains.cluster}"
            return
        if style.local:
            yield said(local(style.local), style.comment(f"pod traffic for {what}"), f"-j {chains.cluster}")
        here = "-m addrtype --src-type LOCAL"
        yield said(style.comment(f"masquerade LOCAL traffic for {what}"), here, f"-j {MARK}")
        yield said(style.comment(f"route LOCAL traffic for {what}"), here, f"-j {chains.cluster}")
        if self._port.local:
            yield f"-j {chains.local}"

    def _guard(self) -> Iterator[str]:
        """Let some senders through to the load balancer's addresses."""
        style, name = self._style, self._name
        for source in self._sources():
            yield said(f"-s {source}", style.comment(f"{name} loadbalancer IP"), f"-j {self._chains.external}")
        if style.comments:
            yield style.comment(f"other traffic to {name} will be dropped by {FIREWALL}")

    def _sources(self) -> Iterator[str]:
        for first, last in self._port.guard.sources if self._port.guard else ():
            if len(first) == 4:
                networks = map(str, summarize_address_range(IPv4Address(first), IPv4Address(last)))
            else:
                networks = map(str, summarize_address_range(IPv6Address(first), IPv6Address(last)))
            yield from networks

    def _endpoint(self, endpoint: bytes) -> Iterator[str]:
        """Lead to an endpoint; one that may reach itself would answer itself."""
        style, name, protocol = self._style, self._name, self._port.protocol
        if endpoint[:-2] in self._port.own:
            yield said(f"-s {style.address(endpoint[:-2])}", style.comment(name), f"-j {MARK}")
        recent = f"-m recent --set {self._recent(self._chains.endpoint(endpoint))}" if self._port.sticky else ""
        to = f"-j DNAT --to-destination {endpoint_text(endpoint)}"
        yield said(f"-p {protocol}", style.comment(name), recent, f"-m {protocol}", to)


def chance(left: int) -> str:
    """Take one of so many that are left, as the kernel keeps it: in parts of 2**31, shown with eleven digits."""
    if left == 1:
        return ""
    return f"-m statistic --mode random --probability {int(_CHANCE_PARTS / left + 0.5) / _CHANCE_PARTS:.11f}"


def local(traffic: LocalTraffic) -> str:
    """Match traffic of this cluster's Pods; empty where nothing tells."""
    if traffic.ranges:
        return f"-s {traffic.ranges[0]}"
    return f"-i {_device(traffic.interface)}" if traffic.interface else ""


def not_local(traffic: LocalTraffic) -> tuple[str, str]:
    """Match all other traffic, as words before and after those of the destination; empty where nothing tells."""
    if traffic.ranges:
        return f"! -s {traffic.ranges[0]}", ""
    return "", f"! -i {_device(traffic.interface)}" if traffic.interface else ""


def _device(name: str) -> str:
    return f"{name[:-1]}+" if name.endswith("*") else name
