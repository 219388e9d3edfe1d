"""lacking: why no endpoint of a Service's port can be used, as check and explain say it.

Here: the port's name, the state of endpoints, or none at all. Not here: endpoints that are elsewhere, which a policy
leaves out (deciding.py, check.py).
Invariant: both verbs say the same, since both ask here.
"""

from collections.abc import Iterable
from typing import NamedTuple

from podgate.features.services.addresses import family_of
from podgate.features.services.intent import ServicePort
from podgate.features.services.slices import SliceFacts


class Lack(NamedTuple):
    """A reason for metrics, and what is wrong with what to do."""

    reason: str
    message: str


def what_of(port: ServicePort) -> str:
    """Give a port's name, or number, and protocol: ``http/tcp``."""
    return f"{port.name.rpartition(':')[2]}/{port.protocol}"


def lack_of(port: ServicePort, slices: Iterable[SliceFacts]) -> Lack:
    """Say why a port has no endpoint that can be used, from the slices of its Service."""
    family = family_of(port.cluster_ip)
    own = [facts for facts in slices if facts.family == family]
    what = what_of(port)
    offered = sorted(
        {f"{each.name or int.from_bytes(each.number)}/{each.protocol}" for facts in own for each in facts.ports}
    )
    count = sum(len(facts.endpoints) for facts in own)
    if count and offered and not _joined(port, own):
        return Lack(
            "NoSuchPort", f"no slice has a port {what} (they have {', '.join(offered)}): call it the same in both"
        )
    if count:
        return Lack(
            "NotReady", f"{what}: none of {count} endpoints is ready, so connections are refused: look at the Pods"
        )
    return Lack(
        "NoEndpoints", f"{what}: there is no endpoint, so connections are refused: does the selector match any Pod?"
    )


def _joined(port: ServicePort, own: Iterable[SliceFacts]) -> bool:
    """Say whether a slice has a port of this name; an unnamed port is shown by its number."""
    name = "" if port.unnamed else port.name.rpartition(":")[2]
    return any(each.name == name and each.protocol == port.protocol for facts in own for each in facts.ports)
