"""What check says: rows and lines."""

import msgspec
import pytest

from podgate.commandline.checked import checked_rows, checked_text, objects_seen, objects_text, options_ref
from podgate.model.frozen import ObjectRef, file_ref
from podgate.model.problems import Problem, problems_by_object
from podgate.model.snapshot import Absent, Listed, Snapshot
from podgate.model.table import Table

SERVICE = ObjectRef("Service", "web", "shop")
FLAGS = options_ref("services")


def _where(problem: Problem) -> str:
    return f"{problem.ref.name}.yaml:7"


BROKEN = Problem(SERVICE, "error", "BadPort", "spec.ports[0].port", "0 is no port: write 1 to 65535")
FLAG = Problem(FLAGS, "warning", "NoRange", "--cluster-cidr", "nothing tells Pods apart: give it")

BROKEN_ROW = {
    "object": "Service/shop/web",
    "field": "spec.ports[0].port",
    "place": "web.yaml:7",
    "reason": "BadPort",
    "message": "0 is no port: write 1 to 65535",
}
FLAG_ROW = {
    "object": "Options/services",
    "field": "--cluster-cidr",
    "place": "--cluster-cidr",
    "reason": "NoRange",
    "message": "nothing tells Pods apart: give it",
}


CONFIG = file_ref("node.conf")


def test_rows_come_by_file_and_line_and_those_without_a_line_after() -> None:
    places = ["b.yaml:9", "Pod/a:spec", "b.yaml:10", "--flag", "b.yaml:2", "a.yaml", "a.yaml:16", "node.conf:3"]
    found = {
        msgspec.structs.replace(
            FLAG, ref=CONFIG if "node" in each else ObjectRef("Pod", "a"), field="spec", message=each
        )
        for each in places
    }
    expected = ["a.yaml:16", "b.yaml:2", "b.yaml:9", "b.yaml:10", "node.conf:3", "Pod/a:spec", "--flag", "a.yaml"]
    rows = checked_rows(Table(), sorted(found, key=lambda each: places.index(each.message)), lambda each: each.message)
    assert [row["place"] for row in rows] == expected


@pytest.mark.parametrize(
    ("field", "line"), [("foo", "node.conf:7: foo"), ("", "node.conf:7"), ("[1].kind", "node.conf:7")]
)
def test_a_line_of_a_file_names_its_field(field: str, line: str) -> None:
    row = {**FLAG_ROW, "object": str(CONFIG), "field": field, "place": "node.conf:7"}
    assert checked_text([row]) == f"{line}: NoRange: nothing tells Pods apart: give it\n1 finding"


def test_what_a_compile_complains_about_comes_first_and_nothing_is_said_twice() -> None:
    assert checked_rows(problems_by_object([BROKEN]), [FLAG, BROKEN], _where) == [BROKEN_ROW, FLAG_ROW]


def test_rows_of_many_objects_come_in_the_order_of_the_objects() -> None:
    names = [f"web-{index:02}" for index in range(40)]
    many = [msgspec.structs.replace(BROKEN, ref=ObjectRef("Service", name, "shop")) for name in reversed(names)]
    assert [row["object"] for row in checked_rows(problems_by_object(many), [], _where)] == [
        f"Service/shop/{name}" for name in names
    ]


def test_lines_end_with_a_count() -> None:
    assert checked_text([], "checked: objects") == "checked: objects\n0 findings"
    line = "web.yaml:7: Service/shop/web:spec.ports[0].port: BadPort: 0 is no port: write 1 to 65535\n1 finding"
    assert checked_text([BROKEN_ROW]) == line
    assert checked_text([FLAG_ROW]) == ("--cluster-cidr: NoRange: nothing tells Pods apart: give it\n1 finding")


@pytest.mark.parametrize(
    ("kinds", "seen", "text"),
    [
        (
            {"Pod": Listed(Table.of({SERVICE: 1})), "Node": Listed(Table()), "Namespace": Absent("forbidden")},
            {"Namespace": "forbidden", "Node": 0, "Pod": 1},
            "Namespace: forbidden, 0 Node, 1 Pod",
        ),
        (
            {"Pod": Absent("no source"), "Node": Absent("no source")},
            {"Node": "no source", "Pod": "no source"},
            "no objects (no source)",
        ),
        ({}, {}, "no objects"),
    ],
)
def test_what_was_not_looked_at_is_not_counted(
    kinds: dict[str, Listed[int] | Absent], seen: dict[str, int | str], text: str
) -> None:
    found = objects_seen(Snapshot(kinds))
    assert (found, objects_text(found)) == (seen, text)


def test_objects_that_nobody_asked_for_are_counted_where_there_are_any() -> None:
    assert [objects_text({"Pod": 2}, others) for others in (0, 1, 12)] == [
        "2 Pod",
        "2 Pod, 1 other not looked at",
        "2 Pod, 12 others not looked at",
    ]
