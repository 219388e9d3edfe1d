"""From one network to the next, as ``ip -batch`` text per namespace.

Here: the difference between two ``Network`` values, in an order that the kernel accepts. Pure.
Not here: what a network should be (lab/network.py), running the plan (lab/wire.py).
Invariant: applying ``plan(a, b)`` to a kernel in state ``a`` gives ``b``, and ``plan(b, b)`` is falsy.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from podgate.lab.network import Address, Namespace, Neighbour, Network, Route, Veth
from podgate.model.frozen import Frozen


class Plan(Frozen, frozen=True):
    """How to get from one network to another, in this order.

    Attributes:
        stopped: namespaces to give up; their devices go with them.
        started: namespaces to make, with the sysctls to write into each.
        before: batch lines per namespace that take away.
        veths: pairs to make.
        after: batch lines per namespace that add.
    """

    stopped: tuple[str, ...] = ()
    started: Mapping[str, tuple[tuple[str, str], ...]] = {}
    before: Mapping[str, tuple[str, ...]] = {}
    veths: tuple[Veth, ...] = ()
    after: Mapping[str, tuple[str, ...]] = {}

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.stopped or self.started or self.before or self.veths or self.after)


def veth_line(veth: Veth, pid_of: Mapping[str, int]) -> str:
    """Give the batch line that makes a pair with each end in its namespace, named by a process in it."""
    one, other = veth.one, veth.other
    return (
        f"link add name {one.device} address {one.mac} netns {pid_of[one.namespace]} type veth "
        f"peer name {other.device} address {other.mac} netns {pid_of[other.namespace]}"
    )


def _add_line(item: Address | Route | Neighbour) -> str:
    match item:
        case Address():
            return f"addr replace {item.address} dev {item.device}{' nodad' if item.address.version == 6 else ''}"
        case Neighbour():
            return f"neigh replace {item.address} lladdr {item.mac} dev {item.device} nud permanent"
        case Route():
            via = f" via {item.via}" if item.via else ""
            source = f" src {item.source}" if item.source else ""
            scope = " onlink" if item.via else "" if item.destination.version == 6 else " scope link"
            return f"route replace {item.destination}{via} dev {item.device}{source}{scope}"


def _remove_line(item: Address | Route | Neighbour) -> str:
    match item:
        case Address():
            return f"addr del {item.address} dev {item.device}"
        case Neighbour():
            return f"neigh del {item.address} dev {item.device}"
        case Route():
            via = f" via {item.via}" if item.via else ""
            return f"route del {item.destination}{via} dev {item.device}"


def _items(namespace: Namespace) -> Iterator[Address | Route | Neighbour]:
    # Addresses before the routes that name them as a source; neighbours last: a route never needs them.
    return chain(namespace.addresses, namespace.routes, namespace.neighbours)


def _new_devices(name: str, want: Namespace, fresh: bool, made: Iterable[Veth]) -> Iterator[str]:
    if fresh:
        yield "link set dev lo up"
        for bridge in want.bridges:
            yield f"link add name {bridge} type bridge"
            yield f"link set dev {bridge} up"
    for end in (end for veth in made for end in (veth.one, veth.other)):
        if end.namespace == name:
            master = f" master {end.master}" if end.master else ""
            yield f"link set dev {end.device}{master} up"


def plan(have: Network, want: Network, restarted: frozenset[str] = frozenset()) -> Plan:
    """Give the plan from one network to another; ``restarted`` namespaces are made anew although both have them."""
    gone = {name for name in have.namespaces if name not in want.namespaces or name in restarted}
    fresh = {name for name in want.namespaces if name not in have.namespaces or name in restarted}
    kept = {v for v in have.veths if v.one.namespace not in gone and v.other.namespace not in gone}
    wanted = set(want.veths)
    made = tuple(veth for veth in want.veths if veth not in kept)
    before: dict[str, list[str]] = {}
    lost: set[tuple[str, str]] = set()
    for veth in have.veths:
        if veth not in kept or veth not in wanted:
            lost |= {(end.namespace, end.device) for end in (veth.one, veth.other)}
            survivor = next((end for end in (veth.one, veth.other) if end.namespace not in gone), None)
            if survivor is not None:
                # The kernel takes a dead namespace's devices away later; a successor's routes need it now.
                before.setdefault(survivor.namespace, []).append(f"link del dev {survivor.device}")
    after: dict[str, list[str]] = {}
    for name, new in want.namespaces.items():
        old = Namespace() if name in fresh else have.namespaces[name]
        there = [item for item in _items(old) if (name, item.device) not in lost]
        wants = set(_items(new))
        leaving = [item for item in reversed(there) if item not in wants]
        if leaving:
            before.setdefault(name, []).extend(map(_remove_line, leaving))
        # With an address the kernel may drop secondary addresses, and with a device's last one all of its routes:
        # say everything again.
        remaining = set() if any(isinstance(item, Address) for item in leaving) else set(there)
        lines = [*_new_devices(name, new, name in fresh, made)]
        lines += [_add_line(item) for item in _items(new) if item not in remaining]
        if lines:
            after[name] = lines
    return Plan(
        stopped=tuple(sorted(gone)),
        started={name: want.namespaces[name].sysctls for name in want.namespaces if name in fresh},
        before={name: tuple(lines) for name, lines in before.items()},
        veths=made,
        after={name: tuple(lines) for name, lines in after.items()},
    )
