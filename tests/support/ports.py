"""Ports for servers of tests that are told their port before they start.

Here: choosing them. Not here: servers that ask the kernel for any port, which is better where a test can ask them back.
Invariant: no two test processes choose the same ones, and the kernel gives none of them to anybody else.
"""

import os
import socket
from contextlib import ExitStack, suppress
from typing import Final

_FIRST: Final = 61_000
_LAST: Final = 65_535
"""Above the ports that the kernel gives to whoever asks for any (ip_local_port_range), and not among those of probes
(service_lab.py): nobody else's server or connection has one of ours before a server starts, or while it is stopped."""


def own_ports(count: int) -> tuple[int, ...]:
    """Give ports in a row that nobody uses on loopback, over TCP or UDP."""
    places = (_LAST - _FIRST) // count
    for place in range(places):
        first = _FIRST + (os.getpid() + place) % places * count
        ports = tuple(range(first, first + count))
        with ExitStack() as held, suppress(OSError):
            for port in ports:
                for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                    held.enter_context(socket.socket(socket.AF_INET, kind)).bind(("127.0.0.1", port))
            return ports
    raise AssertionError(f"no {count} ports in a row are free between {_FIRST} and {_LAST}")
