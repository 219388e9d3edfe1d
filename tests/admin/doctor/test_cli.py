"""``podgate doctor`` as a command: a table of clusters, each with one thing wrong, and manifests without an API."""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from podgate.admin.doctor.cli import main
from podgate.commandline.usage import UsageError
from podgate.joints import SourceError
from podgate.kubeapi.discovery import VERSION
from tests.support.asynchronous import in_loop
from tests.support.doctor import DEPLOY, FEATURES, MOUNT, OWN, doctor, report
from tests.support.fake_apiserver import RESOURCES, FakeApiServer
from tests.support.kubeconfigs import kubeconfig


def daemonset() -> Any:
    return yaml.safe_load((DEPLOY / "masquerade-policies" / "daemonset.yaml").read_text())


def pod(node: str, **status: Any) -> dict[str, Any]:
    """Give a Pod of the DaemonSet as a cluster makes it, with its account's token."""
    template = daemonset()["spec"]["template"]
    (container,) = template["spec"]["containers"]
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "ip-masq-agent", "uid": "1", "controller": True}
    return {
        "metadata": {"name": f"agent-{node}", "namespace": "kube-system", "labels": template["metadata"]["labels"],
                     "ownerReferences": [owner]},
        "spec": {**template["spec"], "nodeName": node, "serviceAccountName": "ip-masq-agent",
                 "containers": [{**container, "volumeMounts": [MOUNT]}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], **status},
    }  # fmt: skip


def healthy(server: FakeApiServer) -> None:
    for name in ("n1", "n2"):
        server.put("nodes", {"metadata": {"name": name}, "status": {}})
        server.put("pods", pod(name))
        report(server, "masquerade", name)
    server.put("daemonsets", daemonset())


def no_agents(server: FakeApiServer) -> None:
    server.put("nodes", {"metadata": {"name": "n1"}})


def one_pod_missing(server: FakeApiServer) -> None:
    healthy(server)
    server.remove("pods", "agent-n2", "kube-system")


def two_images(server: FakeApiServer) -> None:
    healthy(server)
    other = pod("n2")
    other["spec"]["containers"][0]["image"] = "podgate:0.0.9"
    server.put("pods", other)


def rights_missing(server: FakeApiServer) -> None:
    healthy(server)
    server.forbidden = {("list", "namespaces"), ("patch", "masqueradepolicies/status")}


def rights_hidden(server: FakeApiServer) -> None:
    healthy(server)
    server.forbidden = {("create", "subjectaccessreviews")}


def pods_hidden(server: FakeApiServer) -> None:
    healthy(server)
    server.forbidden = {("list", "pods")}


def policies_not_installed(server: FakeApiServer) -> None:
    healthy(server)
    server.objects.uninstall("masqueradepolicies")


def bad_policy(server: FakeApiServer) -> None:
    healthy(server)
    server.put("masqueradepolicies", {"metadata": {"name": "odd"}, "spec": {"action": "Keep", "to": [{"cidr": "x"}]}})


def one_silent(server: FakeApiServer) -> None:
    healthy(server)
    server.remove("nodereports", "masquerade.n2")


def by_manifests(server: FakeApiServer) -> None:
    one_silent(server)
    other = pod("n2")
    other["spec"]["containers"][0]["env"] = [{"name": "PODGATE_SOURCE", "value": "/etc/objects"}]
    server.put("pods", other)


def reports_hidden(server: FakeApiServer) -> None:
    healthy(server)
    server.forbidden = {("list", "nodereports")}


def made_up_reports(server: FakeApiServer) -> None:
    healthy(server)
    report(server, "masquerade", "n1", "masquerade.n1.2")
    for number in range(40):  # more than a page
        report(server, "masquerade", f"nobody-{number:02}")


def wrong_token(server: FakeApiServer) -> None:
    server.tokens = {"another"}


def old_agents(server: FakeApiServer) -> None:
    healthy(server)
    for name in ("n1", "n2"):
        one = pod(name)
        one["spec"]["containers"][0] |= {"image": "networking/ip-masq-agent:v2.12.6", "args": []}
        server.put("pods", one)
    server.forbidden = {("list", "namespaces")}  # nobody asks whether its account may


def both_agents(server: FakeApiServer) -> None:
    healthy(server)
    old = pod("n1")
    old["metadata"] |= {"name": "old", "ownerReferences": []}
    old["spec"]["containers"][0] |= {"image": "networking/ip-masq-agent:v2.12.6", "args": []}
    server.put("pods", old)


def without_an_account(server: FakeApiServer) -> None:
    healthy(server)
    for name in ("n1", "n2"):
        one = pod(name)
        del one["spec"]["containers"][0]["volumeMounts"]
        server.put("pods", one)


def bad_config(server: FakeApiServer) -> None:
    healthy(server)
    mapped = {"metadata": {"name": "ip-masq-agent", "namespace": "kube-system"}}
    server.put("configmaps", {**mapped, "data": {"config": "nonMasqueradeCIDRs: [10.0.0.0/33]\n"}})


def bad_config_without_an_account(server: FakeApiServer) -> None:
    without_an_account(server)
    bad_config(server)
    without_an_account(server)


