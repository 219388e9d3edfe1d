"""MachineSource: what this node's own machine has, now and after each change of its network.

Here: from rtnetlink's values to ``Machine``, following its notifications, the node's name, whether there is IPv6.
Not here: decoding netlink (linux/rtnetlink.py).
Invariant: values are sorted and in canonical form, so a re-read that found nothing new gives no new value.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Mapping
from ipaddress import IPv4Address, ip_interface, ip_network
from typing import Final

import msgspec

from podgate.joints import SourceError
from podgate.linux.netlink import Connection, DumpInterruptedError, Listener, NotificationsLostError
from podgate.linux.rtnetlink import GROUPS, LinkAddress, LinkRoute, addresses, links, routes
from podgate.model.machine import Address, Interface, Machine, Route

SETTLE: Final = 0.010
"""Seconds for which notifications are gathered before the machine is read: one Pod's start gives about ten."""

_SCOPES: Final = {0: "global", 253: "link", 254: "host"}

_IPV6: Final = "/proc/net/if_inet6"
"""What a kernel that was started with ``ipv6.disable=1`` does not have."""


class MachineSource:
    """This machine, in the network namespace of the process.

    Args:
        node_name: the Kubernetes name of this node.
    """

    def __init__(self, node_name: str) -> None:
        self._node_name = node_name

    async def values(self) -> AsyncIterator[Machine]:
        """Give the machine now, and again whenever its network differs. Ends only by cancellation.

        Raises:
            SourceError: the kernel refuses to be asked.
        """
        fixed = fixed_of(self._node_name)
        given: Machine | None = None
        try:
            with Listener(socket.NETLINK_ROUTE, GROUPS) as listener, Connection(socket.NETLINK_ROUTE) as connection:
                while True:
                    machine = _with_network(fixed, connection)
                    if machine is not None and machine != given:
                        given = machine
                        yield machine
                    if machine is not None:
                        await _news(listener)
                    await asyncio.sleep(SETTLE)
                    _drain(listener)
        except OSError as error:
            raise _source_error(error) from error


def load_machine(node_name: str) -> Machine:
    """Give the machine once, without an event loop.

    Raises:
        SourceError: the kernel refuses to be asked, or its tables change faster than they are read.
    """
    try:
        with Connection(socket.NETLINK_ROUTE) as connection:
            machine = _with_network(fixed_of(node_name), connection)
    except OSError as error:
        raise _source_error(error) from error
    if machine is None:
        raise SourceError("the machine's addresses and routes change faster than they can be read; try again")
    return machine


def node_name_of(given: str | None, environ: Mapping[str, str]) -> str:
    """Give this node's name: ``--node-name``, ``$NODE_NAME``, the host name.

    A host name may have capitals, and the name of a Node has none: a kubelet and kube-proxy take it in lower case
    (component-helpers, node/util, GetHostname).
    """
    return given or environ.get("NODE_NAME") or socket.gethostname().strip().lower()


def _source_error(error: OSError) -> SourceError:
    return SourceError(f"cannot read this machine's addresses and routes over netlink: {error.strerror or error}")


def fixed_of(node_name: str, if_inet6: str = _IPV6) -> Machine:
    """Give what does not change while the process runs; ``if_inet6`` is there where the kernel has IPv6."""
    return Machine(node_name=node_name, lacks=frozenset() if os.path.exists(if_inet6) else frozenset({"ip6"}))


def _with_network(fixed: Machine, connection: Connection) -> Machine | None:
    """Add devices, addresses and routes; None if they changed all the time while they were read."""
    try:
        devices, own, ways = links(connection), addresses(connection), routes(connection)
    except DumpInterruptedError:
        return None
    names = {device.device: device.name for device in devices}
    return msgspec.structs.replace(
        fixed,
        interfaces=tuple(
            sorted(Interface(one.name, one.device, one.kind, names.get(one.master, ""), one.up) for one in devices)
        ),
        addresses=tuple(sorted((_address(one, names) for one in own if one.device in names), key=_address_order)),
        routes=tuple(sorted({_route(one, names) for one in ways if one.device in names}, key=_route_order)),
    )


def _address(found: LinkAddress, names: Mapping[int, str]) -> Address:
    return Address(
        interface=names[found.device],
        address=ip_interface((found.address, found.prefix)),
        scope=_SCOPES.get(found.scope, "global"),
        broadcast=found.broadcast if isinstance(found.broadcast, IPv4Address) else None,
    )


def _route(found: LinkRoute, names: Mapping[int, str]) -> Route:
    destination = ip_network((found.destination, found.prefix))
    return Route(destination, names[found.device], found.gateway, found.source)


def _address_order(address: Address) -> tuple[str, int, int, int]:
    ip = address.address
    return (address.interface, ip.version, int(ip.ip), ip.network.prefixlen)


def _route_order(route: Route) -> tuple[int, int, int, str, str, str]:
    to = route.destination
    return (to.version, int(to.network_address), to.prefixlen, route.interface, str(route.gateway), str(route.source))


async def _news(listener: Listener) -> None:
    try:
        await listener.receive()
    except NotificationsLostError:
        return


def _drain(listener: Listener) -> None:
    """Drop what has come: the next reading covers it."""
    try:
        while listener.waiting():
            pass
    except NotificationsLostError:
        return
