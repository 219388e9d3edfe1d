"""Answers as JSON, and decisions that no case of explain.case shows."""

from argparse import Namespace
from types import SimpleNamespace
from typing import Any

import pytest

from podgate.features.services.compile import Compiler
from podgate.features.services.deciding import Sender, decide
from podgate.features.services.explain import Asker, answer_json
from podgate.features.services.feature import Services
from podgate.features.services.node import here_of
from podgate.features.services.settings import Settings
from podgate.joints import QuestionError
from tests.support.service_inputs import inputs_of, node_object

OBJECTS: list[dict[str, Any]] = [
    {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "clusterIP": "fd00:96::7",
            "type": "NodePort",
            "ports": [{"name": "http", "port": 80, "nodePort": 30080}],
        },
    },
    {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "web-1", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv6",
        "ports": [{"name": "http", "port": 8080}],
        "endpoints": [{"addresses": ["fd00:244::2"]}, {"addresses": ["fd00:244::10"]}],
    },
    node_object("node-1", "fd00:1::2"),
]


def test_the_json_form() -> None:
    settings = Settings(node_name="node-1", cluster_cidr="fd00:244::/48", nodeport_addresses="all,localhost")
    inputs = inputs_of(OBJECTS, settings)
    intent = Compiler(settings, lambda found: found)(inputs).states
    here = here_of("node-1", None, inputs.machine)
    (told,) = Asker(intent, inputs, here, "fd00:244::10").answers("[fd00:96::7]:80")
    assert answer_json(told) == {
        "destination": "[fd00:96::7]:80/tcp",
        "service": "shop/web:http",
        "policy": "Cluster",
        "verdict": "forward",
        "endpoints": ["[fd00:244::10]:8080", "[fd00:244::2]:8080"],
        "masquerade": False,
        "hairpin": ["[fd00:244::10]:8080"],
        "sticky": 0,
        "reason": "Pods keep their address",
    }
    nobody = answer_json(*Asker(intent, inputs, here, None).answers("[fd00:96::8]:80"))
    assert (nobody["service"], nobody["policy"], nobody["verdict"], nobody["endpoints"]) == ("", "", "none", [])


def test_the_json_form_of_services_that_no_proxy_does_anything_for() -> None:
    names = {"headless": {"clusterIP": "None", "ports": [{"port": 80}]}, "away": {"type": "ExternalName"}}
    services = [{"apiVersion": "v1", "kind": "Service", "metadata": {"name": n}, "spec": s} for n, s in names.items()]
    settings = Settings(node_name="node-1")
    inputs = inputs_of([*OBJECTS, *services], settings)
    intent = Compiler(settings, lambda found: found)(inputs).states
    asker = Asker(intent, inputs, here_of("node-1", None, inputs.machine), None)
    for name in names:
        assert answer_json(*asker.answers(name)) == {
            "destination": name,
            "service": f"default/{name}",
            "policy": "",
            "verdict": "none",
            "endpoints": [],
            "masquerade": False,
            "hairpin": [],
            "sticky": 0,
            "reason": "it has no cluster IP with a port, so no proxy does anything for it",
        }


def test_node_ports_on_loopback_only_where_they_are_open_there() -> None:
    for words, verdict in (("all,localhost", "forward"), ("all", "none")):
        settings = Settings(node_name="node-1", nodeport_addresses=words)
        intent = Compiler(settings, lambda found: found)(inputs_of(OBJECTS, settings)).states
        assert intent.ip6 is not None
        loopback = bytes((*[0] * 15, 1))
        decided = decide(intent.ip6, Sender("node", (loopback,)), loopback, "tcp", 30080, own=frozenset())
        assert decided.verdict == verdict


def test_a_family_that_is_off_has_no_services() -> None:
    settings = Settings(node_name="node-1")
    inputs = inputs_of(OBJECTS, settings)
    machine = inputs.machine.__class__("node-1", lacks=frozenset({"ip6"}))
    inputs = inputs.__class__(inputs.objects, machine=machine)
    intent = Compiler(settings, lambda found: found)(inputs).states
    assert intent.ip6 is None
    (answer,) = Asker(intent, inputs, here_of("node-1", None, machine), None).answers("[fd00:96::7]:80")
    assert (answer.decision.verdict, answer.decision.reason) == ("none", "this family is switched off on this node")


def test_one_bad_destination_leaves_the_answers_for_the_others() -> None:
    feature, settings = Services(), Settings(node_name="node-1")
    inputs = inputs_of(OBJECTS, settings)
    compiled = feature.compiler(settings)(inputs)
    look = SimpleNamespace(inputs=inputs)
    asked = Namespace(destination=["[fd00:96::7]:80", "nonsense/", "shop/web:http"], sender=None)
    answered = feature.explain(asked, compiled, look)
    assert (answered.code, len(answered.text.splitlines()), len(answered.errors)) == (2, 2, 1)
    assert [row.get("error", "") for row in answered.data] == ["", "", *answered.errors]
    asked.destination = ["nonsense/"]
    with pytest.raises(QuestionError, match='"nonsense/" is no destination'):
        feature.explain(asked, compiled, look)
