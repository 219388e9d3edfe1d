"""Frozen: the base of every value in podgate.

Here: the one struct base and the reference to an object.
Not here: values of a particular feature or kind.
Invariant: a value never changes after it was made; whoever wants another makes another.
"""

import msgspec


class Frozen(msgspec.Struct, frozen=True, kw_only=False):
    """An immutable struct: compared and hashed by value, decoded and encoded by msgspec."""


class ObjectRef(Frozen, frozen=True, order=True):
    """Names one object that a user wrote: a Kubernetes object, or a file on this node (kind ``File``, name its path).

    It says which object, never which version of it or where in a file it stands.
    """

    kind: str
    name: str
    namespace: str = ""

    def __str__(self) -> str:
        """Show ``Kind/namespace/name``, ``Kind/name``, or the bare path of a file."""
        if self.kind == "File":
            return self.name
        return f"{self.kind}/{self.namespace}/{self.name}" if self.namespace else f"{self.kind}/{self.name}"


def file_ref(path: str) -> ObjectRef:
    """Give the reference to a file on this node."""
    return ObjectRef(kind="File", name=path)