ACCOUNT = "ServiceAccount kube-system/ip-masq-agent"
TABLE: list[tuple[Callable[[FakeApiServer], None], int, list[str]]] = [
    (healthy, 0, [
        "ok API: http://127.0.0.1:PORT answers; Kubernetes v1.36.3",
        "ok masquerade: nodes: 2 of 2 have a ready agent",
        "ok masquerade: version: agents run podgate:0.1.0",
        f"ok masquerade: rights: {ACCOUNT} has all",
        "ok masquerade here: it would read",
    ]),
    (no_agents, 0, [
        "off masquerade: not installed → to install it: deploy/masquerade",
        "ok masquerade: rights: your login has all",
    ]),
    (one_pod_missing, 1, ["bad masquerade: nodes: n2 has no agent → kubectl describe -n kube-system ds/ip-masq-agent"]),
    (two_images, 1, ["bad masquerade: version: agents run podgate:0.0.9, podgate:0.1.0 → finish the update"]),
    (rights_missing, 1, [
        f"bad masquerade: rights: {ACCOUNT} may not list namespaces; patch masqueradepolicies.podgate.dev/status →",
        "ok masquerade here: it would read",
    ]),
    (rights_hidden, 0, [f"unknown masquerade: rights: of {ACCOUNT} cannot be told: 403 Forbidden"]),
    (pods_hidden, 1, [
        "unknown cluster: Pods cannot be seen: 403 Forbidden",
        "unknown masquerade: no agent can be seen; DaemonSet/kube-system/ip-masq-agent is there",
        "bad masquerade: rights: your login may not list pods →",
    ]),
    (policies_not_installed, 0, [
        "off kinds: MasqueradePolicy is not installed → to use it: apply its customresourcedefinition.yaml",
    ]),
    (bad_policy, 1, ["bad masquerade here: MasqueradePolicy/odd:spec.to[0].cidr:"]),
    (one_silent, 1, ["bad masquerade: reports: n2: Pod/kube-system/agent-n2 has never reported, so it may not reach"]),
    (by_manifests, 0, ["ok masquerade: reports: all 1 ready agents have reported"]),
    (reports_hidden, 1, ["unknown masquerade: reports: cannot be seen: 403 Forbidden"]),
    (made_up_reports, 1, [
        "ok masquerade: reports: all 2 ready agents have reported",
        "bad masquerade: reports: 41 are of no node that there is: masquerade.n1.2, masquerade.nobody-00, masquerade.n",
    ]),
    (wrong_token, 1, ["bad API: http://127.0.0.1:PORT refuses us: 401 Unauthorized"]),
    (old_agents, 0, [
        "unknown masquerade: version: networking/ip-masq-agent:v2.12.6: may be the program whose place podgate takes",
        "off masquerade here: its agents ask no API",
    ]),
    (both_agents, 1, [
        "bad masquerade: nodes: n1 has more than one agent: Pod/kube-system/old, ip-masq-agent → delete all but one",
    ]),
    (without_an_account, 0, ["off masquerade here: its agents ask no API"]),
    (bad_config, 1, ["bad masquerade here: ConfigMap/kube-system/ip-masq-agent:data.config.nonMasqueradeCIDRs[0]: "]),
    (bad_config_without_an_account, 1, [
        "off masquerade here: its agents ask no API",
        "bad masquerade here: ConfigMap/kube-system/ip-masq-agent:data.config.nonMasqueradeCIDRs[0]: ",
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("cluster", "code", "expected"), TABLE, ids=[cluster.__name__ for cluster, _, _ in TABLE])
def test_clusters(tmp_path: Path, cluster: Callable[[FakeApiServer], None], code: int, expected: list[str]) -> None:
    @in_loop
    async def examine() -> None:
        async with FakeApiServer(*RESOURCES, *OWN).serving() as server:
            cluster(server)
            words = ("--feature", "masquerade", "--kubeconfig", kubeconfig(tmp_path, server.url))
            found = await asyncio.to_thread(doctor, *words)
            said = [
                f"{each['verdict']} {each['name']}: {each['seen']}{' → ' if each['todo'] else ''}{each['todo']}"
                for each in found.data
            ]
            port = server.url.rpartition(":")[2]
            missing = [line for line in expected if not any(one.replace(port, "PORT").startswith(line) for one in said)]
            assert (missing, found.code) == ([], code), found.text
            if code:
                assert all(
                    each["todo"] for each in found.data if each["verdict"] == "bad" and "here" not in each["name"]
                )
            assert VERSION.path in [path for _, path, _ in server.requests]
            assert {method for method, path, _ in server.requests if "reviews" not in path} == {"GET"}

    examine()


@pytest.mark.parametrize(
    ("manifest", "verdict"),
    [("metadata", ["bad"]), ("metadata/per-pod", []), (None, [])],
    ids=["plain", "per Pod", "not installed"],
)
def test_policies_that_no_agent_reads_are_named(tmp_path: Path, manifest: str | None, verdict: list[str]) -> None:
    policy = {"apiVersion": "podgate.dev/v1alpha1", "kind": "MetadataPolicy", "metadata": {"name": "installer"}}
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump({**policy, "spec": {}}))
    if manifest:
        (tmp_path / "daemonset.yaml").write_text((DEPLOY / manifest / "daemonset.yaml").read_text())
    found = doctor("--feature", "metadata", "--source", str(tmp_path))
    told = [each for each in found.data if each["name"] == "metadata: policies"]
    assert [each["verdict"] for each in told] == verdict
    for each in told:
        assert "no agent reads MetadataPolicy/installer" in each["seen"]
        assert each["todo"] == "apply deploy/metadata/per-pod"


def test_an_api_that_does_not_answer(tmp_path: Path) -> None:
    found = doctor("--kubeconfig", kubeconfig(tmp_path, "http://127.0.0.1:1"))
    assert (found.code, len(found.data)) == (1, 1)
    assert "check the address" in found.data[0]["todo"]


def test_where_it_looks_is_said_where_no_option_says_it(tmp_path: Path) -> None:
    path, told = kubeconfig(tmp_path, "http://127.0.0.1:1"), list[str]()
    main((), {"KUBECONFIG": path}, FEATURES, ("metadata",), told.append)
    main(("--context", "c"), {"KUBECONFIG": path}, FEATURES, ("metadata",), told.append)
    main(("--kubeconfig", path), {"KUBECONFIG": path}, FEATURES, ("metadata",), told.append)
    said = f"podgate doctor: objects come from $KUBECONFIG: {path}"
    assert told == [said, f"{said} c"]


def test_an_option_that_leads_nowhere() -> None:
    with pytest.raises(SourceError, match="give --kubeconfig too"):
        doctor("--context", "x")


def test_a_source_that_is_not_there_is_one_error() -> None:
    with pytest.raises(SourceError, match="--source /nosuch: there is no such file or folder"):
        doctor("--source", "/nosuch")


def test_without_an_api_it_says_so() -> None:
    found = doctor()
    assert (found.code, found.data[0]["verdict"]) == (0, "unknown")
    assert "give --kubeconfig FILE" in found.text


def test_manifests_tell_what_they_can(tmp_path: Path) -> None:
    (tmp_path / "nodes.yaml").write_text("apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n")
    (tmp_path / "daemonset.yaml").write_text(yaml.safe_dump(daemonset()))
    found = doctor("--source", str(tmp_path))
    assert found.data[0] == {
        "name": "API", "verdict": "unknown", "todo": "",
        "seen": f"only what {tmp_path} tells: rights and running agents need --kubeconfig",
    }  # fmt: skip
    there = "DaemonSet/kube-system/ip-masq-agent is there; files do not tell which Pods run"
    assert f"unknown masquerade: nodes: {there}" in found.text
    assert "ok      masquerade here: it would read" in found.text
    assert "and complain of nothing; podgate masquerade check looks deeper" in found.text
    (tmp_path / "bad.yaml").write_text("kind: [")
    assert f"bad     masquerade here: {tmp_path}/bad.yaml" in doctor("--source", str(tmp_path)).text


def test_what_a_cluster_gave_into_a_folder_tells_which_agents_run(tmp_path: Path) -> None:
    (tmp_path / "n.yaml").write_text("apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n")
    (tmp_path / "p.yaml").write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", **pod("n1")}))
    assert "ok      masquerade: nodes: 1 of 1 have a ready agent" in doctor("--source", str(tmp_path)).text


def test_in_a_lab_s_folder_the_status_of_a_pod_stands_beside_it(tmp_path: Path) -> None:
    folder = tmp_path / "pods"
    folder.mkdir()
    (tmp_path / ".podgate-lab").touch()
    (tmp_path / "n1.json").write_text(json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}))
    running = {"apiVersion": "v1", "kind": "Pod", **pod("n1")}
    status = running.pop("status")
    (folder / "p.json").write_text(json.dumps(running))
    assert "Pod/kube-system/agent-n1: it has not started" in doctor("--source", str(tmp_path)).text
    (folder / "p.status.json").write_text(json.dumps(status))
    assert "ok      masquerade: nodes: 1 of 1 have a ready agent" in doctor("--source", str(tmp_path)).text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--feature", "masquerde"], 'did you mean "masquerade"?'),
        (["--nope"], "--nope"),
    ],
)
def test_wrong_words(words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match="podgate doctor") as raised:
        doctor(*words)
    assert message in str(raised.value)


@in_loop
async def test_the_command_prints_a_verdict_per_line(tmp_path: Path) -> None:
    async with FakeApiServer(*RESOURCES, *OWN).serving() as server:
        healthy(server)
        words = ("-m", "podgate.cli", "doctor", "--kubeconfig", kubeconfig(tmp_path, server.url))
        environ = {name: value for name, value in os.environ.items() if name != "PODGATE_SOURCE"}
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=pipe, stderr=pipe, env=environ)
        out, err = await process.communicate()
        assert (process.returncode, err) == (0, b""), out.decode()
        starts = {line[:8].strip() for line in out.decode().splitlines()}
        assert starts <= {"ok", "off", "unknown", "bad", ""}
