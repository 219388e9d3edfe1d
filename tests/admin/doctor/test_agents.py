"""Which Pods are agents, and what is said about the nodes that have none."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from podgate.admin.doctor.agents import (
    A_MOMENT,
    AgentContainer,
    AgentPod,
    agents_in,
    daemonset_of,
    image_findings,
    node_findings,
    placed_in,
    silent_findings,
)
from podgate.model.frozen import ObjectRef

FEATURES = ("masquerade", "metadata")
DEPLOY = Path(__file__).parents[3] / "deploy"
SETS = sorted(
    path
    for path in DEPLOY.rglob("*.yaml")
    if "kind: DaemonSet" in path.read_text() and path.parent.name != "remove-rules"
)


def container(image: str, *args: str, command: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"name": "c", "image": image, "args": list(args), "command": list(command)}


@pytest.mark.parametrize(
    ("spec", "agent"),
    [
        (
            container("podgate:1", "masquerade", "run", "--x"),
            AgentContainer("masquerade", "run", ("--x",), "podgate:1"),
        ),
        (container("r/p:1", "metadata", "watch"), AgentContainer("metadata", "watch", (), "r/p:1")),
        (
            container("any", command=("/usr/bin/podgate", "metadata", "run")),
            AgentContainer("metadata", "run", (), "any"),
        ),
        (
            container("registry.k8s.io/networking/ip-masq-agent:v2.12.6", "--masq-chain=X"),
            AgentContainer(
                "masquerade", "run", ("--masq-chain=X",), "registry.k8s.io/networking/ip-masq-agent:v2.12.6", False
            ),
        ),
        (
            container("r:5000/metadata-proxy@sha256:abc"),
            AgentContainer("metadata", "run", (), "r:5000/metadata-proxy@sha256:abc", False),
        ),
        (container("i", "-v", command=("/ip-masq-agent",)), AgentContainer("masquerade", "run", ("-v",), "i", False)),
        (container("podgate:1", "masquerade", "check"), None),
        (container("nginx"), None),
        (container("podgate:1", "ingress", "run"), None),
        ({"name": "c"}, None),
    ],
)
def test_an_agent_is_known_by_what_its_container_runs(spec: dict[str, Any], agent: AgentContainer | None) -> None:
    assert agents_in({"containers": [spec]}, FEATURES) == ((agent,) if agent else ())


@pytest.mark.parametrize("path", SETS, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_every_daemonset_that_we_ship_is_recognised(path: Path) -> None:
    (obj,) = [each for each in yaml.safe_load_all(path.read_text()) if each["kind"] == "DaemonSet"]
    found = daemonset_of(obj, [*FEATURES, "services"])
    assert found is not None
    assert {agent.feature for agent in found.agents} == {path.relative_to(DEPLOY).parts[0].partition("-")[0]}


def pod(name: str = "p", node: str = "n1", owner: str = "ds", **status: Any) -> dict[str, Any]:
    ready = {"type": "Ready", "status": "True"}
    return {
        "metadata": {"name": name, "namespace": "kube-system",
                     "ownerReferences": [{"kind": "DaemonSet", "name": owner, "controller": True}]},
        "spec": {"nodeName": node, "containers": [container("podgate:1", "masquerade", "run")]},
        "status": {"phase": "Running", "conditions": [ready], **status},
    }  # fmt: skip


NOT_READY = [{"type": "Ready", "status": "False"}]
CRASHING = [{"name": "agent", "state": {"waiting": {"reason": "CrashLoopBackOff"}},
             "lastState": {"terminated": {"exitCode": 2}}}]  # fmt: skip


def node(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}}


def lines(nodes: list[dict[str, Any]], pods: list[dict[str, Any]], **selector: str) -> list[str]:
    placed = [each for one in pods for each in placed_in(one, FEATURES)]
    spec = {"nodeSelector": selector, "containers": [container("podgate:1", "masquerade", "run")]}
    obj = {"metadata": {"name": "ds", "namespace": "kube-system"}, "spec": {"template": {"spec": spec}}}
    found = daemonset_of(obj, FEATURES)
    assert found is not None
    return [str(each) for each in node_findings("masquerade", nodes, placed, [found])]


def test_all_is_well() -> None:
    assert lines([node("n1")], [pod()]) == ["ok      masquerade: nodes: 1 of 1 have a ready agent"]


@pytest.mark.parametrize(
    ("pods", "first"),
    [
        ([], "n1 has no agent\n        kubectl describe -n kube-system ds/ds says more"),
        ([pod(conditions=NOT_READY)], "n1: Pod/kube-system/p: it runs and is not ready"),
        ([pod(conditions=NOT_READY, phase="Pending")], "n1: Pod/kube-system/p: it has not started"),
        ([pod(conditions=NOT_READY, containerStatuses=CRASHING)], "agent: CrashLoopBackOff, last exit code 2"),
        ([pod(), pod("q", owner="old")], "n1 has more than one agent: ds, old"),
        ([pod(phase="Failed")], "n1 has no agent"),
    ],
)
def test_a_node_without_a_good_agent_is_bad(pods: list[dict[str, Any]], first: str) -> None:
    found = lines([node("n1")], pods)
    assert found[0].startswith("bad     masquerade: nodes: ")
    assert first in found[0]


def test_an_update_has_two_pods_of_one_set_for_a_moment() -> None:
    assert lines([node("n1")], [pod(), pod("q", conditions=NOT_READY)])[0].startswith("ok")


def test_nodes_that_are_not_selected_are_named_with_the_label_that_they_lack() -> None:
    found = lines([node("n1", ready="true"), node("n2"), node("n3")], [pod()], ready="true")
    assert "\n".join(found).splitlines() == [
        "off     masquerade: nodes: 2 not selected by DaemonSet/kube-system/ds: n2, n3",
        "        where it should run: kubectl label node NAME ready=true",
        "ok      masquerade: nodes: 1 of 3 have a ready agent",
    ]


def test_windows_nodes_are_nobodys_mistake() -> None:
    assert lines([node("n1"), node("w", **{"kubernetes.io/os": "windows"})], [pod()])[0][:2] == "ok"


def test_a_pod_that_has_no_node_yet_counts_for_the_one_that_it_was_made_for() -> None:
    affinity = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}
    waiting = pod(conditions=[{"type": "PodScheduled", "status": "False", "message": "0/1 nodes: taint"}])
    waiting["spec"] |= {
        "nodeName": "",
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": affinity}},
    }
    assert "n1: Pod/kube-system/p: 0/1 nodes: taint" in lines([node("n1")], [waiting])[0]


def test_whether_an_agent_has_an_account_for_the_api() -> None:
    def asks(**spec: Any) -> AgentPod:
        one = pod()
        one["spec"] |= spec
        return next(placed_in(one, FEATURES))

    mount = {"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    mounted = [{**container("podgate:1", "masquerade", "run"), "volumeMounts": [mount]}]
    assert (asks().asks, asks(containers=mounted).asks) == (False, True)
    assert asks(serviceAccountName="agent").account == ("kube-system", "agent")


@pytest.mark.parametrize(
    ("agents", "verdict", "seen"),
    [
        ([AgentContainer("m", "run", (), "a:1")] * 2, "ok", "agents run a:1; this is podgate 9"),
        ([AgentContainer("m", "run", (), "a:1"), AgentContainer("m", "run", (), "a:2")], "bad", "agents run a:1, a:2"),
        ([AgentContainer("m", "run", (), "a:1", ours=False)], "unknown", "a:1: may be the program"),
    ],
)
def test_versions(agents: list[AgentContainer], verdict: str, seen: str) -> None:
    (found,) = image_findings("m", agents, "9")
    assert (found.verdict, found.seen.startswith(seen)) == (verdict, True)


@pytest.mark.parametrize(
    ("ready_for", "verdict"),
    [
        (A_MOMENT + 1, "bad"),
        (A_MOMENT - 1, "unknown"),
        (1 - A_MOMENT, "unknown"),  # by a clock that is ahead of ours
        (-3600.0, "bad"),  # by one that is an hour ahead: it need not wait for ours
    ],
)
def test_an_agent_has_a_moment_to_report_whatever_clocks_say(ready_for: float, verdict: str) -> None:
    agent = AgentContainer("masquerade", "run", (), "podgate:1")
    now = 1_000_000.0
    placed = AgentPod(agent, ObjectRef("Pod", "p", "x"), "n1", True, ("x", "default"), since=now - ready_for)
    assert [each.verdict for each in silent_findings("masquerade", [placed], (), now)] == [verdict]
