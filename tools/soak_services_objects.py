"""Services and their slices as chance has them, for ``./dev soak services``.

Here: what one Service looks like, how it changes, as manifests. Not here: who gets them (soak_services.py).
Invariant: a Service that is ``served`` has, in every state and between two, an endpoint on node-1 that answers, so
clients anywhere reach it whatever its policies are; and no two Services want one address or port.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from podgate.features.services.intent import FAMILIES
from podgate.lab.kinds import Object
from podgate.model.machine import Family
from tests.support.service_flows import NODES, WORLDS
from tests.support.services_agent import PROXY_NAME

NAMESPACE: Final = "soak"
PORT: Final = 80
LOCAL: Final = ("local-1", "local-2")
PLACES: Final = (*LOCAL, "remote-1", "remote-2")
STATES: Final[tuple[Mapping[str, bool], ...]] = (
    {"ready": True, "serving": True, "terminating": False},
    {"ready": False, "serving": True, "terminating": True},
    {"ready": False, "serving": False, "terminating": False},
)
"""From the best to the worst."""

_FIRST_NODE_PORT: Final = 31000
_FIRST_HEALTH_CHECK: Final = 32000


class Shape(msgspec.Struct, frozen=True):
    """One Service.

    Attributes:
        number: its own; addresses and ports come from it.
        served: whether clients must always reach it.
        endpoints: by place: the slice that each stands in, and its state.
    """

    number: int
    served: bool = False
    families: tuple[Family, ...] = FAMILIES
    type: str = "NodePort"
    protocol: str = "TCP"
    port_name: str = "http"
    target: int = 8080
    internal: str = "Cluster"
    external: str = "Cluster"
    affinity: str = "None"
    proxy: str = ""
    endpoints: Mapping[str, tuple[int, int]] = msgspec.field(default_factory=lambda: {"local-1": (1, 0)})

    @property
    def name(self) -> str:
        return f"{'served' if self.served else 'any'}-{self.number}"

    @property
    def node_port(self) -> int:
        return _FIRST_NODE_PORT + self.number

    def address(self, family: Family) -> str:
        """Give its cluster IP."""
        return f"10.96.1.{self.number}" if family == "ip" else f"fd00:10:96::1{self.number:02x}"


def changed(shape: Shape, chance: random.Random) -> Shape:
    """Change something of a Service, or several things at once."""
    fresh = shape
    for _ in range(chance.choice((1, 1, 2, 4))):
        field = chance.choice(_FREE if not shape.served else _SERVED)
        value = _endpoints(chance, served=shape.served) if field == "endpoints" else chance.choice(_VALUES[field])
        fresh = msgspec.structs.replace(fresh, **{field: value})
    return fresh


_VALUES: Final[Mapping[str, tuple[Any, ...]]] = {
    "families": (FAMILIES, FAMILIES, ("ip",)),
    "type": ("ClusterIP", "NodePort", "LoadBalancer", "ExternalName"),
    "protocol": ("TCP", "UDP"),
    "port_name": ("http", "web", ""),
    "target": (8080, 9090),
    "internal": ("Cluster", "Local"),
    "external": ("Cluster", "Local"),
    "affinity": ("None", "ClientIP"),
    "proxy": ("", "", "other"),
}
_FREE: Final = (*_VALUES, "endpoints", "endpoints", "endpoints")
_SERVED: Final = ("internal", "external", "affinity", "target", "endpoints", "endpoints", "endpoints")


def _endpoints(chance: random.Random, *, served: bool) -> dict[str, tuple[int, int]]:
    found = {
        place: (chance.choice((1, 2)), chance.choice((0, 0, 0, 1, 2))) for place in PLACES if chance.random() < 0.5
    }
    if served:
        found[chance.choice(LOCAL)] = (chance.choice((1, 2)), 0)
    return found


def objects(shape: Shape, before: Shape | None = None) -> Iterator[Object]:
    """Give the manifests, the slices first: who gets ready endpoints has them before a policy asks for them.

    With ``before`` they say what stands between two states when objects are written one after the other, as in a
    roll-out: what is new is there before what is old goes, so each slice has the endpoints of both, in their better
    state.
    """
    states = [(place, found[1]) for each in (shape, before) if each for place, found in each.endpoints.items()]
    best = {place: min(state for name, state in states if name == place) for place, _ in states}
    for family in shape.families if shape.type != "ExternalName" else ():
        for part in (1, 2):
            places = {
                place: None
                for each in (before, shape)
                if each
                for place, (where, _) in each.endpoints.items()
                if where == part
            }
            yield _slice(shape, family, part, {place: best[place] for place in places})
    yield _service(shape)


def _slice(shape: Shape, family: Family, part: int, endpoints: Mapping[str, int]) -> Object:
    world = WORLDS[family]
    number = shape.target if shape.protocol == "TCP" else 8080
    found = [
        {"addresses": [world[place]], "nodeName": NODES[place not in LOCAL], "conditions": dict(STATES[state])}
        for place, state in endpoints.items()
    ]
    port = {"name": "http", "port": number, "protocol": shape.protocol}
    made = _slice_of(shape.name, f"{shape.name}-{family}-{part}", world["address-type"], port, found)
    made["metadata"]["labels"] |= _proxy(shape)
    return made


def _slice_of(
    service: str,
    name: str,
    address_type: str,
    port: Mapping[str, Any],
    endpoints: Sequence[Mapping[str, Any]],
) -> Object:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": address_type,
        "ports": [dict(port)],
        "endpoints": list(endpoints),
    }


def _proxy(shape: Shape) -> dict[str, str]:
    return {PROXY_NAME: shape.proxy} if shape.proxy else {}


def _service(shape: Shape) -> Object:
    spec: dict[str, Any] = {"type": shape.type, "sessionAffinity": shape.affinity}
    port: dict[str, Any] = {"name": shape.port_name, "port": PORT, "protocol": shape.protocol}
    if shape.type == "ExternalName":
        spec = {"type": shape.type, "externalName": "www.example.net"}
    else:
        addresses = [shape.address(family) for family in shape.families]
        spec |= {
            "clusterIP": addresses[0],
            "clusterIPs": addresses,
            "ipFamilies": [WORLDS[family]["address-type"] for family in shape.families],
            "ipFamilyPolicy": "RequireDualStack" if len(addresses) > 1 else "SingleStack",
            "internalTrafficPolicy": shape.internal,
            "ports": [port],
        }
    if shape.type in ("NodePort", "LoadBalancer"):
        port["nodePort"] = shape.node_port
        spec["externalTrafficPolicy"] = shape.external
    if shape.type == "LoadBalancer" and shape.external == "Local":
        spec["healthCheckNodePort"] = _FIRST_HEALTH_CHECK + shape.number
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": shape.name, "namespace": NAMESPACE, "labels": _proxy(shape)},
        "spec": spec,
    }


def crowd(count: int) -> Iterator[Object]:
    """Give many Services that nobody asks for, each with an endpoint."""
    for number in range(count):
        high, low = divmod(number, 250)
        name = f"crowd-{number}"
        yield {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"clusterIP": f"10.96.{10 + high}.{low}", "ports": [{"port": PORT}]},
        }
        endpoint = {"addresses": [f"10.180.{10 + high}.{low}"], "nodeName": NODES[1]}
        yield _slice_of(name, name, "IPv4", {"name": "", "port": 8080}, [endpoint])


BAD: Final = (
    {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "shape", "namespace": NAMESPACE},
        "spec": {"ports": 7},
    },
    {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "any-1"}, "spec": None},
    {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "address", "namespace": NAMESPACE},
        "spec": {"clusterIP": "10.96.1.300", "ports": [{"port": 80}]},
    },
    {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "thief", "namespace": NAMESPACE},
        "spec": {"clusterIP": "10.96.9.1", "externalIPs": ["10.96.1.1", "fd00:10:96::101"], "ports": [{"port": 80}]},
    },
    _slice_of(
        "served-1",
        "bad-slice",
        "IPv4",
        {"name": "http", "port": 99999},
        [{"addresses": ["no address"]}, {"addresses": ["fd00::1"]}],
    ),
)
"""Objects that are wrong and must take nothing from others; no API server takes them."""
