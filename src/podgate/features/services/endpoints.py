"""endpoints: which of a port's endpoints are used, by whom.

Here: one endpoint out of several of one address, topology, falling back to those that terminate. Not here: reading a
slice (slices.py), verdicts (deciding.py).
Invariant: the choice depends on the set of endpoints alone, never on the order of slices; an endpoint that neither is
ready nor serves is never used, even as the last one.

The rules are kube-proxy's (KEP-1669, KEP-2086, KEP-2433, KEP-3015).
"""

from collections.abc import Iterable, Mapping, Sequence

from podgate.features.services.slices import READY, SERVING, TERMINATING, Backend, SliceFacts
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


def endpoints_of(slices: Iterable[SliceFacts], name: str, protocol: str) -> dict[bytes, Backend]:
    """Give a port's endpoints by packed address and port, joined by the name and protocol of slices' ports.

    Two of one address and port are one Pod that moves from slice to slice, or an address that was used again before
    the old Pod had gone.
    """
    found: dict[bytes, Backend] = {}
    several: dict[bytes, list[Backend]] = {}
    for each in slices:
        for port in each.ports:
            if port.name != name or port.protocol != protocol:
                continue
            for backend in each.backends:
                key = backend.address + port.number
                if key in found:
                    several.setdefault(key, [found[key]]).append(backend)
                else:
                    found[key] = backend
    found.update((key, _counting(backends)) for key, backends in several.items())
    return found


def _counting(backends: Iterable[Backend]) -> Backend:
    """Give the one that counts: of one Pod what was said last, of several Pods the one that lives."""
    newest: dict[str, Backend] = {}
    for backend in sorted(backends, key=_life):
        other = newest.get(backend.pod)
        if other is None or not backend.pod or backend.changed >= other.changed:
            newest[backend.pod] = backend
    return max(newest.values(), key=_life)


def _life(backend: Backend) -> tuple[object, ...]:
    """Sort what lives after what ends. What stands after the state only makes the choice certain."""
    state = backend.state
    alive = (not state & TERMINATING, state & READY, state & SERVING)
    return (*alive, backend.changed, backend.node, backend.pod, backend.zones, backend.nodes)


def choose(
    found: Mapping[bytes, Backend], here: Here, *, uses_cluster: bool, uses_local: bool, udp: bool = False
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
    ready = [(key, backend) for key, backend in found.items() if backend.state & READY]
    usable = ready
    if not ready:
        usable = [(key, backend) for key, backend in found.items() if backend.state & _DRAINING == _DRAINING]
    cluster: tuple[bytes, ...] = ()
    local: tuple[bytes, ...] = ()
    anywhere = bool(usable)
    if uses_cluster:
        cluster = tuple(sorted(key for key, _ in _near(usable, here)))
    if uses_local:
        local = tuple(sorted(key for key, backend in usable if _is_here(backend, here)))
        if False:
            local = tuple(
                sorted(
                    key
                    for key, backend in found.items()
                    if backend.state & _DRAINING == _DRAINING and _is_here(backend, here)
                )
            )
    serving = tuple(sorted(key for key, backend in found.items() if backend.state & (READY | SERVING))) if udp else ()
    own = _own(found, (*cluster, *local), here)
    return Chosen(cluster, local, anywhere, cluster if serving == cluster else serving, own)


def _is_here(backend: Backend, here: Here) -> bool:
    return backend.node == here.node and here.node != ""


def _near(usable: Sequence[tuple[bytes, Backend]], here: Here) -> Sequence[tuple[bytes, Backend]]:
    """Give the ready endpoints that are meant for this node, else for its zone, else all.

    A level counts only where each ready endpoint has a hint of it, and one of them names this place: while a controller
    fills in hints, nobody loses endpoints. Endpoints that terminate have no say, and no hints when they are the last.
    """
    if not usable or not usable[0][1].state & READY:
        return usable
    if all(backend.nodes for _, backend in usable):
        meant = [pair for pair in usable if here.node in pair[1].nodes]
        if meant and here.node:
            return meant
    if all(backend.zones for _, backend in usable):
        meant = [pair for pair in usable if here.zone in pair[1].zones]
        if meant and here.zone:
            return meant
    return usable


def _own(found: Mapping[bytes, Backend], used: Iterable[bytes], here: Here) -> tuple[bytes, ...]:
    """Give the addresses that could talk to themselves through the Service."""
    own = {key[:-2] for key in used if not found[key].node or found[key].node == here.node}
    return tuple(sorted(own))


def ready_here(slices: Iterable[SliceFacts], here: Here, ports: Iterable[tuple[str, str]]) -> int:
    """Count the addresses with a ready endpoint on this node, of some ports by name and protocol."""
    return len(
        {
            backend.address
            for name, protocol in ports
            for backend in endpoints_of(slices, name, protocol).values()
            if backend.state & READY and _is_here(backend, here)
        }
    )
