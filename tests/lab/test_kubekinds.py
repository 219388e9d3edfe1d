"""Objects of an API, whole: the same from lists and watches."""

import json

import pytest

from podgate.kubeapi.answers import Refusal
from podgate.kubeapi.frames import Bookmark, Gone, NotAFrame, Put
from podgate.lab.kubekinds import WATCHED, Whole, kind_named
from podgate.model.frozen import ObjectRef

POD = kind_named("Pod")
REF = ObjectRef("Pod", "web", "shop")
RAW = {
    "metadata": {"name": "web", "namespace": "shop", "resourceVersion": "7", "managedFields": [{"manager": "x"}]},
    "spec": {"nodeName": None, "anything": [{"at": "all", "null": None}]},
}
KEPT = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "shop", "resourceVersion": "7"},
    "spec": {"anything": [{"at": "all"}]},
}


def line(word: str, value: object) -> bytes:
    return json.dumps({"type": word, "object": value}).encode()


def test_a_list_and_a_watch_bring_the_same_object() -> None:
    page = Whole(POD).page(
        json.dumps({"metadata": {"resourceVersion": "9", "continue": "more"}, "items": [RAW]}).encode()
    )
    assert page.events == (Put(REF, KEPT),)
    assert (page.resource_version, page.token) == ("9", "more")
    assert Whole(POD).batch([line("ADDED", RAW)]).events == page.events


def test_a_batch_has_the_newest_version_and_every_kind_of_event() -> None:
    end = {"metadata": {"resourceVersion": "12", "annotations": {"k8s.io/initial-events-end": "true"}}}
    expired = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    batch = Whole(POD).batch(
        [line("MODIFIED", RAW), line("DELETED", RAW), line("BOOKMARK", end), line("ERROR", expired)]
    )
    assert batch.events == (Put(REF, KEPT), Gone(REF), Bookmark(initial_end=True), Refusal(410, "Expired", "too old"))
    assert (batch.resource_version, batch.object_version) == ("12", "7")


@pytest.mark.parametrize("bad", [b"{", b"[]", line("ADDED", {"metadata": {}}), line("HELLO", RAW)])
def test_what_is_no_frame_is_refused(bad: bytes) -> None:
    with pytest.raises(NotAFrame):
        Whole(POD).batch([bad])


def test_every_watched_kind_has_a_path() -> None:
    assert {kind_named(name).plural for name in WATCHED} >= {"pods", "nodes", "hosts", "daemonsets"}
    assert kind_named("Host").api_version == "lab.podgate.dev/v1"
