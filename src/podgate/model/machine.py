"""What this node's own machine says: interfaces, addresses, routes, and which families it lacks.

Here: the values. Not here: reading them (sources/machine.py).
Invariant: everything is in canonical form and sorted, so that equal machines compare equal.
"""

from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from typing import Literal

from podgate.model.frozen import Frozen

Family = Literal["ip", "ip6"]
IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network
IPInterface = IPv4Interface | IPv6Interface


class Interface(Frozen, frozen=True, order=True):
    """A network device: its name, its index, its kind (``veth``, ``bridge``; empty for hardware), its master's name."""

    name: str
    index: int
    kind: str = ""
    master: str = ""
    up: bool = True


class Address(Frozen, frozen=True):
    """An address on a device; ``scope`` is ``global``, ``link`` or ``host``. ``broadcast`` is None for IPv6."""

    interface: str
    address: IPInterface
    scope: str = "global"
    broadcast: IPv4Address | None = None


class Route(Frozen, frozen=True):
    """A unicast route of the main table. ``gateway`` None: the destination is reached directly on the device."""

    destination: IPNetwork
    interface: str
    gateway: IPAddress | None = None
    source: IPAddress | None = None


class Machine(Frozen, frozen=True):
    """The machine as a feature may rely on it.

    Attributes:
        lacks: families that its kernel runs without (``ipv6.disable=1``).
    """

    node_name: str = ""
    interfaces: tuple[Interface, ...] = ()
    addresses: tuple[Address, ...] = ()
    routes: tuple[Route, ...] = ()
    lacks: frozenset[Family] = frozenset()

    def uplinks(self, family: Family) -> tuple[str, ...]:
        """Give the devices that lead off the node, for a family: those of IPv4 default routes, and for IPv6 of its own.

        An IPv6 one never counts for IPv4: where the kernel takes router advertisements, as it does by default until
        IPv6 is forwarded, a Pod makes its own device a default route with one packet (CVE-2020-13401). A node whose
        Pods have IPv6 forwards it, and takes none.
        """
        defaults = [route for route in self.routes if route.destination.prefixlen == 0]
        counted = sorted(defaults, key=lambda route: route.destination.version)
        return tuple(dict.fromkeys(r.interface for r in counted if r.destination.version == 4 or family == "ip6"))
