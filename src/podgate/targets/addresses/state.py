"""state: addresses on devices of this node that are ours.

Here: the values. Not here: who needs them, I/O (apply.py).
Invariant: which addresses are ours is said by their place, device and address; all others are never looked at.
"""

from typing import Literal

from podgate.model.frozen import Frozen
from podgate.model.machine import IPInterface

Scope = Literal["global", "link", "host"]


class DeviceAddress(Frozen, frozen=True):
    """Where an address stands: what makes it ours."""

    device: str
    address: IPInterface

    def __str__(self) -> str:
        return f"{self.address} on {self.device}"


class Assigned(Frozen, frozen=True):
    """An address on a device. ``scope`` is as ip(8) says it: ``host`` is never used towards others."""

    place: DeviceAddress
    scope: Scope = "global"

    def __str__(self) -> str:
        return f"{self.place}, scope {self.scope}"


class State(Frozen, frozen=True):
    """Our addresses."""

    assigned: frozenset[Assigned] = frozenset()
