"""limits: the figures that keep the server answering, whatever its clients do.

Here: counts, sizes and times, with their reasons. Not here: what happens at a limit (proxy.py, client.py, upstream.py).
Invariant: every buffer, queue and wait of the server has its limit here; only a long poll has no total time.
"""

from typing import Final

from podgate.model.frozen import Frozen

READ_SIZE: Final = 32 * 1024
"""Bytes that are read at a time, twice the longest head; one buffer serves all connections: reads do not overlap."""

MAX_ANSWER_HEAD: Final = 32 * 1024
"""Bytes of an answer's head."""

MAX_COLLECTED: Final = 512 * 1024
"""Bytes of an answer that has to be seen whole: a redacted JSON document, a token."""

CACHED: Final = 256
"""Verdicts, and heads of answers, that are remembered."""

CACHED_BYTES: Final = 2048
"""Bytes of the longest head that is remembered: clients send a few hundred."""


class Limits(Frozen, frozen=True):
    """What may be open, and for how long. Times are seconds.

    Attributes:
        connections: of clients; beyond it idle ones give way, the longest idle first.
        per_source: of one address; beyond it the client's own idle ones give way.
        upstreams: connections to the upstream, idle and busy; beyond it the oldest long poll gets 503.
        idle_upstreams: kept for the next request.
        moment: until a request that waits for a connection in use has another one opened.
        idle: until a client's connection without a request is closed; metadata-proxy's 60 s.
        head: for a head to arrive, from its first byte on.
        answer: for the upstream's answer to begin, and between its parts; not for a long poll.
        taking: for a client to take what was written, or to send what it promised.
        linger: for a client to read a refusal before the connection closes.
        connect: for a connection to the upstream.
        idle_upstream: until an unused connection to the upstream is closed.
        drain: on stop, for requests that are no long polls.
        buffered: bytes that wait in this process for one slow client before the upstream is paused.
        ahead: bytes that a client may send ahead of its turn before it is read no more.
    """

    connections: int = 2048
    per_source: int = 1536
    upstreams: int = 512
    idle_upstreams: int = 256
    moment: float = 0.002
    idle: float = 60.0
    head: float = 10.0
    answer: float = 60.0
    taking: float = 60.0
    linger: float = 2.0
    connect: float = 5.0
    idle_upstream: float = 10.0
    drain: float = 2.0
    buffered: int = 16 * 1024
    ahead: int = 16 * 1024
