"""States, plans and requests towards the API, without any I/O."""

import json

from podgate.model.frozen import ObjectRef
from podgate.model.kinds.config import CONFIG_MAP
from podgate.model.kinds.nodes import NODE
from podgate.targets.kubernetes.diff import Plan, diff
from podgate.targets.kubernetes.pacing import BURST, REFILL, Budget
from podgate.targets.kubernetes.render import apply_request, event_request, needs_uid, release_request
from podgate.targets.kubernetes.state import (
    EMPTY,
    OWN_LABEL,
    STANDBY,
    Notice,
    Part,
    Subject,
    canonical,
    labels_of,
    own_object,
    state_of,
    status_of,
)

NODE_1, MAP = ObjectRef("Node", "n1"), ObjectRef("ConfigMap", "a", "ns")
SUBJECT = Subject("v1", "u1")
NOTICE = Notice(MAP, "Refused", "it is wrong")
WANT = state_of(
    [
        status_of(MAP, {"b": 1, "a": 2}),
        labels_of(NODE_1, {"podgate.io/agent": "ready"}),
        own_object(ObjectRef("ConfigMap", "own", "ns"), {"data": {"x": "y"}}, "podgate"),
    ],
    [(NOTICE, Subject("v1", "u1"))],
)


def test_the_order_of_keys_does_not_matter() -> None:
    assert canonical({"b": {"y": 1, "x": 2}, "a": 0}) == canonical({"a": 0, "b": {"x": 2, "y": 1}})


def test_a_plan_prints_what_it_does() -> None:
    assert str(diff(EMPTY, WANT)).splitlines() == [
        "apply status of ConfigMap/ns/a",
        "apply ConfigMap/ns/own",
        "apply Node/n1",
        "event Refused on ConfigMap/ns/a: it is wrong",
    ]
    assert str(diff(WANT, EMPTY)).splitlines() == [
        "release status of ConfigMap/ns/a",
        "delete ConfigMap/ns/own",
        "release Node/n1",
    ]


def test_what_is_equal_is_not_in_a_plan() -> None:
    assert not diff(WANT, WANT)
    # How fields are to be taken is not read back, so it is no difference.
    assert not diff(state_of([labels_of(NODE_1, {"a": "b"}, force=True)]), state_of([labels_of(NODE_1, {"a": "b"})]))


def test_a_notice_is_told_once() -> None:
    again = state_of([], [(NOTICE, Subject("v1", "u1"))])
    assert diff(EMPTY, again).notices == ((NOTICE, Subject("v1", "u1")),)
    assert not diff(again, again)
    assert not diff(again, EMPTY).notices


def test_nothing_is_planned_while_somebody_else_leads() -> None:
    assert diff(STANDBY, WANT) == Plan()
    assert diff(WANT, STANDBY) == Plan()


def test_a_plan_names_its_keys() -> None:
    assert list(diff(EMPTY, WANT).touches()) == [
        Part(MAP, "status"),
        Part(ObjectRef("ConfigMap", "own", "ns")),
        Part(NODE_1),
        NOTICE,
    ]


def test_without_refused_keys_the_rest_is_left() -> None:
    plan = diff(EMPTY, WANT)
    keys = list(plan.touches())
    assert list(plan.without(keys[:2]).touches()) == keys[2:]
    assert not plan.without(keys)


def test_status_goes_to_the_subresource_and_takes_its_fields() -> None:
    part, fields = status_of(MAP, {"phase": "Ready"})
    request = apply_request(CONFIG_MAP, part, fields, "podgate")
    assert request.path == "/api/v1/namespaces/ns/configmaps/a/status"
    assert request.parameters() == {"fieldManager": "podgate", "force": "true"}
    assert json.loads(request.body)["status"] == {"phase": "Ready"}
    assert not needs_uid(part, fields)


def test_labels_are_put_on_the_object_that_was_found_and_taken_from_nobody() -> None:
    part, fields = labels_of(NODE_1, {"a": "b"})
    assert needs_uid(part, fields)
    request = apply_request(NODE, part, fields, "podgate", "u1")
    assert request.path == "/api/v1/nodes/n1"
    assert request.parameters() == {"fieldManager": "podgate", "force": "false"}
    assert json.loads(request.body)["metadata"] == {"name": "n1", "uid": "u1", "labels": {"a": "b"}}


def test_own_objects_say_whose_they_are() -> None:
    part, fields = own_object(MAP, {"data": {}}, "podgate")
    assert not needs_uid(part, fields)
    assert json.loads(fields.body)["metadata"]["labels"] == {OWN_LABEL: "podgate"}


def test_what_is_released_is_given_up_or_deleted() -> None:
    part, fields = labels_of(NODE_1, {"a": "b"})
    given_up = release_request(NODE, part, fields, "podgate", "u1")
    assert (given_up.method, json.loads(given_up.body)["metadata"]) == ("PATCH", {"name": "n1", "uid": "u1"})
    part, fields = own_object(MAP, {}, "podgate")
    deleted = release_request(CONFIG_MAP, part, fields, "podgate", "u1")
    assert (deleted.method, json.loads(deleted.body)) == ("DELETE", {"preconditions": {"uid": "u1"}})


def event(notice: Notice, subject: Subject = SUBJECT) -> dict[str, object]:
    body: dict[str, object] = json.loads(
        event_request(notice, subject, "podgate", "pod-1", "2026-01-01T00:00:00.000000Z").body
    )
    return body


def test_an_event_says_what_and_about_whom() -> None:
    body = event(NOTICE)
    assert body["regarding"] == {"kind": "ConfigMap", "name": "a", "namespace": "ns", "apiVersion": "v1", "uid": "u1"}
    assert [body[key] for key in ("reason", "note", "type", "reportingInstance")] == [
        "Refused",
        "it is wrong",
        "Warning",
        "pod-1",
    ]


def test_an_events_name_follows_from_what_it_says() -> None:
    assert event(NOTICE)["metadata"] == event(NOTICE)["metadata"]
    others = (
        Notice(MAP, "Refused", "it is odd"),
        Notice(MAP, "Odd", "it is wrong"),
        Notice(NODE_1, "Refused", "it is wrong"),
    )
    assert len({json.dumps(event(notice)["metadata"]) for notice in (NOTICE, *others)}) == 4
    assert event(NOTICE, Subject("v1", "another"))["metadata"] != event(NOTICE)["metadata"]


def test_an_event_about_something_cluster_wide_is_in_default_and_its_note_is_cut() -> None:
    body = event(Notice(NODE_1, "Odd", "é" * 2000))
    metadata = body["metadata"]
    assert isinstance(metadata, dict)
    assert metadata["namespace"] == "default"
    assert len(str(body["note"]).encode()) == 1024


def test_a_budget_allows_a_burst_and_then_drips() -> None:
    budget: Budget | None = Budget()
    for _ in range(BURST):
        assert budget is not None
        budget = budget.spend(100.0)
    assert budget is not None
    assert budget.spend(100.0) is None
    assert budget.spend(100.0 + REFILL - 1) is None
    later = budget.spend(100.0 + REFILL)
    assert later is not None
    assert later.spend(100.0 + REFILL) is None
    # However long nothing happens, it is a burst again and no more.
    assert later.spend(1e9) == Budget(BURST - 1, 1e9)
