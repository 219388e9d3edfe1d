"""sticky: the clients of Services with affinity that cannot be remembered any more, as this node's problem.

Here: the state of a node in that respect, the plan that says so, the problem. Not here: counting (server/forgotten.py),
the map that remembers them (layout.py).
Invariant: nothing can be done about it here, so each family that is told of is refused, by a key that is the family's.
"""

from collections.abc import Collection

from podgate.features.services.layout import MOST_CLIENTS
from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.kinds.nodes import NODE
from podgate.model.machine import Family
from podgate.model.problems import Problem


class Unremembered(Frozen, frozen=True, order=True):
    """The key of a family whose new clients are not remembered."""

    family: Family

    def __str__(self) -> str:
        return f"new {_name(self.family)} clients with affinity"


class State(Frozen, frozen=True):
    """Of which families new clients are not remembered."""

    families: frozenset[Unremembered] = frozenset()


class Plan(Frozen, frozen=True):
    """The families that are to remember new clients again."""

    families: tuple[Unremembered, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.families)

    def __str__(self) -> str:
        return "\n".join(f"remember {each}" for each in self.families)

    def brief(self) -> str:
        """Say what it does."""
        return str(self)

    def touches(self) -> Collection[Unremembered]:
        """Give the families: each may be refused, and is."""
        return self.families

    def without(self, refused: Collection[Unremembered], /) -> "Plan":
        """Give what is left without families that were refused."""
        return Plan(tuple(each for each in self.families if each not in refused))


def why(key: Unremembered) -> str:
    """Say what happens, and what to do."""
    return (
        f"there is room for {MOST_CLIENTS:,} {_name(key.family)} clients of all Services with affinity (ClientIP), "
        "which is all taken, so new ones have any endpoint each time: lower timeoutSeconds of the Services with most "
        "clients, or leave affinity to what stands before them"
    )


def problem(node: str, message: str) -> Problem:
    """Give it as a problem of this node."""
    return Problem(ObjectRef(NODE.kind, node), "warning", "ClientsNotRemembered", "", message)


def _name(family: Family) -> str:
    return "IPv4" if family == "ip" else "IPv6"
