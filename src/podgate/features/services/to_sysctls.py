"""to_sysctls: the parameters of the kernel that a node with many connections needs.

Here: which, and their values, as kube-proxy sets them. Not here: setting them (targets/sysctl).
Invariant: what is 0 in the options is left as it is; the limit of tracked connections is never lowered.
"""

from collections.abc import Iterator
from typing import Final

from podgate.features.services.settings import LOCALHOST, Settings
from podgate.targets.sysctl.state import State

MAX: Final = "net/netfilter/nf_conntrack_max"
ESTABLISHED: Final = "net/netfilter/nf_conntrack_tcp_timeout_established"
CLOSE_WAIT: Final = "net/netfilter/nf_conntrack_tcp_timeout_close_wait"
LIBERAL: Final = "net/netfilter/nf_conntrack_tcp_be_liberal"
UDP: Final = "net/netfilter/nf_conntrack_udp_timeout"
UDP_STREAM: Final = "net/netfilter/nf_conntrack_udp_timeout_stream"
LOCALNET: Final = "net/ipv4/conf/all/route_localnet"
"""Lets packets from loopback addresses leave, as node ports on those need where iptables translates them."""

NAMES: Final = (MAX, ESTABLISHED, CLOSE_WAIT, LIBERAL, UDP, UDP_STREAM, LOCALNET)


def sysctls_of(settings: Settings, processors: int) -> State:
    """Give what is wanted on a node with so many processors."""
    return State(dict(_wanted(settings, processors)), frozenset({MAX}))


def _wanted(settings: Settings, processors: int) -> Iterator[tuple[str, int]]:
    if settings.conntrack_max_per_core:
        yield MAX, max(settings.conntrack_max_per_core * processors, settings.conntrack_min)
    for name, seconds in (
        (ESTABLISHED, settings.conntrack_tcp_timeout_established),
        (CLOSE_WAIT, settings.conntrack_tcp_timeout_close_wait),
        (UDP, settings.conntrack_udp_timeout),
        (UDP_STREAM, settings.conntrack_udp_timeout_stream),
    ):
        if seconds:
            yield name, max(1, round(seconds))
    if settings.conntrack_tcp_be_liberal:
        yield LIBERAL, 1
    if settings.backend == "iptables" and LOCALHOST in settings.nodeport_words:
        yield LOCALNET, 1
