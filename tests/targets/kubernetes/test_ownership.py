"""managedFields: what is read back is what we own, and nothing else."""

import json
from typing import Any

from podgate.model.frozen import ObjectRef
from podgate.model.kinds.config import CONFIG_MAP
from podgate.targets.kubernetes.ownership import owned_page, owned_parts
from podgate.targets.kubernetes.state import Part

REF = ObjectRef("ConfigMap", "a", "ns")


def entry(
    tree: dict[str, Any], manager: str = "podgate", operation: str = "Apply", subresource: str = ""
) -> dict[str, Any]:
    more = {"subresource": subresource} if subresource else {}
    return {"manager": manager, "operation": operation, "fieldsType": "FieldsV1", "fieldsV1": tree, **more}


def obj(*entries: dict[str, Any], **fields: Any) -> bytes:
    metadata = {"name": "a", "namespace": "ns", "labels": {"x": "1", "y": "2"}, "managedFields": entries}
    return json.dumps({"metadata": metadata, **fields}).encode()


def owned(data: bytes) -> dict[Part, Any]:
    return {part: json.loads(fields.body) for part, fields in owned_parts(data, CONFIG_MAP, "podgate")}


def test_only_our_own_fields_are_taken() -> None:
    data = obj(
        entry({"f:metadata": {"f:labels": {".": {}, "f:x": {}}}}), entry({"f:data": {}}, "kubectl"), data={"k": "v"}
    )
    assert owned(data) == {Part(REF): {"metadata": {"labels": {"x": "1"}}}}


def test_what_we_wrote_without_applying_is_not_ours() -> None:
    assert owned(obj(entry({"f:data": {}}, operation="Update"), data={})) == {}


def test_status_is_a_part_of_its_own() -> None:
    data = obj(entry({"f:status": {"f:phase": {}}}, subresource="status"), status={"phase": "Ready", "other": 1})
    assert owned(data) == {Part(REF, "status"): {"status": {"phase": "Ready"}}}


def test_items_of_lists_are_found_by_key_and_by_value() -> None:
    tree = {
        "f:status": {
            "f:conditions": {'k:{"type":"Ready"}': {".": {}, "f:type": {}, "f:status": {}}},
            "f:finalizers": {'v:"ours"': {}},
            "f:whole": {},
        }
    }
    status = {
        "conditions": [{"type": "Other", "status": "x"}, {"type": "Ready", "status": "True", "theirs": 1}],
        "finalizers": ["theirs", "ours"],
        "whole": [1, 2],
    }
    assert owned(obj(entry(tree, subresource="status"), status=status))[Part(REF, "status")]["status"] == {
        "conditions": [{"type": "Ready", "status": "True"}],
        "finalizers": ["ours"],
        "whole": [1, 2],
    }


def test_a_field_that_is_gone_is_not_made_up() -> None:
    assert owned(obj(entry({"f:data": {"f:k": {}}}))) == {}
    assert owned(obj(entry({"f:data": {"f:k": {}}}), data={"other": "1"})) == {Part(REF): {"data": {}}}


def test_a_page_gives_its_parts_and_its_token() -> None:
    body = (
        b'{"metadata":{"continue":"t"},"items":[' + obj(entry({"f:data": {}}), data={"k": "v"}) + b"," + obj() + b"]}"
    )
    page = owned_page(body, CONFIG_MAP, "podgate")
    assert ([part for part, _ in page.parts], page.token) == ([Part(REF)], "t")
    assert owned_page(b'{"items":null}', CONFIG_MAP, "podgate").parts == ()
