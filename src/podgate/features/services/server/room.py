"""room: what the open files of this process are for.

Here: shares of the limit. Not here: who holds to them (loopback.py, listening.py, serving.py).
Invariant: the shares together leave a part that nothing of what clients or Services ask for can take: for the API,
netlink, programs, and kube-proxy's pages, so that a probe is answered whatever the number of Services and of clients.
"""

from functools import cached_property
from typing import Final

from podgate.linux.descriptors import raised_limit
from podgate.model.frozen import Frozen

MOST_CLIENTS: Final = 1024
"""Clients of node ports on loopback addresses at once, however many files may be open."""

_SPARED: Final = 256
"""Open files for everything else, unless that is more than half of all."""

MOST_PROBES: Final = 64
"""Connections to all health check node ports together; of a low limit a sixteenth."""


class Shares(Frozen, frozen=True):
    """How many open files are for what.

    Attributes:
        limit: all that this process may have.
        sockets: that listen, beside those of the pages.
        node_ports: of these, the ones for node ports on loopback addresses; health check node ports may have all.
        clients: of node ports on loopback addresses, each of which has two.
        probes: connections to health check node ports.
    """

    limit: int
    sockets: int
    node_ports: int
    clients: int
    probes: int


def shares_of(limit: int) -> Shares:
    """Divide a limit of open files, which is at least 16."""
    rest = limit - min(_SPARED, limit // 2)
    clients = min(MOST_CLIENTS, rest // 4)
    sockets = rest - 2 * clients
    return Shares(limit, sockets, sockets - sockets // 4, clients, min(MOST_PROBES, limit // 16))


class Room:
    """The shares of this process; its limit is raised as far as it may be when they are first asked for."""

    @cached_property
    def shares(self) -> Shares:
        """The shares."""
        return shares_of(raised_limit())
