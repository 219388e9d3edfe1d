"""deploy/masquerade-policies on a real API: policies reach packets, and status and Events say what became of them.

All of it with the rights of the manifests' account, which are compared with what was asked for.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from podgate.features.masquerade.feature import FEATURE
from podgate.features.masquerade.settings import Settings
from podgate.kubeapi.access import Access
from podgate.telling import telling
from tests.support.cluster import ControlPlane
from tests.support.lab import TestLab, lab
from tests.support.poll import poll
from tests.support.rights import exactly, list_in_pages

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "masquerade-policies"
POD, NODE, PARTNER = "10.16.1.6", "10.140.15.217", "http://10.70.0.2/"
POLICIES = "/apis/podgate.dev/v1alpha1/masqueradepolicies"
REPORTS = "/apis/podgate.dev/v1alpha1/nodereports"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/podgate-masquerade"


@pytest.fixture(scope="module")
def running(plane: ControlPlane) -> Iterator[TestLab]:
    """Have the agents run on two nodes, and see in the end that they asked for what they may, and for all of it."""
    plane.request("DELETE", LEASE)  # of the agents of another module: making one is among what is seen
    with (
        lab(ROOT / "examples" / "masquerade", name="policies", kubeconfig=plane.kubeconfig) as started,
        exactly(plane, FOLDER),
    ):
        started.run("apply", "-f", str(ROOT / "deploy" / "node-reports"))  # agents in Pods have its leave
        started.run("apply", "-f", str(FOLDER), "--wait")
        started.apply(CONFIG, wait=False)
        yield started
        watches = telling(FEATURE, FEATURE.watches(Settings(config="/x"), "node-1"), Access("http://localhost"), "x")
        list_in_pages(plane, FOLDER, watches.watches)
        started.run("delete", "-n", "kube-system", "daemonset/ip-masq-agent")
        started.run("delete", "customresourcedefinition/masqueradepolicies.podgate.dev")
        started.run("delete", "customresourcedefinition/nodereports.podgate.dev")
        started.run("delete", "pod/web", "pod/peer")
        for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
            started.run("delete", f"{kind}/podgate-node-reports")


CONFIG = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: ip-masq-agent, namespace: kube-system}
data: {config: "nonMasqueradeCIDRs: [10.16.0.0/14]"}
"""


def policy(name: str, spec: str) -> str:
    return f"""\
apiVersion: podgate.dev/v1alpha1
kind: MasqueradePolicy
metadata: {{name: {name}}}
spec: {{{spec}}}
"""


KEEP = "action: Keep, to: [{cidr: 10.70.0.0/16}]"


def found(plane: ControlPlane, path: str) -> Any:
    code, answer = plane.get(path)
    assert code == 200, answer
    return json.loads(answer)


def remove(plane: ControlPlane, *names: str) -> None:
    for name in names:
        assert plane.request("DELETE", f"{POLICIES}/{name}")[0] == 200


def status(plane: ControlPlane, name: str) -> dict[str, Any]:
    """Give a policy's status once it is about what the policy says now."""

    def about_it() -> dict[str, Any] | None:
        policy = found(plane, f"{POLICIES}/{name}")
        told: dict[str, Any] = policy.get("status", {})
        return told if told.get("observedGeneration") == policy["metadata"]["generation"] else None

    told = poll(about_it)
    assert told is not None
    return told


def conditions(plane: ControlPlane, name: str) -> dict[str, tuple[str, str]]:
    """Give status and reason by type."""
    return {each["type"]: (each["status"], each["reason"]) for each in status(plane, name).get("conditions", ())}


def events(plane: ControlPlane, name: str) -> set[tuple[str, str]]:
    items = found(plane, EVENTS)["items"]
    return {(each["reason"], each["note"]) for each in items if each["regarding"]["name"] == name}


def test_a_policy_reaches_packets_and_its_status_counts_the_nodes(plane: ControlPlane, running: TestLab) -> None:
    poll(lambda: running.source_seen("web", PARTNER) == NODE)
    running.apply(policy("partner", KEEP), wait=False)
    poll(lambda: running.source_seen("web", PARTNER) == POD)
    poll(lambda: status(plane, "partner")["nodes"] == {"applying": 2, "reporting": 2, "summary": "2/2"})
    assert conditions(plane, "partner") == {"Accepted": ("True", "Valid"), "Applied": ("True", "OnAllNodes")}
    (row,) = plane.table(POLICIES)  # what kubectl get masqueradepolicies prints
    assert (row["Name"], row["Action"], row["Accepted"], row["Nodes"]) == ("partner", "Keep", "True", "2/2")
    # Those of other tests' Nodes go with these, a moment later.
    ours = {("masquerade", "node-1"), ("masquerade", "node-2")}
    poll(lambda: {(row["Feature"], row["Node"]) for row in plane.table(REPORTS)} == ours)

    running.apply(policy("partner", KEEP.replace("70", "71")), wait=False)
    poll(lambda: running.source_seen("web", PARTNER) == NODE)
    poll(lambda: conditions(plane, "partner").get("Applied") == ("True", "OnAllNodes"))
    remove(plane, "partner")
    poll(lambda: [each for each in found(plane, REPORTS)["items"] if each.get("applied")] == [])


