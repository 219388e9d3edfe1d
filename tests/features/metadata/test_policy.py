"""The kind MetadataPolicy: its CustomResourceDefinition says what the structs read, no more and no less."""

from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec

from podgate.features.metadata.policy import METADATA_POLICY, MetadataPolicy
from podgate.features.metadata.spec import MAX_RULES, METHODS, Expression, PodSelector, PolicySpec, Rule, Subjects
from podgate.model.documents import parse

PAGE = Path(__file__).parents[3] / "deploy" / "metadata" / "customresourcedefinition.yaml"
(CRD,) = parse(PAGE.read_bytes()).documents
SPEC = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
RULE = SPEC["properties"]["rules"]["items"]


def fields(cls: type) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(cls)}


def test_the_names() -> None:
    names = CRD["spec"]["names"]
    assert (CRD["spec"]["group"], CRD["spec"]["versions"][0]["name"]) == (
        METADATA_POLICY.group,
        METADATA_POLICY.version,
    )
    assert (names["kind"], names["plural"]) == (METADATA_POLICY.kind, METADATA_POLICY.plural)
    assert CRD["metadata"]["name"] == f"{METADATA_POLICY.plural}.{METADATA_POLICY.group}"
    assert (CRD["spec"]["scope"] == "Namespaced") is METADATA_POLICY.namespaced


def test_each_level_has_the_fields_of_its_struct() -> None:
    subjects = SPEC["properties"]["subjects"]["properties"]
    selector = subjects["podSelector"]["properties"]
    levels: list[tuple[dict[str, Any], type]] = [
        (SPEC["properties"], PolicySpec),
        (subjects, Subjects),
        (selector, PodSelector),
        (selector["matchExpressions"]["items"]["properties"], Expression),
        (RULE["properties"], Rule),
    ]
    assert [(set(properties), cls) for properties, cls in levels] == [(fields(cls), cls) for _, cls in levels]


def test_each_choice_has_the_values_of_its_struct() -> None:
    properties = RULE["properties"]
    assert tuple(properties["verdict"]["enum"]) == get_args(get_type_hints(Rule)["verdict"])
    assert tuple(properties["methods"]["items"]["enum"]) == METHODS
    assert SPEC["properties"]["rules"]["maxItems"] == MAX_RULES


def test_an_object_decodes_whatever_its_spec_holds() -> None:
    assert msgspec.json.decode(b'{"spec": {"rules": 1}, "status": {}}', type=MetadataPolicy).spec == {"rules": 1}
