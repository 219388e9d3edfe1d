"""The definition of MasqueradePolicy: an API server takes it, and it says what the feature reads.

Here: the schema as an API server would execute it, over the policies of the feature's cases. Not here: what a policy
does. Invariant: what the schema refuses, the feature refuses too, and what the feature takes, the schema takes.
"""

import re
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml

from podgate.features.masquerade.policies import ACTIONS, read_policy
from podgate.features.masquerade.policy import MASQUERADE_POLICY, MasqueradePolicy, policy_ref
from podgate.lab.validity import fault_of
from podgate.model.documents import parse
from podgate.model.kinds.meta import ObjectMeta
from podgate.model.kinds.reports import Applied, NodeReport
from podgate.targets.kubernetes.conditions import stamped
from podgate.targets.kubernetes.reports import Condition, heard, statuses
from tests.support.cases import read_cases

ROOT = Path(__file__).parents[2]
DEFINITION: Any = yaml.safe_load(
    (ROOT / "deploy" / "masquerade-policies" / "customresourcedefinition.yaml").read_text()
)
VERSION: Any = DEFINITION["spec"]["versions"][0]
WHOLE: Any = VERSION["schema"]["openAPIV3Schema"]["properties"]
SPEC: Any = WHOLE["spec"]
CASES = read_cases(*sorted((ROOT / "tests" / "features" / "masquerade" / "cases").glob("*.case")))

TYPES: Final[dict[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
}
KEYWORDS: Final = {
    *("type", "description", "properties", "additionalProperties", "required", "items", "enum", "pattern", "format"),
    *("default", "minItems", "maxItems", "maxLength", "x-kubernetes-list-type", "x-kubernetes-map-type"),
    *("x-kubernetes-validations", "x-kubernetes-list-map-keys"),
}


def written() -> list[Any]:
    sections = [case.one("objects") for case in CASES]
    documents = [each for section in sections if section for each in parse(section.data).documents]
    found = [each for each in documents if each.get("kind") == MASQUERADE_POLICY.kind]
    assert len(found) > 50
    return found


def test_it_defines_the_kind_that_the_feature_watches() -> None:
    names = DEFINITION["spec"]["names"]
    assert (DEFINITION["spec"]["group"], VERSION["name"]) == (MASQUERADE_POLICY.group, MASQUERADE_POLICY.version)
    assert (names["kind"], names["plural"]) == (MASQUERADE_POLICY.kind, MASQUERADE_POLICY.plural)
    assert DEFINITION["metadata"]["name"] == f"{MASQUERADE_POLICY.plural}.{MASQUERADE_POLICY.group}"
    assert (DEFINITION["spec"]["scope"] == "Cluster") is not MASQUERADE_POLICY.namespaced
    assert SPEC["properties"]["action"]["enum"] == list(ACTIONS)
    assert fault_of(DEFINITION) is None


def test_the_schema_is_structural() -> None:
    """apiextensions/v1: each level has its type, and says what is below it."""

    def level(schema: Any, path: str) -> None:
        assert schema.keys() <= KEYWORDS, path
        assert schema["type"] in TYPES, path
        if schema["type"] == "array":
            level(schema["items"], f"{path}[]")
        for name, below in schema.get("properties", {}).items():
            level(below, f"{path}.{name}")
        if isinstance(schema.get("additionalProperties"), dict):
            assert "properties" not in schema, path
            level(schema["additionalProperties"], f"{path}.*")

    level(VERSION["schema"]["openAPIV3Schema"], "")


def faults(schema: Any, value: Any, path: str = "spec") -> list[str]:
    """Give the paths that an API server would refuse; unknown fields it drops or, asked to be strict, refuses."""
    if isinstance(value, bool) or not isinstance(value, TYPES[schema["type"]]):
        return [path]
    found: list[str] = []
    if isinstance(value, str):
        too_long = len(value) > schema.get("maxLength", len(value))
        bad = too_long or (value not in schema.get("enum", [value]))
        if bad or ("pattern" in schema and not re.search(schema["pattern"], value)):
            found.append(path)
    if isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            found.append(path)
        for index, item in enumerate(value):
            found += faults(schema["items"], item, f"{path}[{index}]")
    if isinstance(value, dict):
        found += [f"{path}.{name}" for name in schema.get("required", []) if name not in value]
        for name, item in value.items():
            below = schema.get("properties", {}).get(name) or schema.get("additionalProperties")
            found += [f"{path}.{name}"] if below is None else faults(below, item, f"{path}.{name}")
    return found


def by_rules(spec: Any) -> list[str]:
    """Say which of the two CEL rules a spec breaks, as they are written in the definition."""
    rules = [each["rule"] for each in SPEC["x-kubernetes-validations"]]
    assert rules == [
        "self.action == 'SNAT' ? has(self.snatAddress) : !has(self.snatAddress)",
        "self.action != 'Keep' || !has(self.ports)",
    ]
    kept = [
        ("snatAddress" in spec) == (spec.get("action") == "SNAT"),
        spec.get("action") != "Keep" or "ports" not in spec,
    ]
    return [rule for rule, holds in zip(rules, kept, strict=True) if not holds]


@pytest.mark.parametrize("policy", written(), ids=lambda each: each["metadata"]["name"][:20])
def test_schema_and_feature_agree(policy: Any) -> None:
    spec = policy.get("spec")
    refused = faults(SPEC, spec) or by_rules(spec)
    reading = read_policy(MasqueradePolicy(ObjectMeta(name="p"), spec), ("ip", "ip6"))
    if refused:
        assert reading.written is None, refused
    if reading.written is not None:
        assert not refused


def test_the_status_that_is_written_fits_and_is_a_part_of_its_own() -> None:
    ref = policy_ref("p")
    objects = {ref: MasqueradePolicy(ObjectMeta(name="p", generation=3))}
    told = [NodeReport(node=f"node-{number}", applied=(Applied(ref.kind, "p", "", 3),)) for number in range(20)]
    conditions = (Condition("Accepted", True, "Valid"), Condition("Conflicted", True, "ShadowedPolicy", "by another"))
    told += [NodeReport(node=f"x{number}") for number in range(20)]
    ((_, fields),) = statuses(objects, {ref: conditions}, map(heard, told))
    body, _ = stamped(msgspec.json.decode(fields.body), {}, "2026-01-01T00:00:00Z")
    assert faults(WHOLE["status"], body["status"], "status") == []
    assert VERSION["subresources"] == {"status": {}}
    columns = {each["name"]: each["jsonPath"] for each in VERSION["additionalPrinterColumns"]}
    assert columns["Nodes"] == ".status.nodes.summary"
    assert body["status"]["nodes"]["summary"] == "20/40"


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"action": "keep"},
        {"action": "SNAT"},
        {"action": "Masquerade", "snatAddress": "192.0.2.1"},
        {"action": "Keep", "ports": "1024-2048"},
        {"action": "Keep", "to": []},
        {"action": "Keep", "to": [{"except": ["10.0.0.0/8"]}]},
        {"action": "Keep", "to": [{"cidr": "10.0.0.0"}]},
        {"action": "Keep", "form": {}},
        {"action": "Keep", "from": {"podSelector": {"app": "web"}}},
        {"action": "Keep", "outputInterfaces": ["*"]},
        {"action": "Masquerade", "ports": "1024, 2048"},
        {"action": "Keep", "priority": "high"},
    ],
)
def test_an_api_server_refuses_it_at_once(spec: Any) -> None:
    assert faults(SPEC, spec) or by_rules(spec)
