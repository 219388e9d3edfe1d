"""listening: the sockets for health check node ports, and for node ports on loopback addresses.

Here: how many there may be, which come first, their metrics. Not here: sockets (targets/listeners), shares (room.py).
Invariant: what is open stays open. Of what is to be opened health check node ports come first, then the lowest numbers,
IPv4 before IPv6; what there is no room for is refused, and tried again like any port that cannot be had.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from podgate.features.services.loopback_ports import SERVES
from podgate.features.services.old_metrics import IP_FAMILY
from podgate.features.services.server.room import Room
from podgate.joints import Key
from podgate.model.machine import Family
from podgate.observe.accepting import Factory
from podgate.observe.metrics import Measured
from podgate.targets.listeners.apply import RAISE, ListenersTarget
from podgate.targets.listeners.diff import Plan
from podgate.targets.listeners.state import ListenAddress

_KINDS: Final = tuple(SERVES.values())


class NodePortListeners(ListenersTarget):
    """Listens as far as there is room, and counts for the metrics of node ports on loopback addresses."""

    def __init__(self, protocols: Mapping[str, Factory], room: Room) -> None:
        super().__init__(protocols)
        self._room = room
        self._failures: dict[Family, int] = dict.fromkeys(SERVES, 0)

    async def apply(self, plan: Plan) -> Mapping[Key, str]:
        """Close, then open what there is room for."""
        stays = (await self.read()).addresses - set(plan.closed)
        beyond = self._beyond(plan, stays)
        refused = dict(await super().apply(plan.without(beyond)))
        refused.update(beyond.items())
        for family in SERVES:
            self._failures[family] += len([key for key in refused if _is_of(key, family)])
        return refused

    def _beyond(self, plan: Plan, stays: frozenset[ListenAddress]) -> dict[ListenAddress, str]:
        """Give what there is no room for, and why."""
        shares, beyond = self._room.shares, dict[ListenAddress, str]()
        sockets, node_ports = len(stays), sum(map(_is_node_port, stays))
        for where in sorted(plan.opened, key=_precedence):
            most = shares.node_ports if _is_node_port(where) else shares.sockets
            if sockets >= shares.sockets or (_is_node_port(where) and node_ports >= most):
                beyond[where] = (
                    f"of the {shares.limit} files that this process may have open, {most} are for sockets like that of "
                    f"port {where.port}, and all are in use: {RAISE}"
                )
            else:
                sockets += 1
                node_ports += _is_node_port(where)
        return beyond

    def readings(self) -> Iterator[Measured]:
        """Give kube-proxy's figures (1.37)."""
        for family, name in IP_FAMILY.items():
            count, labels = sum(1 for key in self.ports() if _is_of(key, family)), (("ip_family", name),)
            prefix, text = "kubeproxy_nftables_localhost_nodeport", "Node ports that are open on loopback addresses."
            yield Measured(f"{prefix}_listeners", count, labels, help=text)
            failed, text = f"{prefix}_listener_creation_failures_total", "Node ports that could not be opened there."
            yield Measured(failed, self._failures[family], labels, "counter", text)


def _is_of(key: Key, family: Family) -> bool:
    return isinstance(key, ListenAddress) and key.serves.startswith(SERVES[family])


def _is_node_port(where: ListenAddress) -> bool:
    return where.serves.startswith(_KINDS)


def _precedence(where: ListenAddress) -> tuple[bool, int, bool, ListenAddress]:
    return _is_node_port(where), where.port, ":" in where.address, where
