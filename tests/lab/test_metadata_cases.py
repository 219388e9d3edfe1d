"""The case files from a Pod: redirected by the node's rules, decided by deploy/metadata's proxy, seen by a cloud."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.features.metadata.wire import TOKEN, Exchange, Part, exchanges_of
from tests.support.cases import read_cases
from tests.support.lab import TestLab, lab

pytestmark = [pytest.mark.kernel, pytest.mark.lab, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
CLOUDS: Final = ("gce", "aws", "azure", "openstack")
MAY_BE_READ: Final = {"gce": {"token"}}
"""What is planted as a secret and given to Pods by default; of openstack the server's answer is without the field."""


def exchanges(cloud: str) -> list[Exchange]:
    """Give the lines of the cases that have no options but the cloud's profile, in which anybody may ask."""
    found: list[Exchange] = []
    for case in read_cases(*sorted((ROOT / "tests" / "features" / "metadata" / "cases").glob("*.case"))):
        section = case.one("settings")
        profile = section.text.strip() if section else "profile: gce"
        if profile == f"profile: {cloud}" and case.one("policy") is case.one("objects") is None:
            found += exchanges_of(case)[1]
    return found


def manifests() -> Iterator[dict[str, Any]]:
    daemonset = (ROOT / "deploy" / "metadata" / "daemonset.yaml").read_text()
    asking = (ROOT / "tests" / "support" / "asking_pod.py").read_text()
    for number, cloud in enumerate(CLOUDS, 2):
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": f"on-{cloud}",
                "labels": {
                    "cloud": cloud,
                    "cloud.google.com/metadata-proxy-ready": "true",
                    "kubernetes.io/os": "linux",
                },
                "annotations": {"lab.podgate.dev/cloud-metadata": cloud},
            },
            "spec": {"podCIDRs": [f"10.16.{number}.0/24"]},
            "status": {"addresses": [{"type": "InternalIP", "address": f"10.140.0.{number}"}]},
        }
        lines = [
            {
                "data": base64.b64encode(each.data).decode(),
                "heads": [part.method == "HEAD" for part in each.parts if part.status],
                "token": TOKEN if each.needs_token else "",
            }
            for each in exchanges(cloud)
        ]
        yield {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": cloud},
            "data": {"asking.py": asking, "lines.json": json.dumps(lines)},
        }
        container = {"name": "main", "image": "busybox", "command": ["sleep", "infinity"]}
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"pod-{cloud}"},
            "spec": {
                "nodeName": f"on-{cloud}",
                "containers": [{**container, "volumeMounts": [{"name": "cases", "mountPath": "/cases"}]}],
                "volumes": [{"name": "cases", "configMap": {"name": cloud}}],
            },
        }
        proxy = yaml.safe_load(daemonset.replace("metadata-proxy-v0.1", f"proxy-{cloud}"))
        proxy["spec"]["selector"]["matchLabels"]["cloud"] = cloud
        proxy["spec"]["template"]["metadata"]["labels"]["cloud"] = cloud
        proxy["spec"]["template"]["spec"]["nodeSelector"]["cloud"] = cloud
        proxy["spec"]["template"]["spec"]["containers"][0]["args"] += ["--profile", cloud]
        yield proxy


@pytest.fixture(scope="module")
def running() -> Iterator[TestLab]:
    account = (ROOT / "deploy" / "metadata" / "serviceaccount.yaml").read_text()
    with lab(account, yaml.safe_dump_all(list(manifests())), name="cases") as started:
        yield started


@pytest.mark.parametrize("cloud", CLOUDS)
def test_every_line_of_the_cases_from_a_pod(running: TestLab, cloud: str) -> None:
    lines = exchanges(cloud)
    assert {part.sent is None for line in lines for part in line.parts} == {True, False}
    heard = json.loads(running.execute(f"pod-{cloud}", "python3", "-I", "/cases/asking.py", "/cases/lines.json"))
    planted, *rows = map(json.loads, running.logs(f"host/cloud-on-{cloud}").splitlines())
    bodies = b""
    for line, each in zip(lines, heard, strict=True):
        answers = [(status, base64.b64decode(body)) for status, body in each["answers"]]
        parts = [part for part in line.parts if part.status]
        assert [status for status, _ in answers] == [
            status if part.sent else part.status for part, (status, _) in zip(parts, answers, strict=True)
        ], line.line
        assert not [body for part, (_, body) in zip(parts, answers, strict=True) if not part.sent and body != part.body]
        assert each["closed"] or not line.parts[-1].closes, line.line
        bodies += b"".join(body for _, body in answers)
    assert [asked(row) for row in rows] == [row for line in lines for row in expected(line)]
    leaked = {name for name, word in planted["secrets"].items() if word.encode() in bodies}
    assert leaked == MAY_BE_READ.get(cloud, set())


def asked(row: dict[str, Any]) -> tuple[str, str, list[str], int]:
    """Give what the cloud saw: method, target, headers without a token's word, the body's length."""
    headers = [f"{name}: {TOKEN if 'ec2-metadata-token' in name.lower() else value}" for name, value in row["headers"]]
    return row["method"], row["target"], headers, row["body"]


def expected(line: Exchange) -> Iterator[tuple[str, str, list[str], int]]:
    if line.needs_token:
        ttl = f"X-aws-ec2-metadata-token-ttl-seconds: {TOKEN}"
        yield "PUT", "/latest/api/token", ["Host: 169.254.169.254", ttl, "Content-Length: 0"], 0
    yield from (seen(part) for part in line.parts if part.sent)


def seen(part: Part) -> tuple[str, str, list[str], int]:
    assert part.sent is not None
    first, *headers = part.sent.head.decode("latin-1").split("\r\n")[:-2]
    row = {"method": part.method, "target": first.split()[1], "body": len(part.sent.body)}
    return asked({**row, "headers": [header.split(": ", 1) for header in headers]})
