"""The verbs that only look, from files, as the command line calls them."""

import argparse
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from podgate.features.metadata.feature import FEATURE
from podgate.features.metadata.settings import Settings
from podgate.joints import QuestionError
from podgate.verbs import Looking

OBJECTS = """
apiVersion: podgate.dev/v1alpha1
kind: MetadataPolicy
metadata: {name: x}
spec:
  subjects: {namespaces: [a]}
  rules:
  - {paths: [/computeMetadata/v1/instance/attributes/kube-env], verdict: allow}
---
{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: a}, spec: {nodeName: node-1}, status: {podIP: 10.64.0.2}}
---
{apiVersion: v1, kind: Pod, metadata: {name: h, namespace: a}, spec: {nodeName: node-1, hostNetwork: true}}
---
{apiVersion: v1, kind: Pod, metadata: {name: new, namespace: a}, spec: {nodeName: node-1}}
"""
KUBE_ENV = "/computeMetadata/v1/instance/attributes/kube-env"


@pytest.fixture(name="settings")
def _settings(tmp_path: Path) -> Settings:
    (tmp_path / "objects.yaml").write_text(OBJECTS)
    return Settings(source=str(tmp_path), node_name="node-1")


def asked(settings: Settings, *words: str) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser()
    FEATURE.add_questions(parser)
    look = Looking(FEATURE, settings, {}, print)
    data = FEATURE.explain(parser.parse_args(words), FEATURE.compiler(settings)(look.inputs), look).data
    assert isinstance(data, list)
    return data


def test_explain_answers_each_question(settings: Settings) -> None:
    rows = asked(settings, KUBE_ENV, "http://metadata.google.internal/", "--from", "a/p")
    assert [(row["path"], row["verdict"], row["rule"]) for row in rows] == [
        (KUBE_ENV, "forward", "MetadataPolicy/x rules[0]"),
        ("/", "forward", "gce/roots"),
    ]


def test_who_asks(settings: Settings) -> None:
    assert [row["reason"] for row in asked(settings, KUBE_ENV)] == ["Concealed"]
    assert [row["reason"] for row in asked(settings, KUBE_ENV, "--from", "10.64.0.2")] == ["Allowed"]
    assert [row["reason"] for row in asked(settings, KUBE_ENV, "--from", "10.64.0.3")] == ["Concealed"]
    assert [row["reason"] for row in asked(settings, KUBE_ENV, "--from", "a/h")] == ["NotRedirected"]


def test_where_all_pods_are_in_the_nodes_ranges_nobody_else_is_served(tmp_path: Path) -> None:
    node = "---\n{apiVersion: v1, kind: Node, metadata: {name: node-1}, spec: {podCIDRs: [10.64.0.0/24]}}"
    (tmp_path / "objects.yaml").write_text(OBJECTS + node)
    narrow = Settings(source=str(tmp_path), node_name="node-1")
    addresses = ("10.64.0.3", "10.65.0.3", "fd00::3", "127.0.0.1")
    reasons = ["Concealed", "NotAdmitted", "NotAdmitted", "Concealed"]
    assert [asked(narrow, KUBE_ENV, "--from", address)[0]["reason"] for address in addresses] == reasons
    wider = replace(narrow, allow_from="10.65.0.0/16")
    assert asked(wider, KUBE_ENV, "--from", "10.65.0.3")[0]["reason"] == "Concealed"


def test_headers_and_methods(settings: Settings) -> None:
    assert [row["reason"] for row in asked(settings, "/", "-H", "A: b", "-H", "X-Forwarded-For: c")] == ["ForwardedFor"]
    assert [row["status"] for row in asked(settings, "/", "--method", "DELETE")] == [405]


@pytest.mark.parametrize(("sender", "words"), [("nobody", "neither"), ("a/none", "a/p"), ("a/new", "no address yet")])
def test_a_sender_that_is_not_there(settings: Settings, sender: str, words: str) -> None:
    with pytest.raises(QuestionError, match=words):
        asked(settings, "/", "--from", sender)


def test_check_finds_what_opens_a_secret(settings: Settings) -> None:
    look = Looking(FEATURE, settings, {}, print)
    answered = FEATURE.check(FEATURE.compiler(settings)(look.inputs), look)
    assert answered.code == 1
    assert "OpensSecret" in answered.text
    assert "MetadataPolicy/x:spec.rules[0].paths" in answered.text


def test_render_shows_the_filter_and_the_rules() -> None:
    settings = Settings(node_name="node-1")
    states = FEATURE.compiler(settings)(Looking(FEATURE, settings, {}, print).inputs).states
    answered = FEATURE.render(states)
    assert answered.data["filter"]["profile"]["name"] == "gce"
    assert "redirect 169.254.169.254:80 to 169.254.169.252:988" in answered.text
    assert [sample.value for sample in FEATURE.samples(states)] == [0, 0]
    names = [step.name for step in FEATURE.steps(settings)]
    redirects = ["nftables/redirect", "iptables-nft", "iptables-legacy"]
    assert names == [*redirects, "nftables/ip", "nftables/ip6", "addresses"]
    assert FEATURE.recover({}) == {}
