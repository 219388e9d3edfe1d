"""API JSON that does not fit its struct: null is absent, and complaints name the field."""

import msgspec
import pytest

from podgate.model.converting import invalid, without_nulls
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.pods import Pod

POD = ObjectRef("Pod", "web", "default")


def test_null_is_the_same_as_absent_in_maps_and_stays_in_lists() -> None:
    assert without_nulls({"a": None, "b": {"c": None, "d": [None, {"e": None}]}}) == {"b": {"d": [None, {}]}}


@pytest.mark.parametrize(
    ("obj", "field", "message"),
    [
        ({"spec": {"nodeName": 7}}, "spec.nodeName", "expected text, got a whole number: correct it"),
        ({"spec": []}, "spec", "expected a map, got a list: correct it"),
        ({"spec": {"nodeName": None}}, "spec.nodeName", "expected text, got null: correct it"),
        (
            {"metadata": {"deletionTimestamp": 1}},
            "metadata.deletionTimestamp",
            "expected text, got a whole number: correct it",
        ),
        ({"metadata": {"labels": {"a": 1}}}, "metadata.labels", "expected text, got a whole number: correct it"),
    ],
)
def test_a_complaint_names_the_field_and_what_is_there(obj: object, field: str, message: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(obj, Pod)
    problem = invalid(POD, str(caught.value))
    assert (problem.ref, problem.field, problem.message) == (POD, field, message)
