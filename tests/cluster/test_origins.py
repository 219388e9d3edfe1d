"""The same scenarios with objects from a folder and from a real API: what reaches the kernel does not depend on it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.agent import DEFAULTS, Agent, elements, running
from tests.support.cluster import ControlPlane
from tests.support.kube_proxy import relay
from tests.support.netns import netns
from tests.support.origins import Api, Folder, Obj, Origin
from tests.support.poll import poll
from tests.support.rights import DEPLOY, grant

ORIGINS = ("folder", "API")
LINK_LOCAL = "169.254.0.0/16"


class World(NamedTuple):
    """An agent, and where its objects come from."""

    origin: Origin
    agent: Agent

    def keeps(self, *cidrs: str) -> bool:
        """Say whether these destinations, and link-local ones, keep the Pod's address."""
        return elements(self.agent.namespace) == frozenset((*cidrs, LINK_LOCAL))

    def to(self, policy: str) -> frozenset[str] | None:
        """Give the destinations of a policy in the kernel; None while there is no such policy there."""
        return elements(self.agent.namespace, f"to-{policy}")

    def sources(self, policy: str) -> frozenset[str] | None:
        return elements(self.agent.namespace, f"from-{policy}")

    def problems(self, reason: str) -> float:
        """Count the complaints in force for a reason."""
        found = self.agent.metrics().items()
        return sum(count for name, count in found if "_problems{" in name and f'"{reason}"' in name)


def config(*cidrs: str) -> Obj:
    metadata = {"name": "ip-masq-agent", "namespace": "kube-system"}
    text = f"nonMasqueradeCIDRs: [{', '.join(cidrs)}]"
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"config": text}}


def policy(name: str, **spec: Any) -> Obj:
    base = {"apiVersion": "podgate.dev/v1alpha1", "kind": "MasqueradePolicy", "metadata": {"name": name}}
    return {**base, "spec": {"action": "Keep", **spec}}


def node(**labels: str) -> Obj:
    metadata = {"name": "node-1", "labels": labels}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"podCIDRs": ["10.16.1.0/24"]}}


def namespace(**labels: str) -> Obj:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "suite", "labels": labels}}


