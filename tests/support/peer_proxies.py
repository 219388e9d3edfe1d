"""kube-proxy and podgate on one node, told the same objects: what is compared again and again.

Here: the objects in a real API server, kube-proxy on a node's namespace, its rules, what its health
check ports say.
Not here: objects by chance (peer_clusters.py), packets and answers (peer_answers.py).
Invariant: podgate gets what the API server has, never what was sent to it; rules are read once kube-proxy has written
an object that came after all others.
"""

import json
import random
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from threading import local
from typing import Any, Final, NamedTuple

from podgate.lab.kinds import Object
from podgate.model.machine import Family
from tests.support.cluster import ControlPlane
from tests.support.kube_proxy import configuration, fields_of, kube_proxy, relay
from tests.support.netns import NetNamespace, netns
from tests.support.peer_answers import LENGTHS, OWN, POD_INTERFACE, Podgate, Rules, Told
from tests.support.peer_chains import Chains, read_saved
from tests.support.peer_clusters import (
    FAMILIES,
    NAMESPACES,
    NODES,
    RANGES,
    SECOND,
    TYPES,
    Chance,
    node_objects,
    pod_address,
)
from tests.support.peer_ruleset import Ruleset
from tests.support.poll import poll

_PATHS: Final = {
    "Service": "/api/v1/namespaces/{}/services",
    "EndpointSlice": "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices",
}
_LISTS: Final = {
    "Service": ("v1", "/api/v1/services"),
    "EndpointSlice": ("discovery.k8s.io/v1", "/apis/discovery.k8s.io/v1/endpointslices"),
    "Node": ("v1", "/api/v1/nodes"),
    "ServiceCIDR": ("networking.k8s.io/v1", "/apis/networking.k8s.io/v1/servicecidrs"),
}
_CONFLICT, _MISSING, _REFUSED, _ODD_REFUSAL = 409, 404, 422, 500
_MARKERS: Final = "marker"
_SAVES: Final[Mapping[Family, str]] = {"ip": "iptables-save", "ip6": "ip6tables-save"}
_WRITERS: Final = 4
_IDLE: Final = 20.0
"""Seconds after which a connection is opened anew: the API server ends those that are idle."""


class Api:
    """The API server, as its administrator, over connections that stay open."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane, self._thread = plane, local()
        self._pool = ThreadPoolExecutor(_WRITERS)
        self._open: list[HTTPSConnection] = []
        self.written = self.refused = self.marked = 0

    def ask(self, verb: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Send a request; give its code and the answer."""
        if not hasattr(self._thread, "connection"):
            self._thread.connection = self.plane.connection()
            self._open.append(self._thread.connection)
        elif time.monotonic() - self._thread.asked > _IDLE:
            self._thread.connection.close()  # the next request opens it again
        self._thread.asked = time.monotonic()
        data = None if body is None else json.dumps(body)
        self._thread.connection.request(verb, path, data, {"Content-Type": "application/json"})
        response = self._thread.connection.getresponse()
        return response.status, json.loads(response.read())

    def close(self) -> None:
        """End the connections."""
        self._pool.shutdown()
        for each in self._open:
            each.close()

    def change(self, removed: Iterable[Object], changed: Iterable[tuple[Object, Object | None]]) -> None:
        """Delete objects, then put others, several at once."""
        list(self._pool.map(self.remove, removed))
        list(self._pool.map(lambda pair: self.put(*pair), changed))

    def put(self, obj: Object, have: Object | None = None) -> None:
        """Make an object, or replace what is there; one that is refused stays as it was."""
        path = _PATHS[obj["kind"]].format(obj["metadata"]["namespace"])
        named = f"{path}/{obj['metadata']['name']}"
        body = {key: value for key, value in obj.items() if key != "status"}
        if have is None:
            code, made = self.ask("POST", path, body)
        else:
            version = {"resourceVersion": have["metadata"]["resourceVersion"]}
            code, made = self.ask("PUT", named, {**body, "metadata": {**obj["metadata"], **version}})
        assert code in (200, 201, _CONFLICT, _REFUSED, _ODD_REFUSAL), made
        self.written += 1
        if code not in (200, 201):
            self.refused += 1
        elif "status" in obj:
            code, made = self.ask("PUT", f"{named}/status", {**made, "status": obj["status"]})
            assert code == 200, made

    def remove(self, obj: Object) -> None:
        """Delete an object."""
        path = f"{_PATHS[obj['kind']].format(obj['metadata']['namespace'])}/{obj['metadata']['name']}"
        code, answer = self.ask("DELETE", path)
        assert code in (200, _MISSING), answer

    def objects(self) -> list[Object]:
        """Give all objects that a proxy looks at."""
        found: list[Object] = []
        for kind, (version, path) in _LISTS.items():
            code, answer = self.ask("GET", path)
            assert code == 200, answer
            found += [{"apiVersion": version, "kind": kind, **each} for each in answer["items"]]
        return found

    def namespace(self, name: str) -> None:
        """Make a namespace."""
        code, answer = self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        assert code in (201, _CONFLICT), answer

    def clear(self) -> None:
        """Remove what was made, but for the namespaces: other tests of this control plane begin without it."""
        for each in self.objects():
            if each["metadata"].get("namespace") in {*NAMESPACES, _MARKERS}:
                self.remove(each)
        for name in NODES:
            self.ask("DELETE", f"/api/v1/nodes/{name}")

    def node(self, node: Object) -> None:
        """Make a Node anew."""
        self.ask("DELETE", f"/api/v1/nodes/{node['metadata']['name']}")
        code, answer = self.ask("POST", "/api/v1/nodes", node)
        assert code == 201, answer


