"""Outcomes: what may come of a packet that went to a Service, whichever tool wrote the rules.

Here: the value. Not here: what leads to it: tracing is each back end's own (targets/iptables/flows.py,
targets/nftables/registers.py).
Invariant: outcomes of two back ends can be compared field by field.
"""

from typing import Literal

from podgate.model.frozen import Frozen
from podgate.model.machine import IPAddress

Fate = Literal["accept", "drop", "reject"]


class Outcome(Frozen, frozen=True):
    """What may come of a packet.

    Attributes:
        verdict: ``reject`` drops it and tells its sender.
        endpoint: where it goes instead of its destination; None if that was not translated.
        masqueraded: whether it gets an address of the node.
        mark: the packet's mark at the end.
    """

    verdict: Fate
    endpoint: tuple[IPAddress, int] | None = None
    masqueraded: bool = False
    mark: int = 0
