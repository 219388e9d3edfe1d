"""Metadata in the lab: the old DaemonSet with another image, and ours over it; what a Pod reaches at each moment."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.lab import CLI, TestLab, lab
from tests.support.poll import poll

pytestmark = [pytest.mark.kernel, pytest.mark.lab]

ROOT = Path(__file__).parents[2]
V1 = "http://169.254.169.254/computeMetadata/v1"
ZONE, KUBE_ENV = f"{V1}/instance/zone", f"{V1}/instance/attributes/kube-env"
CONCEALED = "This metadata endpoint is concealed\n"

UPSTREAM = """\
apiVersion: v1
kind: ServiceAccount
metadata: {name: metadata-proxy, namespace: kube-system}
---
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: metadata-proxy-v0.1
  namespace: kube-system
  labels: {k8s-app: metadata-proxy, version: v0.1}
spec:
  selector:
    matchLabels: {k8s-app: metadata-proxy, version: v0.1}
  updateStrategy: {type: RollingUpdate}
  template:
    metadata:
      labels: {k8s-app: metadata-proxy, kubernetes.io/cluster-service: "true", version: v0.1}
    spec:
      priorityClassName: system-node-critical
      serviceAccountName: metadata-proxy
      hostNetwork: true
      dnsPolicy: Default
      tolerations: [{operator: Exists, effect: NoExecute}, {operator: Exists, effect: NoSchedule}]
      containers:
      - name: metadata-proxy
        image: registry.example.com/metadata-proxy:0.1.0
        securityContext: {privileged: true}
        resources: {requests: {memory: 25Mi, cpu: 30m}, limits: {memory: 25Mi, cpu: 30m}}
        args: ["--addr=0.0.0.0:988"]
      nodeSelector: {cloud.google.com/metadata-proxy-ready: "true", kubernetes.io/os: linux}
      terminationGracePeriodSeconds: 30
"""
"""The fields of the add-on's last version, written anew; only the image is another one."""

BOOT_RULES = """
ip addr add dev lo 169.254.169.252/32 scope host
for pair in 80:988 8080:987; do
  iptables -w -t nat -I PREROUTING -p tcp ! -i eth0 -d 169.254.169.254 --dport "${pair%:*}" -m comment --comment \
    "metadata-concealment: bridge traffic to metadata server goes to metadata proxy" \
    -j DNAT --to-destination "169.254.169.252:${pair#*:}"
done
iptables -w -t mangle -I OUTPUT -s 169.254.169.254 -j DROP
"""
"""What the boot script of GCE's nodes runs."""


WATCH = """
import json, socket, sys, time
head = b"GET /computeMetadata/v1/instance/attributes/kube-env HTTP/1.1\\r\\nHost: 169.254.169.254\\r\\n"
seen, until = [], time.monotonic() + 60
while time.monotonic() < until and seen != ["403", "refused", "403"]:
    try:
        with socket.create_connection(("169.254.169.254", 80), timeout=20) as connection:
            connection.sendall(head + b"Metadata-Flavor: Google\\r\\nConnection: close\\r\\n\\r\\n")
            what = b"".join(iter(lambda: connection.recv(65536), b""))[9:12].decode()
            # At its end the old proxy closes what it had accepted, with 503 or without an answer.
            what = "refused" if what in ("", "503") else what
    except ConnectionError:
        what = "refused"
    if seen[-1:] != [what]:
        seen.append(what)
        print(json.dumps(seen), flush=True)
    time.sleep(0.02)
"""


@pytest.fixture(scope="module")
def running() -> Iterator[TestLab]:
    with lab(ROOT / "examples" / "metadata", name="metadata") as started:
        yield started


def test_the_old_manifest_with_another_image_and_ours_over_it(running: TestLab) -> None:
    assert running.metadata("web", KUBE_ENV).startswith("kube-env: SECRET-")

    running.shell("node/node-1", BOOT_RULES)
    assert running.metadata("web", ZONE) == "failed 7\n"
    running.apply(UPSTREAM)
    poll(lambda: running.metadata("web", ZONE) == "projects/123456/zones/us-central1-a")  # it has no probe
    assert running.metadata("web", KUBE_ENV) == CONCEALED
    assert running.metadata("web", "http://169.254.169.254:443/") != "failed 7\n"  # the old rules leave it open
    assert running.metadata("node/node-1", KUBE_ENV).startswith("kube-env: SECRET-")

    running.run("apply", "-f", str(ROOT / "deploy" / "metadata"), "--wait")
    poll(lambda: running.metadata("web", "http://169.254.169.254:443/") == "failed 7\n")
    poll(lambda: running.metadata("web", ZONE) == "projects/123456/zones/us-central1-a")
    assert running.metadata("web", KUBE_ENV) == CONCEALED
    assert running.metadata("web", "http://[fd20:ce::254]/") == "failed 7\n"
    assert "metadata-concealment" not in running.shell("node/node-1", "iptables-save")
    assert running.metadata("node/node-1", KUBE_ENV).startswith("kube-env: SECRET-")


def test_every_form_is_served_to_a_pod_by_its_real_clients(running: TestLab) -> None:
    asked = f"{V1}/instance/service-accounts/default/?recursive=true"
    assert "123456-compute@developer.gserviceaccount.com" in running.metadata("web", asked)
    assert '"access_token"' in running.metadata("web", f"{V1}/instance/service-accounts/default/token")
    assert running.metadata("web", f"{V1}/instance/attributes/cluster-name") == "cluster-1"


def test_while_a_node_gets_another_version_pods_are_refused_for_a_moment_and_never_let_through(
    running: TestLab,
) -> None:
    running.run("apply", "-f", str(ROOT / "deploy" / "metadata"), "--wait")
    poll(lambda: running.metadata("web", KUBE_ENV) == CONCEALED)
    words = [*CLI, "exec", "--name", running.name, "web", "--", sys.executable, "-c", WATCH]
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=running.environment
    ) as watch:
        assert watch.stdout is not None
        first = watch.stdout.readline()
        assert '"403"' in first
        manifest = (ROOT / "deploy" / "metadata" / "daemonset.yaml").read_text()
        running.apply(manifest.replace("image: podgate:", "image: registry.example.com/podgate:"), wait=False)
        lines = watch.stdout.read().splitlines()
    assert json.loads(lines[-1]) == ["403", "refused", "403"]
    # As it was, for whichever test comes next.
    running.run("delete", "-n", "kube-system", "daemonset/metadata-proxy-v0.1")
    running.execute("node/node-1", "podgate", "metadata", "clean")
