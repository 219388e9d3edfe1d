"""The case files from a Pod: redirected by the node's rules, decided by deploy/metadata's proxy, seen by a cloud."""

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.features.metadata.wire import TOKEN, Exchange, Part, exchanges_of
from tests.support.cases import read_cases
from tests.support.lab import TestLab, lab
from tests.support.metadata_lab import cloud_node, proxy_of

pytestmark = [pytest.mark.kernel, pytest.mark.lab, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
MAY_BE_READ: Final = {
    "profile: gce": {"token"},
    "profile: aws": set(),
    "profile: azure": set(),
    "profile: openstack": set(),
}
"""What is planted as a secret and given to Pods by default; of openstack the server's answer is without the field."""


def groups() -> dict[str, list[Exchange]]:
    """Give the lines of the cases by their options: those in which anybody may ask, and no policy file is read."""
    found: dict[str, list[Exchange]] = {}
    for case in read_cases(*sorted((ROOT / "tests" / "features" / "metadata" / "cases").glob("*.case"))):
        section = case.one("settings")
        options = ", ".join(section.lines) if section else "profile: gce"
        lines = exchanges_of(case)[1] if case.one("policy") is case.one("objects") is None else []
        if lines:
            found.setdefault(options, []).extend(lines)
    return found


GROUPS: Final = {f"n{number}": group for number, group in enumerate(groups().items(), 2)}
"""Node to the options of its proxy, and the lines that its Pod says."""


def cloud_of(options: str) -> str:
    found = re.search(r"profile: (\w+)", options)
    return found.group(1) if found else "gce"


def flags(options: str) -> list[str]:
    """Give options as words of a command line."""
    words = []
    for option in re.split(r", (?=\w+: )", options):
        name, _, value = option.partition(": ")
        flag = name.replace("_", "-")
        words += {"true": [f"--{flag}"], "false": [f"--no-{flag}"]}.get(value, [f"--{flag}", value])
    return words


def manifests() -> Iterator[dict[str, Any]]:
    asking = (ROOT / "tests" / "support" / "asking_pod.py").read_text()
    for node, (options, exchanges) in GROUPS.items():
        yield cloud_node(node, int(node[1:]), cloud_of(options))
        lines = [
            {
                "data": base64.b64encode(each.data).decode(),
                "heads": [part.method == "HEAD" for part in each.parts if part.status],
                "token": TOKEN if each.needs_token else "",
            }
            for each in exchanges
        ]
        yield {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": node},
            "data": {"asking.py": asking, "lines.json": json.dumps(lines)},
        }
        container = {"name": "main", "image": "busybox", "command": ["sleep", "infinity"]}
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"on-{node}"},
            "spec": {
                "nodeName": node,
                "containers": [{**container, "volumeMounts": [{"name": "cases", "mountPath": "/cases"}]}],
                "volumes": [{"name": "cases", "configMap": {"name": node}}],
            },
        }
        yield proxy_of(node, flags(options))


@pytest.fixture(scope="module")
def running() -> Iterator[TestLab]:
    account = (ROOT / "deploy" / "metadata" / "serviceaccount.yaml").read_text()
    with lab(account, yaml.safe_dump_all(list(manifests())), name="cases") as started:
        yield started


def test_most_lines_are_said() -> None:
    assert sum(len(lines) for _, lines in GROUPS.values()) > 500
    assert {part.sent is None for _, lines in GROUPS.values() for line in lines for part in line.parts} == {True, False}


@pytest.mark.parametrize("node", GROUPS, ids=[options for options, _ in GROUPS.values()])
def test_every_line_of_the_cases_from_a_pod(running: TestLab, node: str) -> None:
    options, lines = GROUPS[node]
    heard = json.loads(running.execute(f"on-{node}", "python3", "-I", "/cases/asking.py", "/cases/lines.json"))
    planted, *rows = map(json.loads, running.logs(f"host/cloud-{node}").splitlines())
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
    assert leaked == MAY_BE_READ.get(options, leaked)


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
