"""Each folder of deploy/ gives just the rights that are used; a test of its feature has an API server note which."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from podgate.features.metadata.watcher.feature import FEATURE as METADATA_WATCH
from podgate.features.metadata.watcher.settings import WatchSettings
from podgate.features.services.feature import FEATURE as SERVICES
from podgate.features.services.settings import Settings as ServicesSettings
from podgate.kubeapi.access import Access
from podgate.observe.logs import stderr_log
from podgate.telling import telling
from tests.support.asynchronous import in_loop
from tests.support.cluster import ControlPlane
from tests.support.poll import poll_async
from tests.support.rights import DEPLOY, Looking, access_of, account, asked, exactly, folders, grant, list_in_pages
from tests.support.telling_agent import telling_agent

NOWHERE = Access("http://localhost")
NODE_NAME = "node-rights"
BINDING = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/podgate-node-reports"
ROLE = """\
kind: Role
metadata: {name: r, namespace: ns}
rules:
  - {apiGroups: [""], resources: [pods], verbs: [list, watch]}
  - {apiGroups: [a.example], resources: [things/status], resourceNames: [one], verbs: [patch]}
---
kind: RoleBinding
subjects: [{kind: ServiceAccount, name: agent, namespace: ns}]
"""
USER = "system:serviceaccount:ns:agent"


def event(verb: str, resource: str, code: int = 200, **more: str) -> dict[str, Any]:
    group = "a.example" if resource == "things" else ""
    thing = {"resource": resource, "apiGroup": group, "namespace": "ns", **more}
    return {"user": {"username": USER}, "verb": verb, "objectRef": thing, "responseStatus": {"code": code}}


ALL = [
    event("list", "pods"),
    event("watch", "pods"),
    event("patch", "things", subresource="status", name="one"),
]
HISTORIES: dict[str, tuple[list[dict[str, Any]], str]] = {
    "all that is allowed": (ALL, ""),
    "less": (ALL[1:], "never asked for': .*list.*pods"),
    "another object": ([*ALL[:2], event("patch", "things", subresource="status", name="two")], "never .*patch"),
    "another namespace": ([{**each, "objectRef": {**each["objectRef"], "namespace": "x"}} for each in ALL], "never"),
    "the thing itself": ([*ALL[:2], event("patch", "things", name="one")], "never asked for': .*patch"),
    "somebody else": ([{**each, "user": {"username": "x"}} for each in ALL], "never asked for"),
    "more": ([*ALL, event("delete", "pods", 403)], "not allowed': .*delete.*pods"),
}


@pytest.mark.parametrize(("history", "complaint"), HISTORIES.values(), ids=HISTORIES.keys())
def test_rights_and_requests_must_agree(tmp_path: Path, history: list[dict[str, Any]], complaint: str) -> None:
    (tmp_path / "role.yaml").write_text(ROLE)
    plane = ControlPlane.__new__(ControlPlane)
    plane.audit_log = tmp_path / "audit.log"
    plane.audit_log.write_text("".join(json.dumps(each) + "\n" for each in ALL))

    def work() -> None:
        with exactly(plane, tmp_path), plane.audit_log.open("a") as log:
            log.writelines(json.dumps(each) + "\n" for each in history)

    if not complaint:
        work()
        return
    with pytest.raises(AssertionError, match=complaint):
        work()


def test_to_make_an_object_by_applying_it_takes_two_rights(tmp_path: Path) -> None:
    plane = ControlPlane.__new__(ControlPlane)
    plane.audit_log = tmp_path / "audit.log"
    made = event("patch", "things", 201, name="one")
    plane.audit_log.write_text(json.dumps(made) + "\n" + json.dumps({**made, "responseStatus": {"code": 200}}) + "\n")
    assert [each.right.verb for each in asked(plane, USER, 0)] == ["patch", "create", "patch"]


class Scenario(NamedTuple):
    """An agent, something that is wrong, and the Event about it."""

    folder: Path
    feature: Any
    settings: Any
    manifests: tuple[Path, ...]
    wrong: tuple[tuple[str, dict[str, Any]], ...]
    event: tuple[str, str]


def service(name: str) -> tuple[str, dict[str, Any]]:
    spec = {"externalIPs": ["192.0.2.77"], "ports": [{"port": 80, "protocol": "TCP"}]}
    return "/api/v1/namespaces/default/services", {"metadata": {"name": name}, "spec": spec}


POLICY = {
    "apiVersion": "podgate.dev/v1alpha1",
    "kind": "MetadataPolicy",
    "metadata": {"name": "rights"},
    "spec": {"rules": [{"paths": ["/a/b**c"], "verdict": "deny"}]},
}
SCENARIOS = [
    Scenario(
        DEPLOY / "services",
        SERVICES,
        ServicesSettings(),
        (),
        (service("rights-one"), service("rights-two")),
        ("Service", "Contested"),
    ),
    Scenario(
        DEPLOY / "metadata" / "per-pod",
        METADATA_WATCH,
        WatchSettings(node_name=NODE_NAME),
        (DEPLOY / "metadata" / "customresourcedefinition.yaml",),
        (("/apis/podgate.dev/v1alpha1/metadatapolicies", POLICY),),
        ("MetadataPolicy", "BadPath"),
    ),
]
ELSEWHERE = {
    DEPLOY / "masquerade-policies": "test_policies.py",
    DEPLOY / "metadata" / "startup-taint": "test_metadata_untaint.py",
}


def events(plane: ControlPlane) -> set[tuple[str, str]]:
    items = json.loads(plane.get("/apis/events.k8s.io/v1/namespaces/default/events")[1])["items"]
    return {(each["regarding"]["kind"], each["reason"]) for each in items}


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.folder.name)
def test_an_agent_needs_just_the_rights_of_its_folder(plane: ControlPlane, scenario: Scenario) -> None:
    """It tells of what is wrong, reports, leads, and gives its Lease back; and lists in pages where it must."""
    feature, settings = scenario.feature, scenario.settings
    grant(plane, scenario.folder, *scenario.manifests)
    # A test before this one may have left the rule that only a Pod's token reports; the tokens here are no Pod's.
    plane.request("DELETE", BINDING)
    # Nor may its agent's Lease be there, which nobody needs the right to make then.
    namespace, _ = account(scenario.folder)
    plane.request("DELETE", f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/podgate-{feature.name}")

    @in_loop
    async def tells(looking: Looking) -> None:
        access = access_of(plane, scenario.folder, plane.server)
        async with telling_agent(feature, settings, access, NODE_NAME, stderr_log({})):
            await poll_async(lambda: scenario.event in events(plane) and not looking.unused())

    made = [*scenario.wrong, ("/api/v1/nodes", {"metadata": {"name": NODE_NAME}})]
    try:
        for path, obj in made:
            assert plane.request("POST", path, obj)[0] == 201
        with exactly(plane, scenario.folder) as looking:
            watches = telling(feature, feature.watches(settings, NODE_NAME), NOWHERE, NODE_NAME).watches
            list_in_pages(plane, scenario.folder, watches)
            tells(looking)
    finally:
        for path, obj in made:
            plane.request("DELETE", f"{path}/{obj['metadata']['name']}")


def test_each_folder_that_gives_rights_is_looked_at() -> None:
    assert {each.folder for each in SCENARIOS} | ELSEWHERE.keys() == set(folders()), "write a scenario, here or there"
    assert all("exactly(" in (Path(__file__).parent / name).read_text() for name in ELSEWHERE.values())
