"""to_nftables: the Services of one family as one nftables table.

Here: chains, rules and their order. Not here: the maps and what a Service puts into them (layout.py), how rules are
said (phrases.py).
Invariant: rules depend on options of the node and on which numbers of endpoints are in use, never on a Service; a
packet that belongs to no Service is neither marked nor translated.

The first packet of a connection meets, before its destination is translated, the chain ``new-connections``: what may
not use an address is dropped, what has no endpoint is refused. Then ``services`` dispatches it to its bucket's chain.
What is for an address of the Services' range and was translated by nobody, another proxy included, is dropped then.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from ipaddress import IPv4Network, IPv6Network, collapse_addresses
from typing import Final

from podgate.features.services import layout
from podgate.features.services.intent import FamilyIntent, NodeWide, Protocol, ServicePort
from podgate.features.services.layout import (
    Bucket,
    buckets_in_use,
    cluster_ips,
    items_of,
    own_endpoints,
    sticky_seconds,
)
from podgate.features.services.phrases import (
    COUNT,
    FROM_ELSEWHERE,
    FROM_THIS_NODE,
    MASQUERADE,
    NEW,
    TO_THIS_NODE,
    TRANSLATED,
    UNTRANSLATED,
    Phrase,
    Speaker,
    clear_mark,
    go,
    marked,
    not_through,
    of_protocol,
    set_mark,
)
from podgate.model.frozen import ObjectRef
from podgate.model.machine import Family
from podgate.model.remembering import Remembered
from podgate.model.table import Table, counted, mapped, spread
from podgate.targets.nftables.elements import MEMBER, Data, Element, host_words, interval
from podgate.targets.nftables.state import DSTNAT, FILTER, SRCNAT, Chain, Hook, Rule, State

TABLE: Final = "podgate-services"
BEFORE_DNAT: Final = DSTNAT - 10
"""Where new connections are judged: connection tracking knows them (-200), nothing is translated yet (-100)."""
BEFORE_SNAT: Final = SRCNAT - 1
"""Where clients are remembered: once a chain has given a connection a source, no later one sees it."""

NEW_CONNECTIONS: Final = "new-connections"
"""The chain that judges them."""
NOT_PROXIED: Final[tuple[Protocol, ...]] = ("udp", "sctp")
"""What this process does not answer on loopback addresses (KEP-6032)."""
NOT_REMEMBERED: Final = "not-remembered"
"""The chain that counts connections whose client should stay and could not be remembered."""
LOOPBACK_REFUSED: Final = "node ports on loopback addresses are not for"
"""How the comment begins of the rule that refuses a protocol there, and counts."""

_LEGEND: Final = "made by podgate services; remove it with: podgate services clean"


def table_name(proxy_name: str) -> str:
    """Give the name of the tables of a proxy: its own where Services choose it by ``service-proxy-name``."""
    return f"{TABLE}-{proxy_name}" if proxy_name else TABLE


_Elements = dict[str, Table[Element, Data]]


class Writer:
    """Writes the state of one family; remembers the elements that it made last (see ``Table``)."""

    def __init__(self, family: Family) -> None:
        self._family: Family = family
        # What follows stays the same value as long as nothing that it depends on changes.
        self._variants = Remembered(_with_variants)
        self._of_node = Remembered(_node_elements)
        self._of_shape = Remembered(_shape_elements)
        self._chains = Remembered(partial(_chains, family))
        self._forget(masquerade_all=False)

    def _forget(self, *, masquerade_all: bool) -> None:
        self._masquerade_all = masquerade_all
        self._items = spread(items_of(masquerade_all=masquerade_all))
        self._buckets = counted(buckets_in_use(masquerade_all=masquerade_all))
        self._sticky = counted(sticky_seconds)
        self._cluster_ips = _Shared(cluster_ips)
        self._own = _Shared(own_endpoints)

    def __call__(self, intent: FamilyIntent | None, proxy_name: str = "") -> State:
        """Give the state; a family that is off has no table."""
        name = table_name(proxy_name)
        if intent is None:
            self._forget(masquerade_all=False)
            return State.absent(self._family, name)
        if intent.node.masquerade_all != self._masquerade_all:
            self._forget(masquerade_all=intent.node.masquerade_all)
        buckets = self._variants(frozenset(self._buckets(intent.ports)))
        seconds = tuple(sorted(self._sticky(intent.ports)))
        elements: _Elements = {
            **self._items(intent.ports),
            layout.CLUSTER_IPS: self._cluster_ips(intent.ports),
            layout.OWN_ENDPOINTS: self._own(intent.ports),
            **self._of_node(intent.node),
            **self._of_shape(buckets, seconds),
        }
        return State(
            family=self._family,
            name=name,
            comment=_LEGEND,
            sets=layout.declarations(self._family),
            chains=self._chains(intent.node, buckets, seconds),
            elements={name: held for name, held in elements.items() if held},
            last=layout.LAST,
        )


class _Shared:
    """Elements of a set that several Services may ask for: each is there as long as one of them does."""

    def __init__(self, of_ports: Callable[[ObjectRef, tuple[ServicePort, ...]], Iterable[Element]]) -> None:
        self._counted = counted(of_ports)
        self._members = mapped[Element, int, Data](lambda _element, _count: MEMBER)

    def __call__(self, ports: Table[ObjectRef, tuple[ServicePort, ...]]) -> Table[Element, Data]:
        """Give the elements, counting only Services that differ from the previous call's."""
        return self._members(self._counted(ports))


