"""Reports as ``podgate doctor`` examines them: which agents should have made one, and have not."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from podgate.admin.doctor.cli import main
from tests.support.asynchronous import in_loop
from tests.support.doctor import DEPLOY, MOUNT, OWN, doctor, report
from tests.support.fake_apiserver import RESOURCES, FakeApiServer
from tests.support.kubeconfigs import kubeconfig


def services_pod(node: str) -> dict[str, Any]:
    template = yaml.safe_load((DEPLOY / "services" / "daemonset.yaml").read_text())["spec"]["template"]
    return {
        "metadata": {"name": f"kube-proxy-{node}", "namespace": "kube-system"},
        "spec": {**template["spec"], "nodeName": node},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


@in_loop
async def test_an_agent_of_services_that_never_reported_may_not_reach_the_api(tmp_path: Path) -> None:
    async with FakeApiServer(*RESOURCES, *OWN).serving() as server:
        words = ("--kubeconfig", kubeconfig(tmp_path, server.url))

        async def reports() -> list[tuple[str, str]]:
            features = {"services": "podgate.features.services.feature"}
            found = await asyncio.to_thread(main, words, {}, features, (), print)
            return [(each["verdict"], each["seen"]) for each in found.data if each["name"] == "services: reports"]

        for name in ("n1", "n2"):
            server.put("nodes", {"metadata": {"name": name}})
            server.put("pods", services_pod(name))
        report(server, "services", "n1")
        said = "n2: Pod/kube-system/kube-proxy-n2 has never reported, so it may not reach the API"
        assert await reports() == [("bad", said)]
        # It may be in time still.
        just_now = services_pod("n2")
        at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        just_now["status"]["conditions"][0]["lastTransitionTime"] = at
        server.put("pods", just_now)
        assert [verdict for verdict, _ in await reports()] == ["unknown"]
        server.put("pods", services_pod("n2"))
        # Another feature's report says nothing of this one.
        report(server, "masquerade", "n2")
        assert await reports() == [("bad", said)]
        server.forbidden = {("list", "nodereports")}
        assert [verdict for verdict, _ in await reports()] == ["unknown"]
        server.objects.uninstall("nodereports")
        assert await reports() == []


@pytest.mark.parametrize("follows", ["a container beside it", "a child", "nothing"])
@in_loop
async def test_who_follows_pods_for_a_metadata_proxy_reports_for_it(tmp_path: Path, follows: str) -> None:
    async with FakeApiServer(*RESOURCES, *OWN).serving() as server:
        manifest = "metadata/per-pod" if follows == "a container beside it" else "metadata"
        template = yaml.safe_load((DEPLOY / manifest / "daemonset.yaml").read_text())["spec"]["template"]
        first = template["spec"]["containers"][0]
        if follows == "a child":
            first["args"].append("--per-pod")
            first["volumeMounts"] = [MOUNT]
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        for name in ("n1", "n2"):
            server.put("nodes", {"metadata": {"name": name}})
            metadata = {"name": f"proxy-{name}", "namespace": "kube-system"}
            server.put("pods", {"metadata": metadata, "spec": {**template["spec"], "nodeName": name}, "status": ready})
        report(server, "metadata-watch", "n1")
        words = ("--feature", "metadata", "--kubeconfig", kubeconfig(tmp_path, server.url))
        found = await asyncio.to_thread(doctor, *words)
        told = [(each["verdict"], each["seen"][:32]) for each in found.data if each["name"] == "metadata: reports"]
        assert told == ([] if follows == "nothing" else [("bad", "n2: Pod/kube-system/proxy-n2 has")])