class Snapshot(NamedTuple):
    """One moment.

    Attributes:
        objects: all of them, as the API server has them.
        rules: what kube-proxy made of them.
        health: how many endpoints its health check node ports count; None where nobody listens.
        told: what podgate made of them.
        mode: kube-proxy's, and podgate's back end.
    """

    objects: list[Object]
    rules: Mapping[Family, Rules]
    health: Mapping[tuple[int, Family], int | None]
    told: Told
    mode: str


class Peers:
    """Both programs with one set of options.

    Args:
        api: where the objects are.
        node: where kube-proxy runs.
        podgate: podgate with the same options.
    """

    def __init__(self, api: Api, node: NetNamespace, podgate: Podgate) -> None:
        self.api, self._node, self._podgate = api, node, podgate
        self.mode = podgate.settings.backend
        second = SECOND["ip"].rpartition(".")[0] in podgate.settings.nodeport_addresses
        self._asked_at = {family: OWN[family][second] for family in FAMILIES}

    def change(self, chance: Chance, share: float) -> Snapshot:
        """Change a share of all Services, and give what both make of it."""
        have = {(each["kind"], _place(each)): each for each in self.api.objects() if each["kind"] in _PATHS}
        removed: list[Object] = []
        changed: list[tuple[Object, Object | None]] = []
        for namespace, name, wanted in chance.objects(share):
            there = {key: each for key, each in have.items() if _is_of(each, namespace, name)}
            anew = chance.random.random() < 0.4
            kept = {} if anew else {(each["kind"], _place(each)): each for each in wanted}
            removed += [each for key, each in there.items() if key not in kept]
            changed += [(each, None if anew else there.get((each["kind"], _place(each)))) for each in wanted]
        self.api.change(removed, changed)
        return self.seen()

    def seen(self) -> Snapshot:
        """Give what both make of what is there."""
        self._mark()
        objects = self.api.objects()
        rules = {family: self._rules(family) for family in FAMILIES}
        ports = {
            each["spec"]["healthCheckNodePort"] for each in objects if "healthCheckNodePort" in each.get("spec", {})
        }
        health = self._node.call(
            lambda: {(port, f): _health(self._asked_at[f], port) for port in ports for f in FAMILIES}
        )
        return Snapshot(objects, rules, health, self._podgate.told(objects), self.mode)

    def _rules(self, family: Family) -> Rules:
        if self.mode == "iptables":
            return Chains(read_saved(self._node.run(_SAVES[family]), family), OWN[family])
        listed = json.loads(self._node.run("nft", "-j", "list", "table", family, "kube-proxy"))
        return Ruleset(listed, OWN[family])

    def _mark(self) -> None:
        """Write a Service that comes after all others, and wait until kube-proxy has written it."""
        old = [each for each in self.api.objects() if each["metadata"].get("namespace") == _MARKERS]
        for each in old:
            self.api.remove(each)
        self.api.marked += 1
        for family in FAMILIES:
            for each in _marker(family, self.api.marked):
                self.api.put(each)
        for family in FAMILIES:
            address = _marker_address(family, self.api.marked)
            poll(lambda family=family, address=address: self._has(family, address), timeout=60.0)  # type: ignore[misc]

    def _has(self, family: Family, address: str) -> bool:
        if self.mode == "iptables":
            return f"-d {address}/" in self._node.run(_SAVES[family], "-t", "nat")
        key = f"{{ {address} . tcp . 8080 }}"
        return bool(self._node.run("nft", "get", "element", family, "kube-proxy", "service-ips", key, check=False))


