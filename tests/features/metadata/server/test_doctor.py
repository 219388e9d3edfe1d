"""What doctor says of a node with a proxy, and of one without."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from podgate.commandline.findings import Finding, answered
from podgate.features.metadata.diagnosis import Attempt, scheduled
from podgate.features.metadata.node_rules import READY_LABEL
from podgate.features.metadata.server.doctor import Gathered, _names, _objects, _pods, examine
from podgate.features.metadata.settings import Settings
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.meta import ObjectMeta
from podgate.model.kinds.nodes import NODE
from podgate.model.kinds.pods import POD, Pod, PodSpec, PodStatus
from podgate.model.kinds.workloads import DAEMON_SET as DAEMONS
from podgate.model.snapshot import Listed, Snapshot
from podgate.model.table import Table
from tests.features.metadata.server.test_sockets import ask, started
from tests.support.fake_apiserver import RESOURCES, FakeApiServer
from tests.support.fake_objects import Resource
from tests.support.metadata_node import CLOUD, serving
from tests.support.metadata_upstream import ZONE
from tests.support.netns import netns
from tests.support.poll import poll

SETTINGS = Settings(addr="127.0.0.1:988", metrics_addr="127.0.0.1:989", upstream="http://127.0.0.1:80", firewall=False)

NOBODY = "no process that can be seen from here listens (the proxy)"


def look(settings: Settings) -> list[Finding]:
    """Look at a network, without entering those of others: /proc shows every one of this machine."""
    return list(examine(settings, {}, lambda *_: ([], "a test")))


def verdicts(findings: list[Finding]) -> dict[str, str]:
    return {finding.name: finding.verdict for finding in findings}


@pytest.mark.kernel
def test_a_node_with_a_proxy_is_well(tmp_path: Path) -> None:
    run = ("podgate.cli", "metadata", "run", "--addr", "127.0.0.1:988", "--upstream", "http://127.0.0.1:80")
    cloud = ("podgate.lab.peers.clouds", "gce", "--listen", "127.0.0.1:80")
    with (
        netns() as node,
        started(node, tmp_path / "cloud", *cloud),
        started(node, tmp_path / "log", *run, "--no-firewall"),
    ):
        poll(lambda: ask(node, "127.0.0.1", 988, ZONE).endswith("us-central1-a"))
        poll(lambda: ask(node, "127.0.0.1", 989, "/readyz").startswith("HTTP/1.1 200"))
        found = node.call(lambda: look(SETTINGS))
        unknown = {name for name, verdict in verdicts(found).items() if verdict == "unknown"}
        assert unknown == {"DaemonSet", "ways past the rules"}
        assert set(verdicts(found).values()) == {"ok", "unknown"}, found
        again = node.call(lambda: look(SETTINGS))
        assert (again[-1].name, again[-1].verdict) == ("denials", "ok")
        assert re.fullmatch(
            r"1 of \d+ requests refused since the proxy started, 0 of 0 while doctor looked", again[-1].seen
        )
        assert any("process" in finding.seen for finding in found)


@pytest.mark.kernel
def test_a_node_without_one_is_not() -> None:
    with netns() as node:
        found = verdicts(node.call(lambda: look(SETTINGS)))
        assert found == {
            "node label": "ok",
            "DaemonSet": "unknown",
            "rules": "ok",
            "ways past the rules": "unknown",
            "address": "ok",
            "port 988": "bad",
            "port 989": "bad",
            "a secret": "bad",
            "upstream": "bad",
            "other agents": "ok",
            "denials": "unknown",
        }
        told = answered(node.call(lambda: look(SETTINGS)))
        assert told.code == 1
        lines = told.text.splitlines()
        assert "ok      address: 127.0.0.1 is this node's" in lines
        assert lines[lines.index(f"bad     port 988: {NOBODY}") + 1] == "        start the proxy, and look at its log"
        row = told.data[3]
        assert (row["name"], row["verdict"], row["todo"]) == ("port 988", "bad", "start the proxy, and look at its log")
        elsewhere = verdicts(node.call(lambda: look(Settings())))
        assert elsewhere["address"] == "bad"
        assert elsewhere["a secret"] == "unknown"
        assert elsewhere["port 987"] == "bad"


@pytest.mark.kernel
def test_an_answer_that_is_no_refusal_is_bad() -> None:
    with netns() as node, serving(node, "127.0.0.1", 988, "HTTP/1.1 200 OK\r\n\r\n"):
        found = node.call(lambda: look(SETTINGS))
    (secret,) = [finding for finding in found if finding.name == "a secret"]
    assert (secret.verdict, secret.seen.endswith("200")) == ("bad", True)


@pytest.mark.kernel
def test_rules_are_compared_and_those_of_others_before_them_are_named() -> None:
    other = (
        f"chain c {{ type nat hook prerouting priority -110; ip daddr {CLOUD} tcp dport 80 dnat to 192.0.2.1:8181\n}}"
    )
    with netns() as node:
        found = {finding.name: finding for finding in node.call(lambda: look(Settings()))}
        assert [found[name].verdict for name in ("rules", "order of rules")] == ["bad", "ok"]
        assert found["rules"].seen == ("not as they should be: addresses, nftables/ip, nftables/ip6, nftables/redirect")
        node.run("nft", "-f", "-", text=f"table ip other {{\n{other}\n}}\n")
        found = {finding.name: finding for finding in node.call(lambda: look(Settings()))}
        assert found["order of rules"].verdict == "bad"
        assert "table ip other, chain c: ip daddr 169.254.169.254" in found["order of rules"].seen


@pytest.mark.kernel
def test_objects_come_from_the_source_that_is_named(tmp_path: Path) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": {READY_LABEL: "true"}}}
    (tmp_path / "node.json").write_text(json.dumps(node))
    with netns() as there:
        found = there.call(lambda: look(Settings(source=str(tmp_path), node_name="n")))
        assert (verdicts(found)["node label"], verdicts(found)["DaemonSet"]) == ("ok", "bad")
        assert verdicts(found)["rules"] == "bad"
        (tmp_path / "node.json").write_text(json.dumps({**node, "metadata": {"name": "n"}}))
        found = there.call(lambda: look(Settings(source=str(tmp_path), node_name="n")))
        seen = {finding.name: (finding.verdict, finding.seen) for finding in found}
        assert seen["node label"][0] == "bad"
        assert seen["rules"] == ("ok", f"none are wanted: the Node has no label {READY_LABEL}=true")
        assert "order of rules" not in seen
        found = there.call(lambda: look(Settings(source=str(tmp_path), node_name="m")))
        assert found[0] == Finding("node label", "unknown", "there is no Node m", "give --node-name")
        found = there.call(lambda: look(Settings(source=str(tmp_path / "none"), node_name="n")))
        assert found[0].verdict == "unknown"


LABELLED = {"metadata": {"name": "n", "labels": {READY_LABEL: "true"}}}
DAEMON_SET = {
    "metadata": {"name": "metadata-proxy-v0.1", "namespace": "kube-system"},
    "spec": {"template": {"spec": {"containers": [{"image": "podgate:1", "args": ["metadata", "run"]}]}}},
    "status": {"desiredNumberScheduled": 2, "currentNumberScheduled": 2, "numberReady": 1},
}


@pytest.mark.parametrize(
    ("forbidden", "unread"),
    [
        ((), {}),
        ((("list", "daemonsets"), ("watch", "daemonsets")), {"DaemonSet": "daemonsets cannot be listed: forbidden"}),
    ],
)
def test_objects_come_from_an_api_each_kind_by_itself(
    tmp_path: Path, forbidden: tuple[tuple[str, str], ...], unread: dict[str, str]
) -> None:
    async def main() -> tuple[Any, ...]:
        api = FakeApiServer(*RESOURCES, Resource("apps", "v1", "DaemonSet", "daemonsets", True))
        api.put("nodes", LABELLED)
        api.put("daemonsets", DAEMON_SET)
        api.forbidden |= set(forbidden)
        async with api.serving() as server:
            path = tmp_path / "kubeconfig"
            cluster = {"name": "c", "cluster": {"server": server.url}}
            context = {"name": "c", "context": {"cluster": "c", "user": "c"}}
            said = {"clusters": [cluster], "contexts": [context], "users": [{"name": "c"}], "current-context": "c"}
            path.write_text(json.dumps(said))
            found = await asyncio.to_thread(_objects, Settings(kubeconfig=str(path)), {}, "n")
            return found.unread, len(found.snapshot.objects(NODE)), scheduled(found.snapshot.objects(DAEMONS)).seen

    missing = "none runs a metadata proxy" if unread else "2 of 2 scheduled, 1 ready"
    read, nodes, seen = asyncio.run(main())
    assert (read, nodes, seen.rpartition("-v0.1: ")[2]) == (unread, 1, missing)


SECRET = "/computeMetadata/v1/instance/attributes/kube-env"
GOT_IT = Attempt("default/web", "200", source="10.244.1.2")


def allowing(**spec: object) -> dict[str, Any]:
    spec = {"rules": [{"paths": [SECRET], "verdict": "allow"}], **spec}
    return {"apiVersion": "podgate.dev/v1alpha1", "kind": "MetadataPolicy", "metadata": {"name": "p"}, "spec": spec}


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("policy", "verdict", "seen"),
    [
        (allowing(), "ok", f"{SECRET} is answered to default/web with 200, by MetadataPolicy/p"),
        (allowing(subjects={"podSelector": {"matchLabels": {"app": "web"}}}), "ok", "by MetadataPolicy/p"),
        (allowing(subjects={"podSelector": {"matchLabels": {"app": "db"}}}), "bad", "answered to default/web with 200"),
        (allowing(rules=[{"paths": ["no slash"], "verdict": "allow"}]), "bad", "answered to default/web with 200"),
        ({}, "bad", "answered to default/web with 200"),
    ],
    ids=["everybody", "this Pod", "another Pod", "a broken one", "none"],
)
def test_what_a_policy_allows_a_pod_is_well_and_nothing_else(
    tmp_path: Path, policy: dict[str, Any], verdict: str, seen: str
) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {"nodeName": "n"},
        "status": {"phase": "Running", "podIPs": [{"ip": "10.244.1.2"}]},
    }
    for number, each in enumerate(filter(None, (pod, policy))):
        (tmp_path / f"{number}.json").write_text(json.dumps(each))
    settings = Settings(source=str(tmp_path), node_name="n")
    with netns() as there:
        found = there.call(lambda: list(examine(settings, {}, lambda *_: ([GOT_IT], ""))))
    (told,) = [finding for finding in found if finding.name == "from a Pod"]
    assert (told.verdict, seen in told.seen) == (verdict, True), told


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("spec", "verdict"),
    [({}, "ok"), ({"subjects": {"podSelector": {"matchLabels": {"app": "web"}}}}, "bad")],
    ids=["everybody", "one Pod"],
)
def test_a_secret_for_whoever_asks_is_well_where_a_policy_allows_it_to_everybody(
    tmp_path: Path, spec: dict[str, Any], verdict: str
) -> None:
    (tmp_path / "policy.json").write_text(json.dumps(allowing(**spec)))
    settings = replace(SETTINGS, source=str(tmp_path), node_name="n")
    with netns() as node, serving(node, "127.0.0.1", 988, "HTTP/1.1 200 OK\r\n\r\n"):
        found = node.call(lambda: look(settings))
    (told,) = [finding for finding in found if finding.name == "a secret"]
    assert (told.verdict, "by MetadataPolicy/p" in told.seen) == (verdict, verdict == "ok")


def test_pods_are_named_in_their_order_and_the_first_of_two_with_one_address() -> None:
    def pod(name: str, *, on_host: bool) -> tuple[ObjectRef, Pod]:
        spec, status = PodSpec(node_name="n", host_network=on_host), PodStatus(pod_ip="10.244.1.2")
        return ObjectRef(POD.kind, name, "team"), Pod(ObjectMeta(name=name, namespace="team"), spec, status)

    names = [f"p{number:02}" for number in range(12)]
    pods = Table.of(pod(f"{name}{'-host' * on_host}", on_host=on_host) for name in names for on_host in (False, True))
    objects = Gathered(Snapshot({POD.kind: Listed(pods)}), {})
    assert _names(objects, "n") == {"10.244.1.2": "team/p00"}
    (told,) = _pods(SETTINGS, objects, "n", (), "")
    assert told.seen.endswith(": team/p00-host, team/p01-host, team/p02-host, 9 more")