def pod(**labels: str) -> Obj:
    spec = {"nodeName": "node-1", "containers": [{"name": "c", "image": "i"}]}
    status = {"phase": "Running", "podIP": "10.16.1.6", "podIPs": [{"ip": "10.16.1.6"}]}
    metadata = {"name": "web", "namespace": "suite", "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


@pytest.fixture(scope="module", params=ORIGINS)
def world(
    request: pytest.FixtureRequest, plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    path = tmp_path_factory.mktemp("origin")
    with netns() as namespace:
        if request.param == "folder":
            folder = Folder(path)
            with running(namespace, path, *folder.arguments) as agent:
                yield World(folder, agent)
            return
        grant(plane, DEPLOY / "masquerade-policies")
        api = Api(plane)
        api.remove(config())  # what other tests applied
        with relay(plane, namespace), running(namespace, path, *api.arguments) as agent:
            yield World(api, agent)
        api.remove_all()


def test_a_configmap_is_followed_from_its_creation_to_its_removal(world: World) -> None:
    poll(lambda: elements(world.agent.namespace) == DEFAULTS)
    for cidr in ("10.1.0.0/16", "10.2.0.0/16"):
        world.origin.put(config(cidr))
        poll(lambda cidr=cidr: world.keeps(cidr))  # type: ignore[misc]
    world.origin.remove(config())
    poll(lambda: elements(world.agent.namespace) == DEFAULTS)


def test_a_bad_configmap_leaves_the_last_good_list_and_is_a_problem(world: World) -> None:
    world.origin.put(config("10.3.0.0/16"))
    poll(lambda: world.keeps("10.3.0.0/16"))
    world.origin.put(config("10.4.0.0/160"))
    poll(lambda: world.problems("InvalidCIDR") == 1)
    assert world.keeps("10.3.0.0/16")
    assert world.agent.ready()
    world.origin.put(config("10.4.0.0/16"))
    poll(lambda: world.keeps("10.4.0.0/16"))
    poll(lambda: world.problems("InvalidCIDR") == 0)
    world.origin.remove(config())


def test_a_policy_is_made_changed_and_removed(world: World) -> None:
    world.origin.put(policy("one", to=[{"cidr": "10.5.0.0/16"}]))
    poll(lambda: world.to("one") == frozenset({"10.5.0.0/16"}))
    world.origin.put(policy("one", to=[{"cidr": "10.6.0.0/16"}]))
    poll(lambda: world.to("one") == frozenset({"10.6.0.0/16"}))
    world.origin.remove(policy("one"))
    poll(lambda: world.to("one") is None)


def test_a_policy_that_an_edit_broke_stays_as_it_was_and_is_a_problem(world: World) -> None:
    world.origin.put(policy("two", to=[{"cidr": "10.5.0.0/16"}]))
    poll(lambda: world.to("two") == frozenset({"10.5.0.0/16"}))
    world.origin.put(policy("two", to=[{"cidr": "10.6.0.0/160"}]))
    poll(lambda: world.problems("InvalidCIDR") == 1)
    (told,) = [line for line in world.agent.log("10.6.0.0/160") if line["level"] == "error"]
    # The place is a line of a file, or the field of an object.
    place = "MasqueradePolicy/two: " if isinstance(world.origin, Api) else "/"
    assert told["message"].startswith(place)
    assert world.to("two") == frozenset({"10.5.0.0/16"})
    world.origin.put(policy("two", to=[{"cidr": "10.6.0.0/16"}]))
    poll(lambda: world.to("two") == frozenset({"10.6.0.0/16"}))
    poll(lambda: world.problems("InvalidCIDR") == 0)
    world.origin.remove(policy("two"))
    poll(lambda: world.to("two") is None)


def test_labels_of_pods_and_namespaces_decide_whom_a_policy_is_for(world: World) -> None:
    for each in (node(), namespace(team="red"), pod(app="web")):
        world.origin.put(each)
    by_labels = {
        "podSelector": {"matchLabels": {"app": "web"}},
        "namespaceSelector": {"matchLabels": {"team": "red"}},
    }
    world.origin.put(policy("three", **{"from": by_labels}))
    poll(lambda: world.sources("three") == frozenset({"10.16.1.6"}))
    for change, back in ((pod(app="db"), pod(app="web")), (namespace(team="blue"), namespace(team="red"))):
        world.origin.put(change)
        poll(lambda: world.sources("three") == frozenset())
        world.origin.put(back)
        poll(lambda: world.sources("three") == frozenset({"10.16.1.6"}))
    world.origin.remove(policy("three"))
    world.origin.remove(pod())
    poll(lambda: world.sources("three") is None)


def test_a_nodes_ranges_count_and_its_labels_change_nothing(world: World) -> None:
    world.origin.put(node())
    poll(lambda: elements(world.agent.namespace, "own-pods") == frozenset({"10.16.1.0/24"}))
    written = len(world.agent.log("applied"))
    world.origin.put(node(zone="elsewhere"))
    world.origin.put(policy("marker", to=[{"cidr": "10.9.0.0/16"}]))
    poll(lambda: world.to("marker") == frozenset({"10.9.0.0/16"}))

    def kernel() -> list[str]:
        return [line["plan"] for line in world.agent.log("applied")[written:] if line["step"].startswith("nftables")]

    (plan,) = poll(kernel)
    assert "to-marker" in plan
    world.origin.remove(policy("marker"))
    world.origin.remove(node())
    poll(lambda: world.to("marker") is None)


def test_an_agent_that_cleans_up_takes_its_report_back(plane: ControlPlane, tmp_path: Path) -> None:
    grant(plane, DEPLOY / "masquerade-policies")
    api = Api(plane)
    api.put(node())
    reports = "/apis/podgate.dev/v1alpha1/nodereports/masquerade.node-1"
    with netns() as namespace, relay(plane, namespace):
        with running(namespace, tmp_path, *api.arguments, "--clean-on-exit") as agent:
            poll(lambda: plane.get(reports)[0] == 200)
            assert agent.stop() == 0, agent.text()
            assert elements(namespace) is None
        assert plane.get(reports)[0] == 404
    api.remove_all()
