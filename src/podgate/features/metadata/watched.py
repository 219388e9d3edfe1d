"""watched: what the watching process tells the proxy's process about Pods and policies. Pure.

Here: the value and its line of JSON. Not here: how it comes about (watcher/compile.py), how lines travel
(watcher/sending.py, server/following.py).
Invariant: every line holds all that is known, so whoever gets one needs none before it; msgspec alone reads it.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from podgate.features.metadata.filter import Client, NamedPolicy
from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.problems import Problem

WATCHED: Final = "Watched"
"""The kind under which a snapshot of the proxy's process holds the value."""
THE_WATCH: Final = ObjectRef("Watch", "metadata")
"""What complaints about the watching process are about."""
LONGEST: Final = 4 << 20
"""Bytes of the longest line: 256 Pods and a hundred long policies are 300 kB."""
MOST_TOLD: Final = 20
"""Complaints in a line: a hundred broken policies must leave room for what is in force."""
BEAT: Final = b"\n"
"""A line without a value: nothing changed, and the watching process is alive."""


class Watched(Frozen, frozen=True, forbid_unknown_fields=True):
    """What is known of this node's Pods and of the policies.

    Attributes:
        policies: all that are in force, with their names.
        clients: this node's Pods by address; None when they cannot be had.
        pod_ranges: ranges that all of them are in, where such are known.
        strictest: whether everybody gets the strictest rules, since there may be a policy that could not be read.
        why: why what is in force is not what users wrote; empty when it is.
        problems: what is wrong with them, the errors, as far as they are told: MOST_TOLD at most.
        unheard: for how many seconds Pods cannot be followed now; None while they are, and where nobody asks for them.
    """

    policies: tuple[NamedPolicy, ...] = ()
    clients: Mapping[str, Client] | None = None
    pod_ranges: tuple[str, ...] = ()
    strictest: bool = False
    why: str = ""
    problems: tuple[Problem, ...] = ()
    unheard: float | None = None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Watched)


def line_of(watched: Watched) -> bytes:
    """Write a value as a line."""
    return _encoder.encode(watched) + b"\n"


def read_line(line: bytes) -> Watched | None:
    """Read a line; None for one without a value. Raises ValueError for what no podgate of this version wrote."""
    return _decoder.decode(line) if line.strip() else None
