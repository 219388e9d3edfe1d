"""endpoints: which of a port's endpoints are used, by whom.

Here: one endpoint out of several of one address, topology, falling back to those that terminate. Not here: reading a
slice (slices.py), verdicts (deciding.py).
Invariant: the choice depends on the set of endpoints alone, never on the order of slices; an endpoint that neither is
ready nor serves is never used, even as the last one.

The rules are kube-proxy's (KEP-1669, KEP-2086, KEP-2433, KEP-3015).
"""

from collections.abc import Iterable, Mapping, Sequence

from podgate.features.services.slices import READY, SERVING, TERMINATING, SliceEndpoint, SliceFacts
from podgate.model.frozen import Frozen

_DRAINING = SERVING | TERMINATING


class Here(Frozen, frozen=True):
    """This node, as far as the choice depends on it.

    Attributes:
        node: its name.
        zone: its label ``topology.kubernetes.io/zone``; empty for none.
        addresses: its primary addresses, packed, one per family at most.
    """

    node: str = ""
    zone: str = ""
    addresses: tuple[bytes, ...] = ()


class Chosen(Frozen, frozen=True, gc=False):
    """The endpoints of a port: the fields of intent.ServicePort of the same names."""

    cluster: tuple[bytes, ...] = ()
    local: tuple[bytes, ...] = ()
    anywhere: bool = False
    serving: tuple[bytes, ...] = ()
    own: tuple[bytes, ...] = ()


NOTHING = Chosen()


def endpoints_of(slices: Iterable[SliceFacts], name: str, protocol: str) -> dict[bytes, SliceEndpoint]:
    """Give a port's endpoints by packed address and port, joined by the name and protocol of slices' ports.

    Two of one address and port are one Pod that moves from slice to slice, or an address that was used again before
    the old Pod had gone.
    """
    found: dict[bytes, SliceEndpoint] = {}
    several: dict[bytes, list[SliceEndpoint]] = {}
    for each in slices:
        for port in each.ports:
            if port.name != name or port.protocol != protocol:
                continue
            for endpoint in each.endpoints:
                key = endpoint.address + port.number
                if key in found:
                    several.setdefault(key, [found[key]]).append(endpoint)
                else:
                    found[key] = endpoint
    found.update((key, _counting(endpoints)) for key, endpoints in several.items())
    return found


def _counting(endpoints: Iterable[SliceEndpoint]) -> SliceEndpoint:
    """Give the one that counts: of one Pod what was said last, of several Pods the one that lives."""
    newest: dict[str, SliceEndpoint] = {}
    for endpoint in sorted(endpoints, key=_life):
        other = newest.get(endpoint.pod)
        if other is None or not endpoint.pod or endpoint.changed >= other.changed:
            newest[endpoint.pod] = endpoint
    return max(newest.values(), key=_life)


def _life(endpoint: SliceEndpoint) -> tuple[object, ...]:
    """Sort what lives after what ends. What stands after the state only makes the choice certain."""
    state = endpoint.state
    alive = (not state & TERMINATING, state & READY, state & SERVING)
    return (*alive, endpoint.changed, endpoint.node, endpoint.pod, endpoint.zones, endpoint.nodes)


def choose(
    found: Mapping[bytes, SliceEndpoint], here: Here, *, uses_cluster: bool, uses_local: bool, udp: bool = False
) -> Chosen:
    """Choose among the endpoints of a port.

    Args:
        found: by packed address and port.
        here: this node.
        uses_cluster: some traffic may go to endpoints anywhere.
        uses_local: some traffic may go to endpoints on this node only.
        udp: ``serving`` is wanted.
    """
    if not found:
        return NOTHING
    ready = [key for key, endpoint in found.items() if endpoint.state & READY]
    usable = ready or _draining(found)
    cluster: tuple[bytes, ...] = ()
    local: tuple[bytes, ...] = ()
    if uses_cluster:
        cluster = tuple(sorted(_near(found, ready, here) if ready else usable))
    if uses_local:
        local = tuple(sorted(key for key in usable if _is_here(found[key], here)))
        if ready and not local:
            local = tuple(sorted(key for key in _draining(found) if _is_here(found[key], here)))
    serving: tuple[bytes, ...] = ()
    if udp:
        serving = tuple(sorted(key for key, endpoint in found.items() if endpoint.state & (READY | SERVING)))
    own = _own(found, (*cluster, *local) if local else cluster, here)
    return Chosen(cluster, local, bool(usable), cluster if serving == cluster else serving, own)


def _draining(found: Mapping[bytes, SliceEndpoint]) -> list[bytes]:
    return [key for key, endpoint in found.items() if endpoint.state & _DRAINING == _DRAINING]


def _is_here(endpoint: SliceEndpoint, here: Here) -> bool:
    return endpoint.node == here.node and here.node != ""


def _near(found: Mapping[bytes, SliceEndpoint], ready: Sequence[bytes], here: Here) -> Sequence[bytes]:
    """Give the ready endpoints that are meant for this node, else for its zone, else all.

    A level counts only where each ready endpoint has a hint of it, and one of them names this place: while a controller
    fills in hints, nobody loses endpoints. Endpoints that terminate have no say.
    """
    first = found[ready[0]]
    if first.nodes and here.node and all(found[key].nodes for key in ready):
        meant = [key for key in ready if here.node in found[key].nodes]
        if meant:
            return meant
    if first.zones and here.zone and all(found[key].zones for key in ready):
        meant = [key for key in ready if here.zone in found[key].zones]
        if meant:
            return meant
    return ready


def _own(found: Mapping[bytes, SliceEndpoint], used: Iterable[bytes], here: Here) -> tuple[bytes, ...]:
    """Give the addresses that could talk to themselves through the Service."""
    places = ("", here.node)
    own = [key[:-2] for key in used if found[key].node in places]
    return tuple(sorted(set(own))) if own else ()


def ready_here(slices: Iterable[SliceFacts], here: Here, ports: Iterable[tuple[str, str]]) -> int:
    """Count the addresses with a ready endpoint on this node, of some ports by name and protocol."""
    return len(
        {
            endpoint.address
            for name, protocol in ports
            for endpoint in endpoints_of(slices, name, protocol).values()
            if endpoint.state & READY and _is_here(endpoint, here)
        }
    )
