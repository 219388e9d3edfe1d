"""taints: Nodes with a taint that is to go, and the request that takes it away. Pure.

Here: the state, its plan, and one request for each Node. Not here: sending (untainting.py), which Nodes (a feature's
compile).
Invariant: what is removed is the taint that was seen, from the Node that it was seen on: one that changed meanwhile
refuses the patch.
"""

from collections.abc import Collection
from typing import Any, Final

import msgspec

from podgate.kubeapi.requests import Request, path_of
from podgate.model.frozen import Frozen
from podgate.model.kinds.nodes import NODE
from podgate.model.tally import tally

JSON_PATCH: Final = "application/json-patch+json"
"""RFC 6902; a merge patch would replace the whole list of taints."""


class Tainted(Frozen, frozen=True, order=True):
    """A Node with a taint: its name, which Node of that name, the taint's key, and where in the list it stands."""

    node: str
    uid: str
    key: str
    places: tuple[int, ...]


class Taints(Frozen, frozen=True):
    """The Nodes whose taint is to go."""

    nodes: frozenset[Tainted] = frozenset()


class Plan(Frozen, frozen=True):
    """The Nodes to free."""

    nodes: tuple[Tainted, ...]

    def __bool__(self) -> bool:
        return bool(self.nodes)

    def __str__(self) -> str:
        return "\n".join(f"- Node/{each.node}: taint {each.key}" for each in self.nodes)

    def brief(self) -> str:
        """Say how many."""
        return tally({"taint": len(self.nodes)})

    def touches(self) -> Collection[Tainted]:
        """Give the Nodes."""
        return self.nodes

    def without(self, refused: Collection[Tainted], /) -> "Plan":
        """Give what is left without these keys."""
        return Plan(tuple(each for each in self.nodes if each not in refused))


def removal(tainted: Tainted) -> Request:
    """Ask for the removal, of just what was seen."""
    operations: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/uid", "value": tainted.uid}]
    for place in sorted(tainted.places, reverse=True):
        operations.append({"op": "test", "path": f"/spec/taints/{place}/key", "value": tainted.key})
        operations.append({"op": "remove", "path": f"/spec/taints/{place}"})
    path = path_of(NODE, name=tainted.node)
    body = msgspec.json.encode(operations)
    return Request("PATCH", path, body=body, content_type=JSON_PATCH, what=f"untaint Node/{tainted.node}")
