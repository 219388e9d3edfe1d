"""exposure: who may speak to the proxy at all. No sockets.

Here: the rule on addresses. Not here: reading the addresses of a connection (client.py), what may be asked for.
Invariant: an address that could not be read admits nobody but this machine.
"""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final, NamedTuple

from podgate.model.frozen import Frozen
from podgate.model.machine import IPNetwork


class Stranger(NamedTuple):
    """What a client is told that is not served."""

    reason: str
    message: str
    rule: str


STRANGER: Final = Stranger("NotAdmitted", "This proxy does not serve your address", "exposure")


class Exposure(Frozen, frozen=True):
    """Who may connect.

    Attributes:
        metadata: the metadata server's own addresses: a connection that was redirected was meant for one of them.
        allowed: ranges from which direct connections are taken.
        pods: ranges of this node's Pods: a redirected connection must come from one of them; empty for any.
    """

    metadata: frozenset[str] = frozenset()
    allowed: tuple[IPNetwork, ...] = ()
    pods: tuple[IPNetwork, ...] = ()

    def admits(self, source: str, local: str, original: str) -> bool:
        """Say whether a connection is taken.

        Args:
            source: the client's address.
            local: the address that it reached here.
            original: the address that it was meant for before a rule of this node redirected it; empty when unknown.
        """
        try:
            peer = ip_address(source)
        except ValueError:
            return False
        if peer.is_loopback or (source == local and bool(local)):
            return True
        if _in(peer, self.allowed):
            return True
        return original in self.metadata and original != local and (not self.pods or _in(peer, self.pods))


def _in(peer: IPv4Address | IPv6Address, ranges: Sequence[IPNetwork]) -> bool:
    return any(peer in network for network in ranges)


def networks(texts: Sequence[str]) -> tuple[IPNetwork, ...]:
    """Read ranges, as ``10.0.0.0/8``. Raises ValueError."""
    return tuple(ip_network(text, strict=False) for text in texts)
