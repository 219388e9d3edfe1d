"""Problems as data: grouped by the object that they are about."""

from podgate.model.frozen import ObjectRef, file_ref
from podgate.model.problems import Problem, problems_by_object

POD = ObjectRef("Pod", "web", "default")


def problem(ref: ObjectRef, field: str) -> Problem:
    return Problem(ref, "error", "Bad", field, "it is bad: make it good")


def test_problems_of_an_object_stay_together_and_in_order() -> None:
    file = file_ref("/etc/config/x")
    grouped = problems_by_object([problem(POD, "b"), problem(file, "x"), problem(POD, "a")])
    assert dict(grouped) == {POD: (problem(POD, "b"), problem(POD, "a")), file: (problem(file, "x"),)}
    assert len(problems_by_object([])) == 0


def test_a_reference_shows_itself_as_people_write_it() -> None:
    assert str(POD) == "Pod/default/web"
    assert str(ObjectRef("Node", "node-1")) == "Node/node-1"
    assert str(file_ref("/etc/config/x")) == "/etc/config/x"
