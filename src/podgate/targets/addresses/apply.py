"""AddressesTarget: addresses that podgate adds to devices of the node.

Here: reading them, adding and removing, noticing that others change them. Not here: which ones and why.
Invariant: an address outside of the places that are ours is neither read nor touched.
"""

import contextlib
import socket
from collections.abc import AsyncIterator, Collection, Mapping
from ipaddress import ip_interface

from podgate.joints import ApplyError, Drifted, Key, Signal
from podgate.linux.namespaces import inside_network
from podgate.linux.netlink import Connection, Listener, NotificationsLostError
from podgate.linux.refusals import refused
from podgate.linux.rtnetlink import ADDRESS_GROUPS, SCOPES, add_address, addresses, delete_address, links
from podgate.targets.addresses.diff import Plan, diff
from podgate.targets.addresses.state import Assigned, DeviceAddress, State

_NAMES = {number: name for name, number in SCOPES.items()}


class AddressesTarget:
    """Addresses at some places of one network namespace.

    Args:
        places: where ours are.
        namespace: an open network namespace to work in; None for this process's own.
    """

    def __init__(self, places: Collection[DeviceAddress], *, namespace: int | None = None) -> None:
        self._places = frozenset(places)
        self._namespace = namespace
        self._held: State | None = None

    async def read(self) -> State:
        """Give what stands at our places. Raises ApplyError."""
        with refused("reading addresses", ApplyError), self._connection() as connection:
            names = {link.device: link.name for link in links(connection)}
            found = []
            for each in addresses(connection):
                place = DeviceAddress(names.get(each.device, ""), ip_interface((each.address, each.prefix)))
                if place in self._places:
                    found.append(Assigned(place, _NAMES.get(each.scope, "global")))
        self._held = State(frozenset(found))
        return self._held

    def diff(self, have: State, want: State) -> Plan:
        """Give the plan."""
        return diff(have, want)

    async def apply(self, plan: Plan) -> Mapping[Key, str]:
        """Remove, then add. Raises ApplyError; some may have been done then."""
        with refused("changing addresses", ApplyError), self._connection() as connection:
            devices = {link.name: link.device for link in links(connection)}
            for each in plan.removed:
                if each.place.device in devices:
                    delete_address(connection, devices[each.place.device], each.place.address)
            for each in plan.added:
                if each.place.device not in devices:
                    raise ApplyError(f"{each.place}: there is no such device", "NoDevice")
                add_address(connection, devices[each.place.device], each.place.address, SCOPES[each.scope])
        before = self._held.assigned if self._held is not None else frozenset()
        self._held = State((before - set(plan.removed)) | set(plan.added))
        return {}

    async def signals(self) -> AsyncIterator[Signal]:
        """Tell when others change our addresses."""
        with refused("watching addresses", ApplyError), inside_network(self._namespace):
            listener = Listener(socket.NETLINK_ROUTE, ADDRESS_GROUPS)
        with listener:
            while True:
                held = self._held
                if held is not None and await self.read() != held:
                    yield Drifted("an address was changed")
                with contextlib.suppress(NotificationsLostError):
                    await listener.receive()

    def _connection(self) -> Connection:
        with inside_network(self._namespace):
            return Connection(socket.NETLINK_ROUTE)
