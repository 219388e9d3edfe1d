"""deploy/services on a real API: from a node without any rule to answers, with no right that is not needed.

Here: the manifests as a user applies them, and kubeadm's with another image. Not here: single flows
(tests/agent/test_services_flows.py).
Invariant: the agents log in with their service account's token, at the API server's own address.
"""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster.test_doctor import doctor
from tests.support.cluster import ADVERTISED, ControlPlane
from tests.support.controlplane import build
from tests.support.lab import CLI, TestLab, lab
from tests.support.poll import poll
from tools.demo_services import PROBE

pytestmark = [pytest.mark.kernel, pytest.mark.lab, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy" / "services"
SERVICE: Final = "http://10.96.0.80/"
NODES: Final = ("node/node-1", "node/node-2")
UPSTREAM: Final = ROOT / "tests" / "data" / "upstream" / "kube-proxy.yaml"
ASK: Final = """
import json, sys, urllib.request as r
for _ in range(int(sys.argv[2])):
    print(json.load(r.urlopen(sys.argv[1], timeout=float(sys.argv[3])))["hostname"])
"""


EXTERNAL: Final = "192.0.2.80"
CLAIMS: Final = """
apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec:
  externalIPs: [{address}]
  ports: [{{port: 80}}]
"""


def manifests(plane: ControlPlane) -> list[str]:
    """Give deploy/services with the address that its ConfigMap asks for."""
    texts = [path.read_text() for path in sorted(DEPLOY.iterdir())]
    real = f"https://{ADVERTISED}:{plane.ports.api}"
    assert sum("https://api-server.invalid:6443" in text for text in texts) == 1
    return [text.replace("https://api-server.invalid:6443", real) for text in texts]


REAL: Final = """
mkdir -p "$0/local/bin" && cp "$1" "$0/local/bin/kube-proxy" && shift &&
mount -t overlay -o "lowerdir=$0:/usr" none /usr && exec "$@"
"""
"""Starts a program that finds the real kube-proxy where its image has it, and all else as this machine has it."""


@pytest.fixture(scope="module")
def running(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestLab]:
    real = str(build(("kube-proxy",)) / "kube-proxy")
    under = ("unshare", "--mount", "sh", "-c", REAL, str(tmp_path_factory.mktemp("image")), real)
    with lab(ROOT / "examples" / "services", name="services", kubeconfig=plane.kubeconfig, under=under) as started:
        yield started
        started.run("delete", "service/hello", "deployment/hello", "pod/client")
        # A test that failed must not leave a proxy to the labs after it.
        started.run("delete", "-n", "kube-system", "daemonset/kube-proxy", check=False)


def answered(running: TestLab, count: int = 1) -> set[str]:
    """Ask the Service from the client; who answered, or nobody."""
    seconds = "2" if count == 1 else "20"  # one is asked for until somebody answers
    words = [sys.executable, "-c", ASK, SERVICE, str(count), seconds]
    return set(running.execute("client", *words, check=False).split())


def pods(plane: ControlPlane, namespace: str, label: str) -> set[str]:
    """Give the names of Pods by their label."""
    selected = f"/api/v1/namespaces/{namespace}/pods?labelSelector={label.replace('=', '%3D')}"
    return {pod["metadata"]["name"] for pod in json.loads(plane.get(selected)[1])["items"]}


def test_it_starts_on_nodes_without_rules_and_serves(plane: ControlPlane, running: TestLab) -> None:
    assert answered(running) == set()
    running.apply(*manifests(plane))
    poll(lambda: answered(running))
    assert answered(running, 40) == pods(plane, "default", "app=hello")
    logs = [running.logs(f"kube-system/{name}") for name in pods(plane, "kube-system", "k8s-app=kube-proxy")]
    assert len(logs) == 2
    assert all("applied" in text and "orbidden" not in text for text in logs), logs
    # Each agent is ready and has reported; the reports come a moment after the rules.
    poll(lambda: "bad" not in (found := verdicts(plane)).values() and found["services: nodes"] == "ok")
    assert running.execute("client", *CURL, "https://10.96.0.1/livez") == "ok", "the API server is a Service, too"
    with mirrored(plane):
        poll(lambda: running.execute("client", *CURL, MIRRORED, check=False))
    cleaned(running)


CURL: Final = ("curl", "-sk", "--max-time", "20")
MIRRORED: Final = "http://10.96.0.90/"


@contextmanager
def mirrored(plane: ControlPlane) -> Iterator[None]:
    """Have a Service without a selector for the body, with Endpoints by hand, which a controller makes a slice of."""
    path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
    slices = json.loads(plane.get(path)[1])["items"]
    (found,) = (one for one in slices if one["metadata"]["labels"].get("kubernetes.io/service-name") == "hello")
    metadata = {"name": "mirrored", "namespace": "default"}
    addresses = [{"ip": endpoint["addresses"][0]} for endpoint in found["endpoints"]]
    made = {
        "services": {"metadata": metadata, "spec": {"clusterIP": "10.96.0.90", "ports": [{"port": 80}]}},
        "endpoints": {
            "metadata": metadata,
            "subsets": [{"addresses": addresses, "ports": [{"port": found["ports"][0]["port"]}]}],
        },
    }
    for plural, obj in made.items():
        code, answer = plane.request("POST", f"/api/v1/namespaces/default/{plural}", obj)
        assert code == 201, answer
    try:
        yield
    finally:
        for plural in made:
            plane.request("DELETE", f"/api/v1/namespaces/default/{plural}/mirrored")


def verdicts(plane: ControlPlane) -> dict[str, str]:
    """Give what doctor says of the agents, by what it is about."""
    return {name: verdict for name, (verdict, _) in doctor(plane.kubeconfig, "--feature", "services")[1].items()}


class Client:
    """Asks the Service again and again, with a connection for each request."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.hosts: Counter[str] = Counter()
        self.failures: list[str] = []

    def end(self) -> None:
        """End it; what it saw is known then."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        hosts, self.failures = json.loads(self._process.stdout.readline())
        self.hosts = Counter(hosts)


@contextmanager
def asking(running: TestLab) -> Iterator[Client]:
    """Have a client ask while the body runs."""
    command = [*CLI, "exec", "--name", running.name, "client", "--", sys.executable, "-c", PROBE, SERVICE]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=running.environment
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "asking\n"
            client = Client(process)
            yield client
            client.end()
        finally:
            process.kill()


def endpoints(plane: ControlPlane) -> set[str]:
    """Give the Pods that the Service's slices name."""
    path = (
        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3Dhello"
    )
    slices: list[Any] = json.loads(plane.get(path)[1])["items"]
    return {each["targetRef"]["name"] for one in slices for each in one["endpoints"]}


def rules(running: TestLab) -> list[str]:
    """Give all rules of the nodes."""
    return [running.execute(node, "nft", "list", "ruleset") for node in NODES]


def events(plane: ControlPlane) -> set[tuple[str, str]]:
    """Give the objects that Events are about, and their reasons."""
    found = json.loads(plane.get("/apis/events.k8s.io/v1/namespaces/default/events")[1])["items"]
    return {(each["regarding"]["name"], each["reason"]) for each in found if each["regarding"]["kind"] == "Service"}


def test_nothing_fails_while_pods_are_replaced_and_the_api_server_is_gone(
    plane: ControlPlane, running: TestLab
) -> None:
    running.apply(*manifests(plane))
    poll(lambda: answered(running))
    old = pods(plane, "default", "app=hello")
    with asking(running) as client:
        running.apply((ROOT / "examples" / "services-config" / "release-2.yaml").read_text())
        poll(lambda: len(endpoints(plane)) == 3 and not endpoints(plane) & old)
        new = endpoints(plane)
        poll(lambda: answered(running, 40) == new)
        before = rules(running)
        plane.stop_part("kube-apiserver")
        try:
            assert answered(running, 40) == new
            assert rules(running) == before
        finally:
            plane.start_part("kube-apiserver")
        assert answered(running, 40) == new
        assert rules(running) == before
    assert client.failures == []
    assert client.hosts.keys() == old | new

    running.apply(*(CLAIMS.format(name=name, address=EXTERNAL) for name in ("claims-1", "claims-2")))
    poll(lambda: EXTERNAL in rules(running)[0])  # it follows the API again
    # An API server that has just started has Events of its own about Services.
    contested = {("claims-1", "Contested"), ("claims-2", "Contested")}
    poll(lambda: events(plane) & contested)
    assert len(events(plane) & contested) == 1, "of two one has it"
    running.run("delete", "service/claims-1", "service/claims-2")
    poll(lambda: EXTERNAL not in rules(running)[0])
    cleaned(running)


def kubeadms(plane: ControlPlane, mode: str, image: str) -> str:
    """Give kubeadm's manifest with an image and the API server's address.

    As kind does, its ConfigMap leaves the limits of connection tracking alone, which a node in a container may not set.
    """
    text = UPSTREAM.read_text().replace("https://CONTROL-PLANE", f"https://{ADVERTISED}:{plane.ports.api}")
    for pattern, instead in (
        (r"(?<=image: )\S+", image),
        (r"(?<=mode: )nftables", mode),
        (r"(?<=maxPerCore: )null", "0"),
        (r"(?<=tcpCloseWaitTimeout: )null", "0s"),
        (r"(?<=tcpEstablishedTimeout: )null", "0s"),
    ):
        text, count = re.subn(pattern, instead, text)
        assert count == 1, pattern
    return text


THEIRS: Final = "example.net/upstream/proxy:v1.36.3"
"""Stands for kube-proxy's own image: of an image that the lab does not know, the command runs what the machine has."""
OURS: Final = "example.net/podgate/kube-proxy:0.1.0"


ASK_PAGES: Final = "curl -s http://127.0.0.1:10249/configz http://127.0.0.1:10249/metrics"
_GROUPS: Final = {"kubeproxy.config.k8s.io": "kube-proxy", "podgate.dev/services": "podgate"}


def in_charge(running: TestLab) -> list[str]:
    """Give by node which program runs and has written the rules of both families; its Pod is ready before."""
    pages = [running.shell(node, ASK_PAGES, check=False) for node in NODES]
    return [
        next((program for group, program in _GROUPS.items() if group in text), "")
        if text.count("kubeproxy_sync_proxy_rules_last_timestamp_seconds{") == len(("IPv4", "IPv6"))
        else ""
        for text in pages
    ]


def written(running: TestLab) -> list[set[str]]:
    """Give what of both proxies is in the kernel of each node."""
    names = re.compile(r"^table ip6? (kube-proxy|podgate-services)|^\s+chain (KUBE-SERVICES)", re.MULTILINE)
    return [{found[1] or found[2] for found in names.finditer(text)} for text in rules(running)]


@pytest.mark.parametrize("mode", ["nftables", "iptables"])
def test_of_kubeadms_manifest_the_image_alone_changes_and_changes_back(
    plane: ControlPlane, running: TestLab, mode: str
) -> None:
    theirs, ours = {
        "nftables": ({"kube-proxy"}, {"podgate-services"}),
        "iptables": ({"KUBE-SERVICES"}, {"KUBE-SERVICES"}),
    }[mode]
    # Other tests' manifests give this account no token, and an account keeps what a later manifest does not name.
    running.run("delete", "-n", "kube-system", "serviceaccount/kube-proxy", check=False)
    running.apply(kubeadms(plane, mode, THEIRS))
    poll(lambda: in_charge(running) == ["kube-proxy"] * 2)
    assert written(running) == [theirs] * 2
    with asking(running) as client:
        running.apply(kubeadms(plane, mode, OURS))
        poll(lambda: in_charge(running) == ["podgate"] * 2)
        poll(lambda: written(running) == [ours] * 2)
        assert answered(running, 40) == pods(plane, "default", "app=hello")

        running.apply(kubeadms(plane, mode, THEIRS))
        poll(lambda: in_charge(running) == ["kube-proxy"] * 2)
        assert written(running) == [theirs | ours] * 2
        for node in NODES:
            running.execute(node, "podgate", "services", "clean")
        assert written(running) == [theirs] * 2
        assert answered(running, 40) == pods(plane, "default", "app=hello")
    assert client.failures == []
    assert client.hosts.keys() == pods(plane, "default", "app=hello")

    running.run("delete", "-n", "kube-system", "daemonset/kube-proxy")
    for node in NODES:
        running.execute(node, "kube-proxy", "--cleanup")
    assert written(running) == [set()] * 2
    for node in NODES:  # its firewall stays, whose counters another test would take for a change
        running.execute(node, "nft", "flush", "ruleset")


def cleaned(running: TestLab) -> None:
    """Take the agents away, see that their rules stay, and take these away too."""
    running.run("delete", "-n", "kube-system", "daemonset/kube-proxy")
    poll(lambda: answered(running))
    for node in NODES:
        running.execute(node, "podgate", "services", "clean")
        assert running.execute(node, "nft", "list", "ruleset") == ""
