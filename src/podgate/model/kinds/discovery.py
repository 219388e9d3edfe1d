"""EndpointSlices: which addresses stand behind a Service.

Here: the EndpointSlice struct and its Kind value. Not here: which endpoint is used (features).
Invariant: each absent field has the API's default: a port without a name is named "", an endpoint of which nobody says
that it is not ready is ready. Metadata is slim: a cluster has tens of thousands of these.
"""

from collections.abc import Hashable
from functools import lru_cache
from typing import Final, TypeVar, cast

import msgspec

from podgate.model.kinds.meta import ApiStruct
from podgate.model.snapshot import Kind


class SliceLabels(ApiStruct, frozen=True, rename="camel", gc=False):
    """The one label that is read: the Service whose endpoints these are, in the slice's namespace."""

    service_name: str = msgspec.field(default="", name="kubernetes.io/service-name")


class SliceAnnotations(ApiStruct, frozen=True, rename="camel", gc=False):
    """The one annotation that is read: when the Pod or Service last changed that this slice tells of (RFC 3339)."""

    last_change: str = msgspec.field(default="", name="endpoints.kubernetes.io/last-change-trigger-time")


class SliceMeta(ApiStruct, frozen=True, rename="camel", gc=False):
    """Who it is, and what for."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    labels: SliceLabels = SliceLabels()
    annotations: SliceAnnotations = SliceAnnotations()


class Conditions(ApiStruct, frozen=True, rename="camel", gc=False):
    """The state of an endpoint; nil stands for ready, serving and not terminating."""

    ready: bool = True
    serving: bool = True
    terminating: bool = False


class NamedHint(ApiStruct, frozen=True, rename="camel", gc=False):
    """A zone, or a node, whose clients should use this endpoint."""

    name: str = ""


class Hints(ApiStruct, frozen=True, rename="camel", gc=False):
    """For whose clients an endpoint is meant (KEP-2433, KEP-3015)."""

    for_zones: tuple[NamedHint, ...] = ()
    for_nodes: tuple[NamedHint, ...] = ()


class TargetRef(ApiStruct, frozen=True, rename="camel", gc=False):
    """The object behind an endpoint, as far as it tells two of them apart."""

    uid: str = ""


class Endpoint(ApiStruct, frozen=True, rename="camel", gc=False):
    """One endpoint. Of its addresses only the first one is used; ``node_name`` empty: nobody says where it is.

    There may be hundreds of thousands, so those in one state and on one node share the values that say so.
    """

    addresses: tuple[str, ...] = ()
    conditions: Conditions = Conditions()
    node_name: str = ""
    hints: Hints = Hints()
    target_ref: TargetRef | None = None

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "conditions", _shared(self.conditions))
        msgspec.structs.force_setattr(self, "node_name", _shared(self.node_name))


_T = TypeVar("_T", bound=Hashable)


def _shared(value: _T) -> _T:
    """Give the value that was made first of those that are equal to it."""
    return cast("_T", _first(value))


@lru_cache(maxsize=1 << 14)
def _first(value: Hashable) -> Hashable:
    return value


class EndpointPort(ApiStruct, frozen=True, rename="camel", gc=False):
    """One port of all endpoints of a slice; 0 where none is given, which means all ports."""

    name: str = ""
    protocol: str = "TCP"
    port: int = 0


class EndpointSlice(ApiStruct, frozen=True, rename="camel", gc=False):
    """Some of a Service's endpoints; ``address_type`` is ``IPv4``, ``IPv6`` or ``FQDN``."""

    metadata: SliceMeta = SliceMeta()
    address_type: str = ""
    endpoints: tuple[Endpoint, ...] = ()
    ports: tuple[EndpointPort, ...] = ()


ENDPOINT_SLICE: Final[Kind[EndpointSlice]] = Kind(
    group="discovery.k8s.io",
    version="v1",
    kind="EndpointSlice",
    plural="endpointslices",
    namespaced=True,
    decodes_to=EndpointSlice,
)
