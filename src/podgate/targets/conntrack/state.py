"""state: one tracked connection, as a judge of it needs to see it, and which ones must not be there.

Here: the values. Not here: reading and deleting (apply.py), judging (each feature's to_conntrack.py). Pure.
Invariant: what was translated is told apart from what was asked for: the first packet's tuple and the answers' tuple.
"""

from collections.abc import Callable, Collection
from typing import Final

from podgate.model.frozen import Frozen
from podgate.model.machine import IPAddress

PROTOCOLS: Final = {1: "icmp", 6: "tcp", 17: "udp", 33: "dccp", 58: "icmpv6", 132: "sctp"}
"""Names of protocols by number (IANA); others show as their number."""

WITH_CONNECTIONS: Final = frozenset({"tcp", "dccp", "sctp"})
"""Protocols whose peers notice when an entry goes: they keep their translation until they end."""

FlowJudge = Callable[[bytes, int, bytes, int], bool]
"""Says whether a UDP flow must go: the destination and port of its first packet, and who answers, with its port."""


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


class Barred(Frozen, frozen=True):
    """Connections that others than this machine opened, and that must not go on.

    Attributes:
        destination: whom they were opened to.
        ports: of TCP.
        answerers: whom they may have been translated to: those go on.
    """

    destination: IPAddress
    ports: frozenset[int]
    answerers: frozenset[IPAddress] = frozenset()

    def bars(self, flow: Flow, own: Collection[IPAddress]) -> bool:
        """Say whether a connection is one of them; ``own`` are this machine's addresses."""
        return (
            flow.protocol == "tcp"
            and flow.destination == self.destination
            and flow.destination_port in self.ports
            and flow.answerer not in self.answerers
            and flow.source not in own
        )
