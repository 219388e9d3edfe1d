"""The same MetadataPolicies from a folder and a real API, through the watching process: what Pods get is the same."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from podgate.linux.namespaces import inside_network
from tests.support.cluster import ControlPlane
from tests.support.kube_proxy import relay
from tests.support.netns import NetNamespace, netns
from tests.support.origins import Api, Folder, Obj, Origin
from tests.support.poll import poll
from tests.support.rights import DEPLOY, grant

CLOUD = ("podgate.lab.peers.clouds", "gce", "--listen", "127.0.0.1:80")
RUN = (
    *("podgate.cli", "metadata", "run", "--addr", "127.0.0.1:988", "--no-firewall", "--node-name", "node-1"),
    *("--upstream", "http://127.0.0.1:80", "--allow-from", "10.16.1.0/24"),
)
PROXY, PAGES = 988, 989
PODS = {"web": "10.16.1.6", "db": "10.16.1.7"}
EVERYBODY = {**PODS, "stranger": "10.16.1.8"}
KUBE_ENV = "/computeMetadata/v1/instance/attributes/kube-env"
SPACE = "metadata-suite"
LAST_GOOD = "what was in force before it stays"


class World(NamedTuple):
    """A proxy, the process that follows Pods for it, and where their objects come from."""

    origin: Origin
    namespace: NetNamespace

    def ask(self, source: str, path: str, port: int) -> str:
        """Give an answer from its first line on; nothing while nobody listens."""

        def inside() -> str:
            head = f"GET {path} HTTP/1.1\r\nHost: metadata\r\nMetadata-Flavor: Google\r\nConnection: close\r\n\r\n"
            try:
                with socket.create_connection(("127.0.0.1", port), 30, source_address=(source, 0)) as connected:
                    connected.sendall(head.encode())
                    return b"".join(iter(lambda: connected.recv(65536), b"")).decode()
            except OSError:
                return ""

        return self.namespace.call(inside)

    def readers(self) -> set[str]:
        """Give who may read kube-env, and codes of answers that are neither yes nor no."""
        answers = {name: self.ask(address, KUBE_ENV, PROXY) for name, address in EVERYBODY.items()}
        codes = {name: answer[9:12] for name, answer in answers.items()}
        return {name if code == "200" else code for name, code in codes.items() if code != "403"}

    def page(self) -> str:
        return self.ask("127.0.0.1", "/readyz", PAGES)


def policy(app: str, path: str = KUBE_ENV) -> Obj:
    subjects = {"podSelector": {"matchLabels": {"app": app}}}
    spec = {"subjects": subjects, "rules": [{"paths": [path], "verdict": "allow"}]}
    base = {"apiVersion": "podgate.dev/v1alpha1", "kind": "MetadataPolicy", "metadata": {"name": "suite"}}
    return {**base, "spec": spec}


def pod(name: str, app: str = "") -> Obj:
    spec = {"nodeName": "node-1", "containers": [{"name": "c", "image": "i"}]}
    status = {"phase": "Running", "podIP": PODS[name], "podIPs": [{"ip": PODS[name]}]}
    metadata = {"name": name, "namespace": SPACE, "labels": {"app": app or name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


OBJECTS: tuple[Obj, ...] = (
    {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}, "spec": {"podCIDRs": ["10.16.1.0/24"]}},
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}},
    pod("web"),
    pod("db"),
)


@pytest.fixture(scope="module", params=("folder", "API"))
def world(
    request: pytest.FixtureRequest, plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    path = tmp_path_factory.mktemp("origin")
    with netns() as namespace:
        for address in EVERYBODY.values():
            namespace.run("ip", "address", "add", f"{address}/32", "dev", "lo")
        grant(plane, DEPLOY / "metadata" / "per-pod", DEPLOY / "metadata" / "customresourcedefinition.yaml")
        origin = Folder(path) if request.param == "folder" else Api(plane)
        try:
            with (
                relay(plane, namespace),
                process(namespace, path / "cloud", *CLOUD),
                process(namespace, path / "proxy", *RUN, *origin.arguments),
            ):
                yield World(origin, namespace)
        finally:
            if isinstance(origin, Api):
                origin.remove_all()


@contextmanager
def process(namespace: NetNamespace, log: Path, *words: str) -> Iterator[None]:
    """Run a module of podgate inside."""
    environ = {name: value for name, value in os.environ.items() if name != "PODGATE_SOURCE"}
    with inside_network(namespace.descriptor), log.open("ab") as output:
        running = subprocess.Popen([sys.executable, "-m", *words], stdout=output, stderr=output, env=environ, cwd="/")
    try:
        yield
    finally:
        running.kill()
        running.wait(60)


@pytest.fixture(autouse=True)
def _as_at_first(world: World) -> None:
    """Have the same objects before each test, whichever were here before it."""
    for each in OBJECTS:
        world.origin.put(each)


def test_a_policy_is_followed_from_its_creation_to_its_removal(world: World) -> None:
    poll(lambda: world.readers() == set())
    world.origin.put(policy("web"))
    poll(lambda: world.readers() == {"web"})
    world.origin.put(policy("db"))
    poll(lambda: world.readers() == {"db"})
    world.origin.remove(policy("db"))
    poll(lambda: world.readers() == set())


def test_a_policy_that_an_edit_broke_stays_as_it_was_and_is_told(world: World) -> None:
    world.origin.put(policy("web"))
    poll(lambda: world.readers() == {"web"})
    world.origin.put(policy("web", "/a/b**c"))
    poll(lambda: LAST_GOOD in world.page())
    assert world.readers() == {"web"}
    world.origin.put(policy("db"))
    poll(lambda: world.readers() == {"db"})
    poll(lambda: LAST_GOOD not in world.page())
    world.origin.remove(policy("db"))
    poll(lambda: world.readers() == set())


def test_labels_of_pods_decide_whom_a_policy_is_for(world: World) -> None:
    world.origin.put(policy("web"))
    poll(lambda: world.readers() == {"web"})
    world.origin.put(pod("db", app="web"))
    poll(lambda: world.readers() == {"web", "db"})
    world.origin.put(pod("web", app="other"))
    poll(lambda: world.readers() == {"db"})
    world.origin.remove(pod("db"))
    poll(lambda: world.readers() == set())
    world.origin.remove(policy("web"))
