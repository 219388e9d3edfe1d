"""The definition of NodeReport: the same in every folder whose agents report, and fit for what they write."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import yaml

from podgate.features.masquerade.feature import FEATURE as MASQUERADE
from podgate.features.metadata.watcher.feature import FEATURE as METADATA_WATCH
from podgate.features.services.feature import FEATURE as SERVICES
from podgate.lab.validity import fault_of
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.config import Namespace
from podgate.model.kinds.meta import ObjectMeta
from podgate.model.kinds.reports import FEATURE_LABEL, MOST, NODE_REPORT, Applied, NodeReport
from podgate.targets.kubernetes.reports import Reporter, report_of
from tests.support.rights import account, documents, folders, rights_in

DEPLOY = Path(__file__).parents[2] / "deploy"
FILES = sorted(DEPLOY.glob("**/nodereports.yaml"))
DEFINITION: Any = yaml.safe_load(FILES[0].read_text())
SCHEMA: Any = DEFINITION["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def test_it_is_the_same_in_every_folder() -> None:
    assert len({path.read_text() for path in FILES}) == 1


def test_it_defines_the_kind_that_agents_write() -> None:
    spec, names = DEFINITION["spec"], DEFINITION["spec"]["names"]
    assert (spec["group"], spec["versions"][0]["name"]) == (NODE_REPORT.group, NODE_REPORT.version)
    assert (names["kind"], names["plural"]) == (NODE_REPORT.kind, NODE_REPORT.plural)
    assert (spec["scope"] == "Cluster") is not NODE_REPORT.namespaced
    assert fault_of(DEFINITION) is None


def test_what_agents_write_has_all_that_is_required_and_nothing_unknown() -> None:
    refs = [ObjectRef("MasqueradePolicy", "a"), ObjectRef("Thing", "b", "ns")]
    objects = {ref: Namespace(ObjectMeta(ref.name, generation=1)) for ref in refs}
    _, fields = report_of("podgate-masquerade", "masquerade", Reporter("n", "u"), objects, {refs[1]: "Odd"})
    body = msgspec.json.decode(fields.body)
    assert body.keys() <= SCHEMA["properties"].keys()
    assert set(SCHEMA["required"]) <= body.keys()
    entry = SCHEMA["properties"]["applied"]["items"]
    for written in body["applied"]:
        assert written.keys() <= entry["properties"].keys()
        assert set(entry["required"]) <= written.keys()


def test_its_bounds_are_those_that_readers_have() -> None:
    defined = {"NodeReport": SCHEMA, "Applied": SCHEMA["properties"]["applied"]["items"]}
    read = msgspec.json.schema(NodeReport)["$defs"]
    bounds = ("maxLength", "maxItems")
    for struct in (NodeReport, Applied):
        for name in set(struct.__struct_encode_fields__) - {"metadata", "generation"}:
            ours, theirs = (each[struct.__name__]["properties"][name] for each in (read, defined))
            assert {key: ours.get(key) for key in bounds} == {key: theirs.get(key) for key in bounds}, name
            assert any(key in theirs for key in bounds), name


def test_agents_keep_to_the_bounds() -> None:
    refs = [ObjectRef("MasqueradePolicy", f"p{number:05}") for number in range(MOST + 1)]
    objects = {ref: Namespace(ObjectMeta(ref.name, generation=1)) for ref in reversed(refs)}
    _, fields = report_of("podgate-masquerade", "masquerade", Reporter("n", "u"), objects, {})
    names = [each["name"] for each in msgspec.json.decode(fields.body)["applied"]]
    assert names == [ref.name for ref in refs[:MOST]]


def test_admission_knows_every_account_that_reports_and_every_feature() -> None:
    policy, binding = documents(DEPLOY / "node-reports")
    reporting = [
        folder
        for folder in folders()
        if any(right.resource == "nodereports" for path in folder.glob("*.yaml") for right in rights_in(path))
    ]
    (condition,) = policy["spec"]["matchConditions"]
    named = re.findall(r'"(system:serviceaccount:[^"]+)"', condition["expression"])
    assert sorted(named) == sorted(f"system:serviceaccount:{':'.join(account(folder))}" for folder in reporting)
    expressions = " ".join(each["expression"] for each in policy["spec"]["validations"])
    features = json.dumps(sorted(each.name.replace("_", "-") for each in (MASQUERADE, METADATA_WATCH, SERVICES)))
    assert f"variables.report.feature in {features}" in expressions
    assert f'"{FEATURE_LABEL}" in' in expressions
    assert binding["spec"]["policyName"] == policy["metadata"]["name"]
    assert [fault_of(each) for each in (policy, binding)] == [None, None]


def test_the_status_of_policies_is_the_same_for_every_feature() -> None:
    """The same code writes it."""
    found = []
    for path in sorted(DEPLOY.glob("**/customresourcedefinition.yaml")):
        (version,) = yaml.safe_load(path.read_text())["spec"]["versions"]
        columns = {each["name"]: each["jsonPath"] for each in version["additionalPrinterColumns"]}
        shown = [columns[name] for name in ("Accepted", "Nodes", "Age")]
        status = version["schema"]["openAPIV3Schema"]["properties"]["status"]
        found.append((version["subresources"], shown, status))
    assert len(found) > 1
    assert all(each == found[0] for each in found)
