"""loopback_ports: which node ports this process answers on loopback addresses, with nftables (KEP-6032).

Here: which, where each leads, where to listen, and whose a port is that cannot be had. Not here: sockets
(server/loopback.py), rules of iptables, which open loopback addresses by themselves.
Invariant: nobody listens for what could not be led anywhere, so the kernel refuses it; one change costs its Service.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from podgate.features.services.intent import FAMILIES, Intent, ServicePort
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.services import SERVICE
from podgate.model.machine import Family
from podgate.model.problems import Problem
from podgate.model.remembering import Remembered
from podgate.model.table import Table, grouped, mapped
from podgate.targets.listeners.state import ListenAddress

LOOPBACK: Final[Mapping[Family, str]] = {"ip": "127.0.0.1", "ip6": "::1"}
SERVES: Final[Mapping[Family, str]] = {"ip": "IPv4 node port", "ip6": "IPv6 node port"}
"""How names of what is served begin, before the number."""

_Ports = tuple[ServicePort, ...]


def node_port_of(serves: str) -> tuple[Family, int] | None:
    """Read the name of what is served: the family and number of a node port; None for anything else."""
    kind, _, number = serves.rpartition(" ")
    return next(((family, int(number)) for family, known in SERVES.items() if kind == known), None)


def is_answered(port: ServicePort) -> bool:
    """Say whether this process listens on a node port: TCP with endpoints, and one on this node where policy asks."""
    return bool(port.node_port and port.protocol == "tcp" and port.cluster and (port.local or not port.external_local))


class LoopbackPorts:
    """Finds the node ports on loopback addresses; only Services that changed since the last call are looked at."""

    def __init__(self) -> None:
        self._numbers: dict[Family, mapped[ObjectRef, _Ports, tuple[int, ...]]] = {
            family: mapped(lambda _ref, ports: tuple(_numbers(ports)) or None) for family in FAMILIES
        }
        self._by_number: dict[Family, grouped[int, ObjectRef, _Ports]] = {
            family: grouped(lambda _ref, ports: _numbers(ports)) for family in FAMILIES
        }
        self._listening = {family: Remembered(_addresses_of) for family in FAMILIES}

    def addresses(self, intent: Intent) -> frozenset[ListenAddress]:
        """Say where to listen."""
        found = (self._listening[family](family, self._numbers[family](_ports(intent, family))) for family in FAMILIES)
        return frozenset().union(*found)

    def port(self, intent: Intent, family: Family, number: int) -> ServicePort | None:
        """Give whose node port that is; None where nobody should listen."""
        group = self._by_number[family](_ports(intent, family)).get(number, {})
        return next(_with_number(group, number), None)

    def owner(self, intent: Intent, key: ListenAddress) -> ObjectRef | None:
        """Give the Service whose node port an address is for; None where it is for something else."""
        found = node_port_of(key.serves)
        if found is None:
            return None
        family, number = found
        return min(self._by_number[family](_ports(intent, family)).get(number, {}), default=None)


class Owners:
    """Says whose node ports addresses are for, by an intent; equal where the intents are."""

    def __init__(self, ports: LoopbackPorts, intent: Intent) -> None:
        self._ports = ports
        self._intent = intent

    def __call__(self, key: ListenAddress) -> ObjectRef | None:
        """Give the Service; None where an address is for something else."""
        return self._ports.owner(self._intent, key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Owners) and other._intent == self._intent

    def __hash__(self) -> int:
        return hash(self._intent.proxy_name)


def taken(node: str, ref: ObjectRef, why: str) -> Problem:
    """Say that a Service's node port cannot be had on a loopback address of this node."""
    service = ObjectRef(SERVICE.kind, ref.name, ref.namespace)
    return Problem(service, "error", "FailedToListenOnLocalhost", "spec.ports", f"node {node}: {why}")


def _ports(intent: Intent, family: Family) -> Table[ObjectRef, _Ports]:
    part = intent.of(family)
    return part.ports if part is not None and part.node.proxied else Table()


def _numbers(ports: _Ports) -> Iterator[int]:
    return (port.node_port for port in ports if is_answered(port))


def _with_number(group: Mapping[ObjectRef, _Ports], number: int) -> Iterator[ServicePort]:
    return (port for ports in group.values() for port in ports if port.node_port == number and is_answered(port))


def _addresses_of(family: Family, numbers: Table[ObjectRef, tuple[int, ...]]) -> frozenset[ListenAddress]:
    return frozenset(
        ListenAddress(LOOPBACK[family], number, f"{SERVES[family]} {number}")
        for each in numbers.values()
        for number in each
    )
