"""Whether a store is the one that was followed: what was known, what it says, the verdict."""

import json

import pytest

from podgate.kubeapi.answers import Refusal
from podgate.kubeapi.frames import Batch, Bookmark, Broken, Gone, NotAFrame, Put
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.config import ConfigMap
from podgate.model.problems import Problem
from podgate.sources.kube.standing import Last, Standing, judged, last_change, standing_of

REF = ObjectRef("ConfigMap", "a", "default")
PUT, GONE = Last(REF, "90"), Last(REF, "90", gone=True)


@pytest.mark.parametrize(
    ("last", "store", "found", "verdict"),
    [
        # The store's version alone.
        (None, "100", "", "same"),
        (None, "2000", "", "same"),
        (None, "99", "", "older"),
        (PUT, "99", "90", "older"),
        # It has caught up, or never was behind: the object that changed last, at 90, tells.
        (PUT, "100", "90", "same"),
        (PUT, "120", "110", "same"),
        (PUT, "120", "80", "older"),
        (PUT, "120", "95", "older"),
        (PUT, "120", "", "doubtful"),
        (GONE, "120", "", "same"),
        (GONE, "120", "110", "same"),
        (GONE, "120", "80", "older"),
        (GONE, "120", "90", "older"),
        # Versions that are no numbers cannot be compared.
        (PUT, "", "", "same"),
        (PUT, "x99", "80", "same"),
        (PUT, "٩٩", "80", "same"),
    ],
)
def test_a_store_beside_what_was_followed_to_version_100(
    last: Last | None, store: str, found: str, verdict: str
) -> None:
    assert judged("100", last, Standing(store, {"a": found} if found else {})) == verdict


def test_versions_are_compared_as_numbers() -> None:
    assert judged("99", None, Standing("100")) == "same"
    assert judged("x", None, Standing("1")) == "same"


OBJECT = Put(REF, ConfigMap())


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (Batch((OBJECT, Bookmark()), "100", "90"), PUT),
        (Batch((OBJECT, Gone(REF)), "90", "90"), GONE),
        (Batch((Broken(Problem(REF, "error", "Invalid", "data", "no")), Refusal(500)), "90", "90"), PUT),
        (Batch((Bookmark(),), "100"), None),
        (Batch((OBJECT,), ""), None),
    ],
)
def test_the_last_change_in_a_batch(batch: Batch, expected: Last | None) -> None:
    assert last_change(batch) == expected


def test_an_answer_is_a_list_of_whatever_has_metadata() -> None:
    item = {"metadata": {"name": "a", "resourceVersion": "90", "labels": None}, "data": {"k": 1}}
    body = {"kind": "ConfigMapList", "metadata": {"resourceVersion": "100"}, "items": [item]}
    assert standing_of(json.dumps(body).encode()) == Standing("100", {"a": "90"})
    assert standing_of(json.dumps({**body, "items": None}).encode()) == Standing("100")
    for wrong in (b"<html>", b"[]", b'{"metadata": 7}'):
        with pytest.raises(NotAFrame, match="no list where a version was asked for"):
            standing_of(wrong)
