"""diff: which tracked connections go.

Here: the plan. Not here: deleting (apply.py), what must not be there and why (each feature's to_conntrack.py).
Invariant: what this machine opened itself is never named, nor what is not barred.
"""

from collections.abc import Collection

from podgate.model.frozen import Frozen
from podgate.targets.conntrack.state import Flow, State


class Plan(Frozen, frozen=True):
    """What to delete, sorted."""

    cut: tuple[Flow, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.cut)

    def __str__(self) -> str:
        return "\n".join(f"- connection {flow}" for flow in self.cut)

    def touches(self) -> Collection[Flow]:
        """Give nothing: no entry is refused by itself."""
        return ()


def diff(have: State, want: State) -> Plan:
    """Give the plan."""
    return Plan(tuple(sorted((flow for flow in have.flows - want.flows if _is_barred(flow, have, want)), key=str)))


def _is_barred(flow: Flow, have: State, want: State) -> bool:
    return (
        flow.protocol == "tcp"
        and flow.source not in have.own
        and any(
            flow.destination == each.destination
            and flow.destination_port in each.ports
            and flow.answerer not in each.answerers
            for each in want.barred
        )
    )
