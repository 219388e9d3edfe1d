"""Watch frames and list pages: bytes cut anywhere give the same events, and nonsense is named."""

import itertools
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podgate.kubeapi.answers import Refusal
from podgate.kubeapi.frames import INITIAL_END, Bookmark, Broken, Decoder, Event, Gone, LineSplitter, NotAFrame, Put
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.config import CONFIG_MAP, ConfigMap
from podgate.model.kinds.nodes import NODE
from podgate.model.kinds.reports import NODE_REPORT

DECODER = Decoder(CONFIG_MAP)
REF = ObjectRef("ConfigMap", "a", "default")


def obj(name: str = "a", version: int = 7, **fields: object) -> dict[str, object]:
    metadata = {
        "name": name,
        "namespace": "default",
        "resourceVersion": str(version),
        "managedFields": [{"x": {"a": 1}}],
    }
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, **fields}


def frame(word: str, what: object) -> bytes:
    return json.dumps({"type": word, "object": what}).encode() + b"\n"


GONE_STATUS = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
END = {"metadata": {"resourceVersion": "9", "annotations": {INITIAL_END: "true"}, "creationTimestamp": None}}

HISTORY = b"".join(
    (
        frame("ADDED", obj(data={"k": 'ä\n"}{'})),
        frame("MODIFIED", obj(version=8, data=None)),
        frame("BOOKMARK", END),
        frame("DELETED", obj(version=10)),
        frame("ERROR", GONE_STATUS),
    )
)


def events(*chunks: bytes) -> list[Event]:
    lines, found = LineSplitter(), list[Event]()
    for chunk in chunks:
        found += DECODER.batch(lines.feed(chunk)).events
    return found


WHOLE = events(HISTORY)


def test_each_kind_of_frame_is_an_event() -> None:
    added, modified, bookmark, deleted, error = WHOLE
    assert isinstance(added, Put)
    assert (added.ref, added.obj.data) == (REF, {"k": 'ä\n"}{'})
    assert isinstance(modified, Put)
    assert modified.obj.data == {}
    assert (bookmark, deleted) == (Bookmark(initial_end=True), Gone(REF))
    assert error == Refusal(410, "Expired", "too old")


def test_a_batch_has_the_newest_version_and_that_of_the_last_object() -> None:
    lines = HISTORY.splitlines()
    found = [(batch.resource_version, batch.object_version) for batch in (DECODER.batch(lines[:n]) for n in range(6))]
    assert found == [("", ""), ("7", "7"), ("8", "8"), ("9", "8"), ("10", "10"), ("10", "10")]


def test_it_does_not_matter_where_the_bytes_were_cut() -> None:
    for cut in range(len(HISTORY) + 1):
        assert events(HISTORY[:cut], HISTORY[cut:]) == WHOLE


@given(st.lists(st.integers(0, len(HISTORY)), max_size=12))
def test_many_cuts_do_not_matter_either(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(HISTORY)]
    assert events(*(HISTORY[start:end] for start, end in itertools.pairwise(places))) == WHOLE


def test_one_byte_at_a_time() -> None:
    assert events(*(HISTORY[index : index + 1] for index in range(len(HISTORY)))) == WHOLE


def test_a_batch_has_the_newest_resource_version_but_not_that_of_an_error() -> None:
    assert DECODER.batch(HISTORY.splitlines()).resource_version == "10"
    assert DECODER.batch([frame("ERROR", GONE_STATUS)]).resource_version == ""
    assert DECODER.batch([]).resource_version == ""


@pytest.mark.parametrize(
    "line",
    [
        b"x",
        b"[]",
        b"{}",
        b"<html>502</html>",
        b'{"type":"ADDED"',
        b'{"type":"ADDED"}',
        b'{"type":"ADDED","object":{}}',
        b'{"type":"ADDED","object":[]}',
        b'{"type":"DELETED"}',
        b'{"type":"BOOKMARK","object":7}',
        b'{"type":"CHANGED","object":{"metadata":{"name":"a"}}}',
        b'{"type":7,"object":{}}',
        b'{"type":"ADDED","object":{"metadata":{"name":7}}}',
        b'{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":7}}}',
        b"\xff\xfe",
    ],
)
def test_what_is_no_frame_is_named(line: bytes) -> None:
    with pytest.raises(NotAFrame):
        DECODER.batch([line])


@given(st.binary(max_size=80))
def test_no_bytes_raise_anything_else(line: bytes) -> None:
    try:
        DECODER.batch([line])
    except NotAFrame:
        return


def test_an_endless_line_is_refused() -> None:
    lines = LineSplitter(longest=10)
    assert lines.feed(b"0123456789\n") == [b"0123456789"]
    assert lines.feed(b"01234567") == []
    with pytest.raises(NotAFrame, match="longer than 10 bytes"):
        lines.feed(b"89a")


def test_an_object_that_does_not_fit_is_broken_and_named() -> None:
    (event,) = DECODER.batch([frame("ADDED", obj(data={"k": 1}))]).events
    assert isinstance(event, Broken)
    assert (event.problem.ref, event.problem.field) == (REF, "data")
    assert event.problem.message == "expected text, got a whole number: correct it"


def test_a_page_gives_objects_its_version_and_where_it_goes_on() -> None:
    page = DECODER.page(
        json.dumps(
            {"metadata": {"resourceVersion": "5", "continue": "t"}, "items": [obj(), obj("b", data=None)]}
        ).encode()
    )
    assert (page.resource_version, page.token) == ("5", "t")
    assert [event.ref.name for event in page.events if isinstance(event, Put)] == ["a", "b"]


def test_one_bad_object_of_a_page_does_not_take_the_others() -> None:
    page = DECODER.page(json.dumps({"metadata": {"resourceVersion": "5"}, "items": [obj(data=[]), obj("b")]}).encode())
    assert [type(event) for event in page.events] == [Broken, Put]


def test_an_empty_list_may_be_null() -> None:
    assert DECODER.page(b'{"metadata":{"resourceVersion":"5"},"items":null}').events == ()


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"<html>", b'{"items":7}', b'{"items":[7]}', b'{"items":[{}]}', b'{"items":[{"data":7}]}']
)
def test_what_is_no_list_is_named(body: bytes) -> None:
    with pytest.raises(NotAFrame):
        DECODER.page(body)


def test_an_object_of_a_cluster_wide_kind_has_no_namespace() -> None:
    batch = Decoder(NODE).batch([frame("ADDED", {"metadata": {"name": "n", "resourceVersion": "1"}})])
    assert [event.ref for event in batch.events if isinstance(event, Put)] == [ObjectRef("Node", "n")]


def test_only_the_fields_of_the_kind_are_kept() -> None:
    (event,) = DECODER.batch([frame("ADDED", obj(data={}, binaryData={"b": "AA=="}))]).events
    assert isinstance(event, Put)
    assert isinstance(event.obj, ConfigMap)
    assert b"managedFields" not in msgspec.json.encode(event.obj)


def test_a_report_by_another_name_than_its_nodes_is_none() -> None:
    odd = {"metadata": {"name": "color.n1"}, "feature": "color", "node": "n2"}
    decoder = Decoder(NODE_REPORT)
    page = json.dumps({"metadata": {"resourceVersion": "9"}, "items": [odd]}).encode()
    for (event,) in (decoder.batch([frame("ADDED", odd)]).events, decoder.page(page).events):
        assert isinstance(event, Broken)
        assert (event.problem.ref.name, event.problem.field) == ("color.n1", "metadata.name")
