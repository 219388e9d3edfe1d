"""deploy/metadata/per-pod in the lab, from files: a policy is for the Pods that it selects, and for no others."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.lab import TestLab, lab
from tests.support.poll import poll

pytestmark = [pytest.mark.kernel, pytest.mark.lab, pytest.mark.slow]

DEPLOY = Path(__file__).parents[2] / "deploy" / "metadata"
V1 = "http://169.254.169.254/computeMetadata/v1/instance"
ZONE, KUBE_ENV, TOKEN = f"{V1}/zone", f"{V1}/attributes/kube-env", f"{V1}/service-accounts/default/token"
SECRET, CONCEALED = "kube-env: SECRET-", "This metadata endpoint is concealed"


def pod(name: str, address: str, app: str) -> str:
    metadata = {"name": name, "labels": {"app": app}, "annotations": {"lab.podgate.dev/ip": address}}
    container = {"name": "c", "image": "busybox", "command": ["sleep", "infinity"]}
    spec = {"nodeName": "node-1", "terminationGracePeriodSeconds": 0, "containers": [container]}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def policy(app: str) -> str:
    return f"""\
apiVersion: podgate.dev/v1alpha1
kind: MetadataPolicy
metadata: {{name: installer}}
spec:
  subjects: {{namespaces: [default], podSelector: {{matchLabels: {{app: {app}}}}}}}
  rules: [{{paths: [/computeMetadata/v1/instance/attributes/kube-env], verdict: allow}}]
"""


@pytest.fixture(scope="module")
def running() -> Iterator[TestLab]:
    node = Path(__file__).parents[2] / "examples" / "metadata" / "node.yaml"
    pods = (pod("web", "10.16.1.6", "web"), pod("db", "10.16.1.7", "db"))
    # With the limits of memory, where this machine can enforce them; that of the processor costs nothing but time.
    with lab(node, *pods, name="perpod", limits=True) as started:
        paths = (DEPLOY / "customresourcedefinition.yaml", *(DEPLOY / "per-pod").glob("*.yaml"))
        started.apply(*(path.read_text().replace("cpu: 30m", "cpu: 1") for path in paths))
        yield started


def get(running: TestLab, who: str, url: str) -> str:
    """Give the beginning of the answer, or ``failed N`` with curl's exit code."""
    return running.metadata(who, url)[: len(CONCEALED)].removesuffix("\n")


def kube_env(running: TestLab) -> list[bool]:
    """Say who gets kube-env: web, db."""
    found = [get(running, who, KUBE_ENV) for who in ("web", "db")]
    assert all(each.startswith(SECRET) or each == CONCEALED for each in found)
    return [each.startswith(SECRET) for each in found]


def test_a_policy_is_for_the_pods_that_it_selects(running: TestLab) -> None:
    assert get(running, "web", ZONE) == "projects/123456/zones/us-central1-a"
    assert kube_env(running) == [False, False]
    running.apply(policy("web"), wait=False)
    poll(lambda: kube_env(running) == [True, False])
    running.apply(policy("db"), wait=False)
    poll(lambda: kube_env(running) == [False, True])
    running.run("delete", "metadatapolicy/installer")
    poll(lambda: kube_env(running) == [False, False])


def test_an_address_that_another_pod_gets_gives_nothing_of_the_first_ones_rights(running: TestLab) -> None:
    running.apply(policy("web"), wait=False)
    poll(lambda: kube_env(running) == [True, False])
    running.run("delete", "pod/web")
    running.apply(pod("other", "10.16.1.6", "other"))
    poll(lambda: get(running, "other", TOKEN).startswith('{"access_token"'))  # it is known by now
    assert get(running, "other", KUBE_ENV) == CONCEALED
    # As it was, for whichever test comes next.
    running.run("delete", "pod/other", "metadatapolicy/installer")
    running.apply(pod("web", "10.16.1.6", "web"))
    poll(lambda: kube_env(running) == [False, False])


def test_the_two_containers_have_what_they_need_and_no_more(running: TestLab) -> None:
    names = [each["metadata"]["name"] for each in running.list("Pod")]
    [name] = [each for each in names if each.startswith("metadata-proxy")]
    statuses = running.get("Pod", name, "kube-system")["status"]["containerStatuses"]
    assert [(each["name"], each["restartCount"]) for each in statuses] == [("metadata-proxy", 0), ("watch", 0)]
    token = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    proxy, watch = (("-c", container, f"kube-system/{name}", "--") for container in ("metadata-proxy", "watch"))
    assert running.run("exec", *proxy, "ls", token, check=False).returncode != 0
    assert running.run("exec", *watch, "cat", token).stdout
    assert running.run("exec", *watch, "id", "-u").stdout == "65532\n"
    assert running.run("exec", *proxy, "stat", "-c", "%a %G", "/run/podgate/watch.sock").stdout.startswith("660 ")
