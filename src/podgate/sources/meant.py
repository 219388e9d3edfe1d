"""meant: which watched kind an object of no such kind was probably meant to be. Pure.

Here: the rule, and the complaint. Not here: reading files, and which of their objects it is about (objects.py).
Invariant: a kind of somebody else's is never complained about, whatever its name: Knative has a Service, Longhorn a
Node. Only a group of Kubernetes' own, or one that looks like the right one, can be a slip.
"""

from collections.abc import Collection
from typing import Any, Final

from podgate.model.frozen import Frozen
from podgate.model.kinds.meta import OWN_GROUP
from podgate.model.snapshot import Kind
from podgate.model.spelling import nearest

_OTHERS: Final = ("APIService", "CSINode", "Config", "Endpoints", "Secret", "ServiceAccount")
"""Kinds of Kubernetes 1.36 that no feature reads, with names like those that one does; Config is a kubeconfig."""


class Meant(Frozen, frozen=True):
    """What was probably meant, and what was written in its place."""

    kind: Kind[Any]
    api_version: str
    name: str

    @property
    def key(self) -> str:
        """Where the slip is: ``kind`` or ``apiVersion``."""
        return "apiVersion" if self.name == self.kind.kind else "kind"

    @property
    def reason(self) -> str:
        """The reason of the problem."""
        return "UnknownVersion" if self.key == "apiVersion" else "UnknownKind"

    def message(self, first: str, count: int) -> str:
        """Say what is ignored of a file: ``count`` objects, the first of that name, which may be empty."""
        more = f" and {count - 1} more of this file are" if count > 1 else " is"
        ignored = f"so {first or 'this object'}{more} ignored"
        right = self.kind.api_version
        if self.key == "apiVersion":
            return f'{self.name} is not read as "{self.api_version}", {ignored}: write apiVersion: {right}'
        of = "" if self.api_version == right else f" of {right}"
        return f'"{self.name}" is no kind that is read here (did you mean "{self.kind.kind}"{of}?), {ignored}'


def meant(api_version: str, name: str, kinds: Collection[Kind[Any]]) -> Meant | None:
    """Give what an object that is none of some watched kinds was meant to be; None where it is something else."""
    by_name = {kind.kind: kind for kind in kinds}
    if name in by_name:
        found = by_name[name]
        is_slip = found.group == OWN_GROUP or _may_be(api_version, found)
        return Meant(found, api_version, name) if is_slip else None
    if name in _OTHERS or name.endswith("List"):  # a list without items is no object
        return None
    near = by_name.get(nearest(name, (*by_name, *_OTHERS)) or "")
    return Meant(near, api_version, name) if near is not None and _may_be(api_version, near) else None


def _may_be(api_version: str, kind: Kind[Any]) -> bool:
    """Say whether a group can be a slip of a kind's own; that of a custom kind is a domain, with dots."""
    group = api_version.rpartition("/")[0]
    return "." not in group or group.endswith(".k8s.io") or nearest(group, (kind.group,)) is not None
