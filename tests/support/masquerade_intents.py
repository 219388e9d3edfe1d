"""Random intents of masquerade and packets that meet their edges, for comparing what writers make of them.

Here: hypothesis strategies. Not here: what is done with the intents.
Invariant: an intent is one that compile.py could give: spans are disjoint, and so are ranges of ports.
"""

from ipaddress import IPv4Address, IPv6Address, ip_network
from typing import Final

from hypothesis import strategies as st

from podgate.features.masquerade.intent import FamilyIntent, Intent, PolicyIntent, Spans, Translation
from podgate.features.masquerade.ports import PortRange, Ports
from podgate.features.masquerade.prefixes import Entry, kept, merged, resolve, span_of
from podgate.model.frozen import ObjectRef
from podgate.model.machine import Family, IPAddress, IPNetwork
from podgate.model.packet import Locality, Packet

BASE: Final[dict[Family, IPNetwork]] = {"ip": ip_network("10.0.0.0/24"), "ip6": ip_network("fd00::/120")}
"""All that is drawn lies here, so that ranges meet."""

NODE: Final[dict[Family, IPAddress]] = {"ip": IPv4Address("10.0.0.1"), "ip6": IPv6Address("fd00::1")}
SPECIAL: Final[dict[Family, tuple[IPAddress, ...]]] = {
    "ip": (NODE["ip"], IPv4Address("10.0.0.255"), IPv4Address("224.0.0.1"), IPv4Address("127.0.0.1")),
    "ip6": (NODE["ip6"], IPv6Address("fd00::"), IPv6Address("ff02::1"), IPv6Address("::1")),
}
LOCALITY: Final = Locality(
    frozenset(NODE.values()), frozenset((IPv4Address("10.0.0.255"),)), frozenset((IPv6Address("fd00::"),))
)
SNAT: Final[dict[Family, IPAddress]] = {"ip": IPv4Address("192.0.2.7"), "ip6": IPv6Address("2001:db8::7")}


def small_networks(family: Family) -> st.SearchStrategy[IPNetwork]:
    base = BASE[family]
    return st.builds(
        lambda offset, length: ip_network((int(base[offset]) >> length << length, base.max_prefixlen - length)),
        st.integers(0, 255),
        st.integers(0, 7),
    )


def spans(family: Family, most: int = 4) -> st.SearchStrategy[Spans]:
    networks = st.lists(small_networks(family), max_size=most)
    return networks.map(lambda found: Spans().updated(dict.fromkeys(merged(map(span_of, found)), True)))


def ports() -> st.SearchStrategy[Ports]:
    return st.sampled_from(
        [
            (),
            (PortRange(1024, 29999),),
            (PortRange(1024, 29999), PortRange(32768, 65535)),
            (PortRange(5, 5), PortRange(9, 9)),
        ]
    )


def translations(family: Family) -> st.SearchStrategy[Translation]:
    return st.one_of(
        st.just(Translation("keep")),
        st.builds(lambda found: Translation("masquerade", ports=found), ports()),
        st.builds(lambda found: Translation("snat", SNAT[family], found), ports()),
    )


def policies(family: Family) -> st.SearchStrategy[PolicyIntent]:
    return st.builds(
        lambda name, translation, sources, destinations, interfaces: PolicyIntent(
            ObjectRef("MasqueradePolicy", name),
            0,
            translation,
            sources,
            None,
            destinations,
            tuple(interfaces),
        ),
        st.uuids().map(str),
        translations(family),
        st.one_of(st.none(), spans(family)),
        st.one_of(st.none(), spans(family)),
        st.lists(st.sampled_from(["eth0", "eth1", "eth*"]), max_size=2, unique=True),
    )


@st.composite
def intents(draw: st.DrawFn, family: Family) -> Intent:
    listed = [Entry(network, "keep") for network in draw(st.lists(small_networks(family), max_size=4))]
    intervals = resolve(listed)
    fallback = draw(
        st.one_of(
            st.builds(lambda found: Translation("masquerade", ports=found), ports()), st.just(Translation("keep"))
        )
    )
    part = FamilyIntent(
        family,
        own_pods=draw(spans(family, 2)),
        policies=tuple(draw(st.lists(policies(family), max_size=3))),
        keep=Spans().updated(dict.fromkeys(kept(intervals), True)),
        fallback=fallback,
        intervals=intervals,
    )
    return Intent((part,), random_fully=draw(st.booleans()))


def packets(family: Family) -> st.SearchStrategy[Packet]:
    addresses = st.one_of(st.integers(0, 255).map(lambda n: BASE[family][n]), st.sampled_from(SPECIAL[family]))
    return st.builds(
        lambda source, destination, protocol, interface: Packet(
            source, destination, protocol, 40000, 80, out_interface=interface
        ),
        addresses,
        addresses,
        st.sampled_from(["tcp", "udp", "sctp", "icmp"]),
        st.sampled_from(["eth0", "eth1", "eth2", "lo"]),
    )
