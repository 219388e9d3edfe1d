"""state: one tracked connection, as a judge of it needs to see it.

Here: the value. Not here: reading and deleting (apply.py), judging (each feature's to_conntrack.py). Pure.
Invariant: what was translated is told apart from what was asked for: the first packet's tuple and the answers' tuple.
"""

from typing import Final

from podgate.model.frozen import Frozen
from podgate.model.machine import IPAddress

PROTOCOLS: Final = {1: "icmp", 6: "tcp", 17: "udp", 33: "dccp", 58: "icmpv6", 132: "sctp"}
"""Names of protocols by number (IANA); others show as their number."""

WITH_CONNECTIONS: Final = frozenset({"tcp", "dccp", "sctp"})
"""Protocols whose peers notice when an entry goes: they keep their translation until they end."""


class Flow(Frozen, frozen=True):
    """A tracked connection.

    Attributes:
        source: of the first packet, before any translation.
        destination: of the first packet, before any translation.
        answerer: who the first packet went to in the end: the source of answers. It differs from ``destination`` when
            that was translated, as a Service's address is.
        seen_as: whom the answerer sees: the destination of answers. It differs from ``source`` if that was translated.
        protocol: by name, else by number.
    """

    source: IPAddress
    destination: IPAddress
    answerer: IPAddress
    seen_as: IPAddress
    protocol: str
    source_port: int = 0
    destination_port: int = 0

    def __str__(self) -> str:
        return f"{self.protocol} {self.source}:{self.source_port} > {self.destination}:{self.destination_port}"
