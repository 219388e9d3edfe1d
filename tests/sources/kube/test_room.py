"""How much is held of reports that anybody on an old cluster can make in any number."""

import json
import tracemalloc
from collections.abc import Iterable, Iterator

import msgspec
import pytest

from podgate.kubeapi.answers import Refusal
from podgate.kubeapi.frames import Decoder
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.config import CONFIG_MAP, ConfigMap
from podgate.model.kinds.reports import MOST, NODE_REPORT, Applied, NodeReport, ReportMeta
from podgate.model.snapshot import Watch
from podgate.sources.kube.room import Room
from podgate.sources.kube.watching import Watching

BOUNDS = NodeReport.bounds
LONG = (Applied("K" * 63, "n" * 253, "s" * 63, 1, "I" * 63),)


def report(node: str, applied: tuple[Applied, ...] = ()) -> NodeReport:
    return NodeReport(ReportMeta(f"color.{node}"), "color", node, applied)


def ref(node: str) -> ObjectRef:
    return ObjectRef("NodeReport", f"color.{node}")


def many(count: int) -> tuple[Applied, ...]:
    """Give what no other report says, as long as may be."""
    return tuple(msgspec.structs.replace(LONG[0], generation=count * MOST + number) for number in range(MOST))


def test_there_is_room_for_the_reports_of_very_many_nodes_that_say_the_same() -> None:
    room, applied = Room(NODE_REPORT), many(0)
    assert all(room.taken(ref(f"node-{number}"), report(f"node-{number}", applied)) for number in range(20_000))


def test_there_is_not_for_many_that_each_say_much() -> None:
    room = Room(NODE_REPORT)
    taken = [bool(room.taken(ref(f"n{number}"), report(f"n{number}", many(number)))) for number in range(40)]
    assert 5 < sum(taken) < 40
    assert taken == sorted(taken, reverse=True)


def test_what_goes_makes_room_and_what_finds_none_leaves_what_was_there() -> None:
    room = Room(NODE_REPORT)
    number = next(each for each in range(100) if not room.taken(ref(f"n{each}"), report(f"n{each}", many(each))))
    assert not room.taken(ref("more"), report("more", many(number)))
    assert room.taken(ref("n0"), report("n0", many(1000)))  # in the place of the one before
    for each in range(number):
        room.lets_go(ref(f"n{each}"))
        room.lets_go(ref(f"n{each}"))
    again = [room.taken(ref(f"m{each}"), report(f"m{each}", many(each))) for each in range(number)]
    assert all(again)


def test_other_kinds_have_all_the_room_that_there_is() -> None:
    room = Room(CONFIG_MAP)
    assert all(room.taken(ObjectRef("ConfigMap", str(n)), ConfigMap(data={"a": "b" * BOUNDS.size})) for n in range(3))


# --- in a watch -----------------------------------------------------------------------------------------------------


def pages(reports: Iterable[NodeReport]) -> Iterator[bytes]:
    """Give a list as an API server pages it."""
    waiting: list[NodeReport] = []
    for each in reports:
        waiting.append(each)
        if len(waiting) == BOUNDS.page:
            yield b'{"metadata":{"continue":"t"},"items":%s}' % msgspec.json.encode(waiting)
            waiting = []
    yield b'{"metadata":{"resourceVersion":"9"},"items":%s}' % msgspec.json.encode(waiting)


def in_pages() -> Watching:
    watching = Watching(Watch(NODE_REPORT))
    watching.request(0)
    watching.refused(Refusal(422, "Invalid"))  # a server older than 1.32 has no streams of lists
    assert watching.request(0).parameters()["limit"] == str(BOUNDS.page)
    return watching


def hostile(count: int) -> Iterator[NodeReport]:
    """Give reports of a node that speaks for others: of odd names, of nodes that there may be, and long ones."""
    for number in range(count):
        yield NodeReport(ReportMeta(f"color.node-1.{number}"), "color", "node-1")
        yield report(f"nobody-{number}", many(number) if number % 50 == 0 else ())