def test_a_broken_policy_is_told_on_the_object_while_its_last_good_form_stays(
    plane: ControlPlane, running: TestLab
) -> None:
    running.apply(policy("edited", KEEP), wait=False)
    poll(lambda: conditions(plane, "edited").get("Applied") == ("True", "OnAllNodes"))
    # What the schema lets through: a range whose host bits are no mistake of form.
    running.apply(policy("edited", KEEP.replace("10.70.0.0/16", "10.70.0.0/77")), wait=False)
    poll(lambda: conditions(plane, "edited").get("Applied") == ("False", "NotOnAllNodes"))
    assert conditions(plane, "edited")["Accepted"] == ("False", "InvalidCIDR")
    told = status(plane, "edited")
    assert told["nodes"]["others"] == [{"node": name, "why": "LastGoodPolicy"} for name in ("node-1", "node-2")]
    assert running.source_seen("web", PARTNER) == POD
    ((reason, note),) = poll(lambda: events(plane, "edited"))
    assert reason == "InvalidCIDR"
    assert note.startswith('spec.to[0].cidr: "10.70.0.0/77"')
    uid = found(plane, f"{POLICIES}/edited")["metadata"]["uid"]
    assert [each["regarding"]["uid"] for each in found(plane, EVENTS)["items"] if each["reason"] == reason] == [uid]
    remove(plane, "edited")


def test_conflicts_are_named_and_what_one_node_cannot_do_is_counted(plane: ControlPlane, running: TestLab) -> None:
    running.apply(
        policy("wide", f"priority: 5, {KEEP}"),
        policy("narrow", "action: Masquerade, to: [{cidr: 10.70.1.0/24}]"),
        policy("snat", f"action: SNAT, snatAddress: {NODE}, to: [{{cidr: 10.80.0.0/16}}]"),
        wait=False,
    )
    poll(lambda: conditions(plane, "narrow").get("Conflicted") == ("True", "ShadowedPolicy"))
    (named,) = [each["message"] for each in status(plane, "narrow")["conditions"] if each["type"] == "Conflicted"]
    assert "MasqueradePolicy/wide" in named
    poll(lambda: status(plane, "snat").get("nodes", {}).get("summary") == "1/2")
    assert status(plane, "snat")["nodes"]["others"] == [{"node": "node-2", "why": "SnatAddressMissing"}]
    assert conditions(plane, "snat")["Accepted"] == ("True", "Valid")
    assert events(plane, "snat") == set()
    remove(plane, "wide", "narrow", "snat")


def holders_since(plane: ControlPlane, version: str) -> list[str]:
    """Give who held the Lease since a version, one after the other; empty where nobody did."""
    path, _, name = LEASE.rpartition("/")
    query = f"watch=true&fieldSelector=metadata.name={name}&resourceVersion={version}&timeoutSeconds=1"
    _, told = plane.get(f"{path}?{query}")
    return [json.loads(line)["object"]["spec"].get("holderIdentity") or "" for line in told.splitlines()]


def test_another_node_takes_over_when_the_one_that_writes_is_stopped(plane: ControlPlane, running: TestLab) -> None:
    lease = found(plane, LEASE)
    before, version = lease["spec"]["holderIdentity"], lease["metadata"]["resourceVersion"]
    assert before
    leader = before.rpartition("_")[0]
    pods = found(plane, "/api/v1/namespaces/kube-system/pods")["items"]
    (pod,) = [each["metadata"]["name"] for each in pods if each["spec"]["nodeName"] == leader]
    running.run("delete", "-n", "kube-system", f"pod/{pod}")
    poll(lambda: found(plane, LEASE)["spec"]["holderIdentity"] not in ("", before))
    assert "" in holders_since(plane, version), "it gave its Lease back: the next one did not wait until that was over"
    running.apply(policy("after", KEEP), wait=False)
    poll(lambda: conditions(plane, "after").get("Applied") == ("True", "OnAllNodes"))
    logs = [running.logs(f"kube-system/{each['metadata']['name']}") for each in pods if each["metadata"]["name"] != pod]
    assert all("orbidden" not in text for text in logs), logs
    remove(plane, "after")
