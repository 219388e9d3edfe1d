"""to_conntrack: which tracked UDP flows lead to something that does not serve a Service any more.

Here: the judge of a flow after a commit. Not here: listing and deleting (targets/conntrack).
Invariant: only a flow whose answers come from no serving endpoint goes; one that nobody translated goes only if its
Service has endpoints now, which it then reaches. What serves, terminating or not, keeps its flows; so does all that
leads to another proxy's Service, which is that proxy's matter.

TCP is left alone: its peers notice, and a connection to a terminating Pod is to end by itself.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from ipaddress import ip_network
from typing import Final

from podgate.features.services.intent import FamilyIntent, NodeWide, PackedDestination, ServicePort
from podgate.features.services.node import is_loopback
from podgate.model.frozen import ObjectRef
from podgate.model.table import Table, changes
from podgate.targets.conntrack.state import FlowJudge

_NOBODYS: Final[Table[ObjectRef, frozenset[PackedDestination]]] = Table()


def destinations_of(port: ServicePort) -> list[PackedDestination]:
    """Give where a port's first packets are sent to."""
    found = [(address, port.port) for address in (port.cluster_ip, *port.external)]
    return [*found, (b"", port.node_port)] if port.node_port else found


def judge_of(
    before: FamilyIntent | None,
    after: FamilyIntent,
    own: Callable[[], frozenset[bytes]],
    others: Table[ObjectRef, frozenset[PackedDestination]] = _NOBODYS,
    led_on: Collection[PackedDestination] | None = None,
) -> FlowJudge | None:
    """Give the judge of a commit; None where it concerns no UDP flow.

    At a start, and after others changed the rules, all flows to Services are looked at, whatever changed. Those of
    Services that went while nobody watched are known by what rules still led on, and by the ranges of cluster IPs.

    Args:
        before: what was committed earlier; None at a start.
        after: what is committed now.
        own: gives this node's addresses, packed: node ports are open on no others.
        others: where flows of other proxies' Services are sent to, by Service.
        led_on: where flows were sent to that rules led on which were read back and were not what they should be; None
            where there were none.
    """
    nothing: Table[ObjectRef, tuple[ServicePort, ...]] = Table()
    had, is_unsure = before.ports if before else nothing, before is None or led_on is not None
    gone = set(led_on or ())
    for change in changes(had, after.ports):
        gone.update(each for port in _of_udp(change.old) for each in destinations_of(port))
    come: dict[PackedDestination, frozenset[bytes]] = {}
    for change in changes(nothing if is_unsure else had, after.ports):
        for port in _of_udp(change.new):
            come.update(dict.fromkeys(destinations_of(port), frozenset(port.serving)))
    # An address that went from one Service to another leads to the other's endpoints.
    gone -= come.keys()
    ranges = _ranges(after) if is_unsure else ()
    theirs = _all_of(others) if ranges or gone else frozenset[PackedDestination]()
    serving = {**dict.fromkeys((each for each in gone if not _is_among(each, theirs)), frozenset[bytes]()), **come}
    if not serving and not ranges:
        return None
    addresses = own()
    opened = frozenset(each for part in (before, after) if part for each in _opened(part.node, addresses))
    return _judge(serving, opened, ranges, theirs)


def _of_udp(ports: Iterable[ServicePort] | None) -> Iterator[ServicePort]:
    return (port for port in ports or () if port.protocol == "udp")


def _opened(node: NodeWide, own: frozenset[bytes]) -> Iterator[bytes]:
    """Give the addresses that node ports are open on: on all others a flow to such a number is somebody else's."""
    for address in own:
        if is_loopback(address):
            if node.localhost and not node.proxied:
                yield address
        elif node.node_port_ips is None or address in node.node_port_ips:
            yield address


def _ranges(intent: FamilyIntent) -> tuple[tuple[bytes, bytes], ...]:
    networks = [ip_network(each) for each in intent.node.service_ranges]
    return tuple((each.network_address.packed, each.broadcast_address.packed) for each in networks)


def _all_of(others: Table[ObjectRef, frozenset[PackedDestination]]) -> frozenset[PackedDestination]:
    return frozenset(each for found in others.values() for each in found)


def _is_among(destination: PackedDestination, theirs: frozenset[PackedDestination]) -> bool:
    return destination in theirs or (destination[0], 0) in theirs


def _judge(
    serving: Mapping[PackedDestination, frozenset[bytes]],
    opened: frozenset[bytes],
    ranges: tuple[tuple[bytes, bytes], ...],
    theirs: frozenset[PackedDestination],
) -> FlowJudge:
    nothing: frozenset[bytes] = frozenset()

    def is_stale(destination: bytes, port: int, answerer: bytes, answerer_port: int) -> bool:
        endpoints = serving.get((destination, port))
        if endpoints is None and destination in opened:
            endpoints = serving.get((b"", port))
        if endpoints is None:
            if _is_among((destination, port), theirs) or not any(low <= destination <= high for low, high in ranges):
                return False
            endpoints = nothing
        if answerer + answerer_port.to_bytes(2, "big") in endpoints:
            return False
        was_translated = (answerer, answerer_port) != (destination, port)
        # One that was not was opened while there was no endpoint, and would never meet one that comes.
        return was_translated or bool(endpoints)

    return is_stale