def test_ten_thousand_hostile_reports_cost_bounded_memory() -> None:
    watching, decoder = in_pages(), Decoder(NODE_REPORT)
    tracemalloc.start()
    try:
        for body in pages(hostile(5_000)):
            watching.page(decoder.page(body))
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert watching.listed
    assert held < 3 * BOUNDS.size, held
    assert len(watching.faults) == BOUNDS.faults
    assert {fault.reason for fault in watching.faults.values()} <= {"Invalid", "NoRoom"}
    assert len(watching.objects) <= 5_000


def test_what_reports_say_alike_is_held_once() -> None:
    watching, decoder = in_pages(), Decoder(NODE_REPORT)
    (body,) = pages([report("n1", LONG), report("n2", LONG), report("n3")])
    watching.page(decoder.page(body))
    assert watching.objects[ref("n1")].applied is watching.objects[ref("n2")].applied
    change = {"type": "MODIFIED", "object": msgspec.to_builtins(report("n3", LONG))}
    watching.batch(decoder.batch([json.dumps(change).encode()]))
    assert watching.objects[ref("n3")].applied is watching.objects[ref("n1")].applied


def test_an_honest_report_that_changes_counts_and_a_hostile_change_does_not() -> None:
    watching, decoder = in_pages(), Decoder(NODE_REPORT)
    (body,) = pages([report("n1"), report("n2")])
    watching.page(decoder.page(body))

    def changed(*reports: NodeReport) -> None:
        lines = [json.dumps({"type": "MODIFIED", "object": msgspec.to_builtins(each)}).encode() for each in reports]
        watching.batch(decoder.batch(lines))

    changed(report("n1", LONG))
    assert watching.objects[ref("n1")].applied == LONG
    changed(*(report(f"more-{number}", many(number)) for number in range(40)))
    assert any(fault.reason == "NoRoom" for fault in watching.faults.values())
    changed(report("n2", many(1000)))
    assert watching.objects[ref("n2")].applied == ()  # what was known of it before
    gone = [{"type": "DELETED", "object": msgspec.to_builtins(report(f"more-{number}"))} for number in range(40)]
    watching.batch(decoder.batch([json.dumps(each).encode() for each in gone]))
    changed(report("n2", many(1000)))
    assert len(watching.objects[ref("n2")].applied) == MOST
    assert watching.faults == {}


def test_what_found_no_room_is_asked_for_again_when_a_watch_ends_and_others_have_made_room() -> None:
    watching, decoder = in_pages(), Decoder(NODE_REPORT)
    reports = [report(f"n{number}", many(number)) for number in range(40)]

    def listed() -> list[bool]:
        """Give what is held of a list; its end, as that of each watch, is followed by changes."""
        for body in pages(reports):
            watching.request(0)
            watching.page(decoder.page(body))
        assert watching.follows
        return [ref(f"n{number}") in watching.objects for number in range(40)]

    def gone(*nodes: int) -> None:
        lines = [{"type": "DELETED", "object": msgspec.to_builtins(reports[number])} for number in nodes]
        watching.batch(decoder.batch([json.dumps(each).encode() for each in lines]))

    held = sum(listed())
    assert 5 < held < 39
    assert not watching.ended()
    assert watching.follows, "there is no more room than before"
    gone(0)
    assert watching.follows, "a watch goes on to its end"
    watching.ended()
    assert watching.asks == "page"
    del reports[0]
    assert listed() == [0 < number <= held for number in range(40)], "one more in the place of the one that has gone"
    watching.ended()
    assert watching.follows, "the others have no room still"
    gone(*range(29))
    watching.ended()
    del reports[:29]
    assert sum(listed()) == 10
    assert watching.faults == {}
    watching.ended()
    assert watching.follows


@pytest.mark.parametrize("token", ["", "t"])
def test_a_list_of_reports_is_never_asked_for_in_one_piece(token: str) -> None:
    watching = in_pages()
    if token:
        watching.page(Decoder(NODE_REPORT).page(b'{"metadata":{"continue":"t"},"items":[]}'))
    watching.refused(Refusal(410, "Expired"))
    assert watching.request(0).parameters()["limit"] == str(BOUNDS.page)
