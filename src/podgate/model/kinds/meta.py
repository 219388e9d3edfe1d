"""What every Kubernetes object has: its metadata, and the way to its reference.

Here: ObjectMeta, owner references, the struct base of all kinds, bounds of a kind, podgate's own group. Not here: any
particular kind.
Invariant: field names are exactly the API's (camelCase, with its own spelling of IP), and each absent field has the
API's default.
"""

from collections.abc import Mapping
from typing import Any, Final, Protocol, TypeVar

from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.snapshot import Kind

OWN_GROUP: Final = "podgate.dev"
"""The API group of podgate's own kinds."""


class ApiStruct(Frozen, frozen=True, rename="camel", gc=False):
    """The base of all structs that decode API JSON.

    They hold no cycles, so the garbage collector need not look at them.
    """


class Bounds(Frozen, frozen=True):
    """How much is held of a kind whose objects many may make. A kind has it as ``bounds``.

    Attributes:
        page: objects of one page of a list, each as long as the API takes it; a page is in memory as a whole.
        size: of all objects together, in bytes of JSON; what they say alike counts once. In memory it is up to three
            times as much.
        faults: complaints about single objects that are remembered; there may be any number of bad ones.
    """

    page: int
    size: int
    faults: int


class OwnerReference(ApiStruct, frozen=True, rename="camel", gc=False):
    """Who owns an object. ``controller``: whether that owner is its managing controller."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(ApiStruct, frozen=True, rename="camel", gc=False):
    """The ``metadata`` of an object. Time stamps are the API's RFC 3339 text; None while there is none.

    Encoders of Go programs write ``creationTimestamp: null`` into templates, so null is allowed there.
    """

    name: str = ""
    namespace: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    uid: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    owner_references: tuple[OwnerReference, ...] = ()


class Named(Protocol):
    """The metadata of any object, as far as it says which object that is, and which version of it."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def namespace(self) -> str:
        """Its namespace; empty for none."""
        ...

    @property
    def uid(self) -> str:
        """What tells it from an earlier object of its name; empty outside of an API."""
        ...

    @property
    def generation(self) -> int:
        """Counts the changes of its spec; 0 where nobody counts."""
        ...


class ApiObject(Protocol):
    """Any object of the API, as far as its metadata goes."""

    @property
    def metadata(self) -> Named:
        """Its metadata: ObjectMeta, or a slimmer struct of a kind that there are very many of."""
        ...


def ref_of(kind: Kind[Any], metadata: Named) -> ObjectRef:
    """Give the reference to an object of this kind; a cluster-wide kind has no namespace."""
    return ObjectRef(kind=kind.kind, name=metadata.name, namespace=metadata.namespace if kind.namespaced else "")


StructT = TypeVar("StructT", bound=ApiStruct)


def own_kind(name: str, plural: str, decodes_to: type[StructT]) -> Kind[StructT]:
    """Give a kind of podgate's own; all of them are cluster-wide and ``v1alpha1``."""
    return Kind(group=OWN_GROUP, version="v1alpha1", kind=name, plural=plural, namespaced=False, decodes_to=decodes_to)
