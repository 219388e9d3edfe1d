"""Reports of nodes on a real API: deploy/node-reports keeps agents to their own, the definition keeps them small."""

import json
import ssl
from collections.abc import Iterator
from http.client import HTTPSConnection
from typing import Any

import pytest

from podgate.model.kinds.reports import FEATURE_LABEL, MOST
from tests.support.cluster import ControlPlane
from tests.support.origins import Obj
from tests.support.poll import poll
from tests.support.rights import DEPLOY, account, documents, grant

FOLDER = DEPLOY / "masquerade-policies"
REPORTS = "/apis/podgate.dev/v1alpha1/nodereports"
ADMISSION = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
POD = "/api/v1/namespaces/kube-system/pods/reporter"
NODE = "reports-1"
LONG = "n" * 250


def report(name: str = f"masquerade.{NODE}", feature: str = "masquerade", node: str = NODE, **more: Any) -> Obj:
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": "u"}
    metadata = {
        "name": name,
        "labels": {FEATURE_LABEL: feature},
        "ownerReferences": [owner],
        **more.pop("metadata", {}),
    }
    kind = {"apiVersion": "podgate.dev/v1alpha1", "kind": "NodeReport"}
    return {**kind, "metadata": metadata, "feature": feature, "node": node, **more}


class Reporter:
    """Who writes with the token of an agent's account; ``pod``: the one that it is bound to."""

    def __init__(self, plane: ControlPlane, pod: Obj | None) -> None:
        self._plane = plane
        namespace, name = account(FOLDER)
        request: Obj = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        if pod is not None:
            names = {key: pod["metadata"][key] for key in ("name", "uid")}
            request["spec"] = {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", **names}}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        code, answer = plane.request("POST", path, request)
        assert code == 201, answer
        self._token = json.loads(answer)["status"]["token"]

    def apply(self, obj: Obj) -> tuple[int, str]:
        """Apply a report as agents do, and give the answer's code and text."""
        context = ssl.create_default_context(cafile=str(self._plane.folder / "pki" / "ca.crt"))
        connection = HTTPSConnection("127.0.0.1", self._plane.ports.api, timeout=60, context=context)
        headers = {"Content-Type": "application/apply-patch+yaml", "Authorization": f"Bearer {self._token}"}
        path = f"{REPORTS}/{obj['metadata']['name']}?fieldManager=podgate-test&force=true"
        try:
            connection.request("PATCH", path, json.dumps(obj), headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()


def started(plane: ControlPlane, node: str, name: str) -> Obj:
    """Give a Pod of the agents' account on a node that need not be there."""
    namespace, agent = account(FOLDER)
    spec = {"nodeName": node, "serviceAccountName": agent, "containers": [{"name": "c", "image": "i"}]}
    metadata = {"name": name, "namespace": namespace}
    code, answer = plane.request("POST", POD.rpartition("/")[0], {"metadata": metadata, "spec": spec})
    assert code == 201, answer
    made: Obj = json.loads(answer)
    return made


@pytest.fixture(scope="module")
def agent(plane: ControlPlane) -> Iterator[Reporter]:
    """Have an agent of one node, in a cluster that admits its report alone."""
    grant(plane, FOLDER)
    policy, binding = documents(DEPLOY / "node-reports")
    for path, obj in ((f"{ADMISSION}ies", policy), (f"{ADMISSION}ybindings", binding)):
        code, answer = plane.request("POST", path, obj)
        assert code in (201, 409), answer  # the guide of the installation leaves it to other agents
    try:
        found = Reporter(plane, started(plane, NODE, "reporter"))
        poll(lambda: found.apply(report("masquerade.nobody"))[0] == 422)  # admission is in force after a moment
        yield found
    finally:
        plane.request("DELETE", f"{ADMISSION}ybindings/{binding['metadata']['name']}")
        plane.request("DELETE", f"{ADMISSION}ies/{policy['metadata']['name']}")
        for pod in ("reporter", "long"):
            plane.request("DELETE", f"{POD.rpartition('/')[0]}/{pod}", {"gracePeriodSeconds": 0})
        for each in json.loads(plane.get(REPORTS)[1])["items"]:
            plane.request("DELETE", f"{REPORTS}/{each['metadata']['name']}")


def test_an_agent_writes_its_own_nodes_report_again_and_again(agent: Reporter) -> None:
    assert agent.apply(report())[0] in (200, 201)
    applied = [{"kind": "MasqueradePolicy", "name": "a", "generation": 2}]
    assert agent.apply(report(applied=applied))[0] in (200, 201)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (report("masquerade.other", node="other"), "for its own node alone"),
        (report("masquerade.other"), "for its own node alone"),
        (report(f"masquerade.{NODE}", node="other"), "for its own node alone"),
        (report(f"masquerade.{NODE}.2"), "for its own node alone"),
        (report(f"more.{NODE}", "more"), "for a feature of podgate"),
        (report(metadata={"labels": {FEATURE_LABEL: "services"}}), "for a feature of podgate"),
        (report(metadata={"annotations": {"a": "b" * 1000}}), "no annotations"),
        (report(metadata={"ownerReferences": []}), "goes with its Node"),
    ],
    ids=[
        "another node",
        "another's name",
        "about another",
        "a second one",
        "no feature",
        "labels",
        "annotations",
        "owner",
    ],
)
def test_an_agent_writes_no_other_report(agent: Reporter, wrong: Obj, complaint: str) -> None:
    code, answer = agent.apply(wrong)
    assert (code, complaint in answer) == (422, True), answer


def test_an_agent_takes_no_other_nodes_report_over(plane: ControlPlane, agent: Reporter) -> None:
    other = report("masquerade.other", node="other")
    assert plane.request("POST", REPORTS, other)[0] == 201  # whoever may do everything
    code, answer = agent.apply(other)
    assert (code, "for its own node alone" in answer) == (422, True), answer


def test_a_token_that_belongs_to_no_pod_reports_for_no_node(plane: ControlPlane, agent: Reporter) -> None:
    del agent  # whose admission is in force
    code, answer = Reporter(plane, None).apply(report())
    assert (code, "belongs to no Pod" in answer) == (422, True), answer


def test_a_node_with_a_very_long_name_has_a_report_too(plane: ControlPlane, agent: Reporter) -> None:
    del agent
    found = Reporter(plane, started(plane, LONG, "long"))
    cut = f"masquerade.{LONG}"[:236]
    ends = {"a digest": f"{cut}.0123456789abcdef", "other": f"masquerade.{'m' * 240}"}
    code, answer = found.apply(report(ends["a digest"], node=LONG))
    assert code == 201, answer
    assert found.apply(report(ends["other"], node=LONG))[0] == 422


def rows(number: int, name: int = 10) -> list[Obj]:
    return [{"kind": "MasqueradePolicy", "name": f"{each}".ljust(name, "x"), "generation": 1} for each in range(number)]


@pytest.mark.parametrize(
    ("applied", "codes"),
    # Garbage collection may have taken the report of before: its Node is not there.
    [(rows(MOST, 253), (200, 201)), (rows(MOST + 1), (422,)), (rows(25_000), (422,)), (rows(1, 254), (422,))],
    ids=["as long as may be", "one too many", "a mebibyte", "a long name"],
)
def test_a_report_has_bounds(agent: Reporter, applied: list[Obj], codes: tuple[int, ...]) -> None:
    agent.apply(report())
    assert agent.apply(report(applied=applied))[0] in codes