def _health(address: str, port: int) -> int | None:
    """Ask a health check node port how many endpoints are ready; None where nobody listens."""
    connection = HTTPConnection(address, port, timeout=10)
    try:
        connection.request("GET", "/")
        return int(json.loads(connection.getresponse().read())["localEndpoints"])
    except ConnectionRefusedError:
        return None
    finally:
        connection.close()


def _place(obj: Object) -> str:
    return f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"


def _is_of(obj: Object, namespace: str, name: str) -> bool:
    """Whether an object is a Service's, by its name: labels change."""
    metadata = obj["metadata"]
    return (metadata.get("namespace"), metadata["name"].split("-")[0]) == (namespace, name)


def _marker_address(family: Family, number: int) -> str:
    return f"10.96.{128 + number // 256}.{number % 256}" if family == "ip" else f"fd00:10:96::{0x8000 + number:x}"


def _marker(family: Family, number: int) -> Iterator[Object]:
    metadata = {"name": f"{family}-{number}", "namespace": _MARKERS}
    port = {"port": 8080, "protocol": "TCP"}
    spec = {"clusterIP": _marker_address(family, number), "ports": [port]}
    yield {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
    yield {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {**metadata, "labels": {"kubernetes.io/service-name": metadata["name"]}},
        "addressType": TYPES[family],
        "endpoints": [{"addresses": [pod_address(family, 0, 1)], "nodeName": NODES[0]}],
        "ports": [port],
    }


@contextmanager
def peer_node(plane: ControlPlane) -> Iterator[tuple[Api, NetNamespace]]:
    """Make node-1's network for the body, from where the API server is reached; at the end nothing is left there."""
    with closing(Api(plane)) as api, netns() as node:
        for name in (*NAMESPACES, _MARKERS):
            api.namespace(name)
        node.run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth1")
        for device in ("eth0", "eth1"):
            node.run("ip", "link", "set", device, "up")
        for family in FAMILIES:
            for each in OWN[family]:
                flags = ["nodad"] if family == "ip6" else []
                node.run("ip", "address", "add", f"{each}/{LENGTHS[family]}", "dev", "eth0", *flags)
        with relay(plane, node):
            try:
                yield api, node
            finally:
                api.clear()


@contextmanager
def peers(api: Api, node: NetNamespace, folder: Path, options: Mapping[str, Any], zone: str = "") -> Iterator[Peers]:
    """Run kube-proxy for the body.

    Args:
        api: the API server.
        node: node-1's network.
        folder: for its file and log.
        options: of podgate, by the name of the field.
        zone: node-1's; empty for none.
    """
    for each in node_objects(zone):
        api.node(each)
    mode = options["backend"]
    config = configuration(NODES[0], mode, api.plane.kubeconfig, **fields_of(_without_mode(options), mode))
    with kube_proxy(node, config, folder):
        yield Peers(api, node, Podgate(options))


def _without_mode(options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key != "backend"}


def options_by(chance: random.Random, mode: str) -> dict[str, Any]:
    """Draw options of a node in a mode."""
    local: Iterable[dict[str, Any]] = (
        {"cluster_cidr": ",".join(RANGES)},
        {"cluster_cidr": ",".join(RANGES)},
        {"cluster_cidr": ""},
        {"detect_local_mode": "NodeCIDR"},
        {"detect_local_mode": "InterfaceNamePrefix", "pod_interface_name_prefix": "veth"},
        {"detect_local_mode": "BridgeInterface", "pod_bridge_interface": POD_INTERFACE},
    )
    opened = ("primary", "primary", "all", "10.140.0.0/24,fd00:140::/64", "10.141.0.0/24")
    return {
        "backend": mode,
        **chance.choice(tuple(local)),
        "masquerade_all": chance.random() < 0.2,
        "nodeport_addresses": chance.choice(opened),
        "external_ips": chance.random() < 0.85,
    }
