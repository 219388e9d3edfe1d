"""clients: which Pod an address belongs to, and which policies apply to it. Pure.

Here: the table of addresses, from plain facts about Pods. Not here: reading Pods (compile.py).
Invariant: an address that two Pods hold belongs to neither, so that a re-used address never gets another Pod's rights.
"""

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv6Address, ip_address, ip_network

from podgate.features.metadata.filter import Client, NamedPolicy
from podgate.model.frozen import Frozen


class PodFacts(Frozen, frozen=True):
    """What is to be known of one Pod of this node that has a network of its own."""

    namespace: str
    name: str
    service_account: str
    labels: Mapping[str, str]
    addresses: tuple[str, ...]


def clients_of(pods: Iterable[PodFacts], policies: Sequence[NamedPolicy]) -> dict[str, Client]:
    """Give the clients by address."""
    found: dict[str, Client] = {}
    twice: set[str] = set()
    for pod in pods:
        matching = tuple(
            index
            for index, policy in enumerate(policies)
            if policy.spec.subjects.match(pod.namespace, pod.service_account, pod.labels)
        )
        client = Client(f"{pod.namespace}/{pod.name}", matching)
        for address in {text for text in map(source_text, pod.addresses) if text}:
            if address in found:
                twice.add(address)
            found[address] = client
    return {address: client for address, client in sorted(found.items()) if address not in twice}


def ranges_in_use(ranges: Sequence[str], addresses: Iterable[str]) -> tuple[str, ...]:
    """Give the ranges if there are Pods and all their addresses are in them, else none.

    Not every network gives Pods addresses of ``spec.podCIDRs``; where one does not, those say nothing about Pods.
    """
    try:
        networks = [ip_network(text, strict=False) for text in ranges]
    except ValueError:
        return ()
    inside = [any(ip_address(address) in network for network in networks) for address in addresses]
    return tuple(ranges) if inside and all(inside) else ()


def source_text(peer: str) -> str:
    """Write an address in its one form: IPv4 inside IPv6 as IPv4, without a zone; empty for what is no address."""
    try:
        address = ip_address(peer.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)
