"""The line between the two processes: whole, and read by nobody of another version."""

import pytest

from podgate.features.metadata.filter import Client, NamedPolicy
from podgate.features.metadata.spec import Expression, PodSelector, PolicySpec, Rule, Subjects
from podgate.features.metadata.watched import BEAT, Watched, line_of, read_line

SELECTOR = PodSelector({"app": "web"}, (Expression("tier", "In", ("a", "b")),))
SPEC = PolicySpec((Rule(("/x\n",), "deny", ("GET",), {"k": "*"}),), Subjects(("a",), ("a/robot",), SELECTOR))
WHOLE = Watched((NamedPolicy("p", SPEC),), {"10.0.0.1": Client("a/b", (0,))}, ("10.0.0.0/8",), True, "why")


@pytest.mark.parametrize("watched", [Watched(), Watched(clients={}), WHOLE])
def test_a_value_is_one_line_and_comes_back_equal(watched: Watched) -> None:
    line = line_of(watched)
    assert (line.count(b"\n"), line[-1:]) == (1, b"\n")
    assert read_line(line) == watched


def test_a_sign_of_life_says_nothing() -> None:
    assert read_line(BEAT) is None


@pytest.mark.parametrize("line", [b"{", b'{"clients": 1}\n', b'{"colour": "red"}\n', b"[]\n", b"\xff\n"])
def test_what_no_podgate_of_this_version_wrote(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_line(line)