def _chains(family: Family, node: NodeWide, buckets: tuple[Bucket, ...], seconds: tuple[int, ...]) -> tuple[Chain, ...]:
    """Give the chains: they depend on options, on the buckets in use, and on for how long clients stay."""
    return tuple(_Chains(family, node).all(buckets, seconds))


_BLOCK: Final = 16
"""Chains come and go for so many sizes at once: a Service that gains and loses an endpoint makes none."""


def _with_variants(used: Iterable[Bucket]) -> tuple[Bucket, ...]:
    """Give all buckets that need a chain: whole blocks of sizes, with and without masquerade, and plain ones."""
    kinds = {((each.size - 1) // _BLOCK, each.local, sticky) for each in used for sticky in {False, each.sticky}}
    found = {
        Bucket(block * _BLOCK + size, local, masqueraded, sticky)
        for block, local, sticky in kinds
        for size in range(1, _BLOCK + 1)
        for masqueraded in (False, True)
    }
    return tuple(sorted(found))


def _shape_elements(buckets: tuple[Bucket, ...], seconds: tuple[int, ...]) -> _Elements:
    return {
        layout.BUCKETS: Table.of(dict(_bucket_elements(buckets))),
        layout.REMEMBER: Table.of(dict(_remember_elements(seconds))),
    }


def _bucket_elements(buckets: Iterable[Bucket]) -> Iterator[tuple[Element, Data]]:
    """Give where each bucket leads: to its chain, and with masquerade to the one before that."""
    for each in buckets:
        yield host_words(0, each.number), f"goto {each.chain}"
        masqueraded = Bucket(each.size, each.local, masqueraded=True, sticky=each.sticky)
        yield host_words(1, each.number), f"goto {masqueraded.chain}"


def _remember_elements(seconds: Iterable[int]) -> Iterator[tuple[Element, Data]]:
    for each in seconds:
        yield host_words(0, each), f"goto {layout.remembering_chain(each)}"


def _node_elements(node: NodeWide) -> _Elements:
    return {
        layout.NODE_PORT_IPS: Table.of(dict.fromkeys(node.node_port_ips or (), MEMBER)),
        layout.SERVICE_RANGES: _intervals(node.service_ranges),
        layout.POD_RANGES: _intervals(node.local.ranges),
    }


def _intervals(ranges: Collection[str]) -> Table[Element, Data]:
    four = [IPv4Network(each) for each in ranges if ":" not in each]
    six = [IPv6Network(each) for each in ranges if ":" in each]
    networks: list[IPv4Network | IPv6Network] = [*collapse_addresses(four), *collapse_addresses(six)]
    return Table.of({interval(each): MEMBER for each in networks})


class _Chains:
    """The chains of one family on one node."""

    def __init__(self, family: Family, node: NodeWide) -> None:
        self._node = node
        self._say = Speaker(family)

    def all(self, buckets: Iterable[Bucket], seconds: Iterable[int]) -> Iterator[Chain]:
        """Give every chain."""
        judge = NEW + go(f"jump {NEW_CONNECTIONS}")
        translate = go("jump services")
        yield self._base("judge-arriving", Hook("filter", "prerouting", BEFORE_DNAT), judge)
        yield self._base("judge-own", Hook("filter", "output", BEFORE_DNAT), judge)
        yield self._base("translate-arriving", Hook("nat", "prerouting", DSTNAT), translate)
        yield self._base("translate-own", Hook("nat", "output", DSTNAT), translate)
        unclaimed = NEW + UNTRANSLATED + self._say.destination_in(layout.SERVICE_RANGES) + go("drop")
        for name, hook in (("unclaimed-passing", "forward"), ("unclaimed-own", "output")):
            yield Chain(name, (unclaimed.because("no Service has this cluster IP"),), Hook("filter", hook, FILTER))
        remember = TRANSLATED + go("jump translated")
        yield self._base("staying", Hook("nat", "input", SRCNAT), remember)
        yield self._base("passing", Hook("nat", "postrouting", BEFORE_SNAT), remember)
        yield Chain("leaving", tuple(self._leaving()), Hook("nat", "postrouting", SRCNAT))
        yield Chain("translated", tuple(self._translated()))
        yield Chain(NEW_CONNECTIONS, tuple(self._new_connections()))
        yield Chain("new-to-node-ports", tuple(self._new_to_node_ports()))
        yield Chain("services", (*self._dispatch(node_port=False), self._to_node_ports("node-ports")))
        yield Chain("node-ports", tuple(self._dispatch(node_port=True)))
        for bucket in buckets:
            yield Chain(bucket.chain, tuple(self._bucket(bucket)))
        for each in seconds:
            yield Chain(layout.remembering_chain(each), tuple(self._remember(each)))
        if seconds:
            yield Chain(NOT_REMEMBERED, (COUNT.because("its next connection has any endpoint"),))

    @staticmethod
    def _base(name: str, hook: Hook, only: Phrase) -> Chain:
        return Chain(name, (only.because("of every Service"),), hook)

    def _leaving(self) -> Iterator[Rule]:
        bit = self._node.mark
        yield (marked(bit) + clear_mark(bit) + MASQUERADE).because("replies must come back through this node")
        yield (TRANSLATED + self._say.from_itself() + MASQUERADE).because(
            "an endpoint that reached itself would answer itself"
        )

    def _translated(self) -> Iterator[Rule]:
        say = self._say
        stays = "the client stays with what was drawn"
        yield say.to_remember(node_port=False).because(stays)
        yield (say.asked_for_service() + go("return")).because(_NO_NODE_PORT)
        yield say.to_remember(node_port=True).because(stays)

    def _remember(self, seconds: int) -> Iterator[Rule]:
        why = f"sessionAffinity ClientIP, for {seconds} s"
        for node_port in (False, True):
            yield (self._say.remember(seconds, node_port=node_port) + go("return")).because(why)
        yield go(f"goto {NOT_REMEMBERED}").because("no room is left in the map")

    def _outside(self) -> Phrase:
        """Match traffic from outside the cluster: neither Pods' nor this node's own."""
        return self._not_pods() + FROM_ELSEWHERE

    def _not_pods(self) -> Phrase:
        local = self._node.local
        if local.ranges:
            return self._say.source_in(layout.POD_RANGES, negated=True)
        return not_through(local.interface) if local.interface else Phrase("", ())

    def _new_connections(self) -> Iterator[Rule]:
        say = self._say
        guarded = say.service_in(layout.GUARDED) + say.source_not_allowed() + go("drop")
        yield guarded.because("loadBalancerSourceRanges leaves the sender out")
        yield (self._outside() + say.service_in(layout.OUTSIDE_DROPPED) + go("drop")).because(
            "externalTrafficPolicy Local, and no endpoint on this node"
        )
        yield (say.service_in(layout.DROPPED) + go("drop")).because(
            "internalTrafficPolicy Local, and no endpoint on this node"
        )
        yield (say.service_in(layout.REJECTED) + say.reject()).because("the Service has no endpoint")
        yield (say.known_service() + go("return")).because("the Service has endpoints")
        yield (say.destination_in(layout.CLUSTER_IPS) + say.reject()).because("the Service has no such port")
        for protocol in NOT_PROXIED if self._node.proxied else ():
            to_node_port = say.loopback() + of_protocol(protocol) + say.known_node_port()
            yield (to_node_port + COUNT + say.reject()).because(f"{LOOPBACK_REFUSED} {protocol}")
        yield self._to_node_ports("new-to-node-ports")

    def _new_to_node_ports(self) -> Iterator[Rule]:
        say = self._say
        yield (self._outside() + say.port_in(layout.OUTSIDE_DROPPED_NODE_PORTS) + go("drop")).because(
            "externalTrafficPolicy Local, and no endpoint on this node"
        )
        yield (say.port_in(layout.REJECTED_NODE_PORTS) + say.reject()).because("the Service has no endpoint")

    def _to_node_ports(self, chain: str) -> Rule:
        which = self._say.loopback(negated=True)
        if self._node.node_port_ips is not None:
            which = self._say.destination_in(layout.NODE_PORT_IPS)
        return (TO_THIS_NODE + which + go(f"jump {chain}")).because("node ports")

    def _dispatch(self, *, node_port: bool) -> Iterator[Rule]:
        say = self._say
        yield (self._outside() + say.dispatch_outside(node_port=node_port)).because(
            "externalTrafficPolicy Local: from outside, to endpoints on this node"
        )
        if self._node.local:
            yield (self._not_pods() + say.dispatch(node_port=node_port, masqueraded=True)).because(
                "not from a Pod: replies must come back through this node"
            )
        else:
            # Where no endpoint is on this node there is no bucket for traffic from outside, which is dropped then.
            elsewhere = say.service_in(layout.OUTSIDE_DROPPED)
            if node_port:
                elsewhere = say.port_in(layout.OUTSIDE_DROPPED_NODE_PORTS)
            for local in (say.under_local_policy(node_port=node_port), elsewhere):
                yield (FROM_THIS_NODE + local + say.dispatch(node_port=node_port, masqueraded=True)).because(
                    "from this node, to endpoints anywhere"
                )
        yield say.dispatch(node_port=node_port).because("to the Service's endpoints")

    def _bucket(self, bucket: Bucket) -> Iterator[Rule]:
        say = self._say
        if bucket.masqueraded:
            plain = Bucket(bucket.size, bucket.local, masqueraded=False, sticky=bucket.sticky)
            yield (set_mark(self._node.mark) + go(f"goto {plain.chain}")).because("leaves with the node's address")
            return
        ways = (False, True)
        if not bucket.sticky:
            for node_port in ways:
                yield say.translate(bucket, node_port=node_port).because(_to(bucket, node_port=node_port))
            return
        draw = go(f"goto {Bucket(bucket.size, bucket.local).chain}")
        for node_port in ways:
            yield say.stay(bucket, node_port=node_port).because("the client's last endpoint, if it still is one")
            yield say.forget(node_port=node_port).because("it is none any more")
            if not node_port:
                yield (say.known_service() + draw).because(_NO_NODE_PORT)
        yield draw.because("it is remembered when it leaves")


_NO_NODE_PORT: Final = "an address of a Service: node ports of the same number have no say"


def _to(bucket: Bucket, *, node_port: bool) -> str:
    where = " on this node" if bucket.local else ""
    how = "a node port" if node_port else "an address"
    return f"by {how}, to one of {bucket.size} endpoints{where}"
