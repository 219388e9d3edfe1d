"""Output to a reader that has seen enough."""

import json
import subprocess
import sys

import pytest

from podgate.observe.showing import complain, tell


def test_a_closed_pipe_is_no_error() -> None:
    script = "import sys; sys.stdin.read(); from podgate.observe.showing import show; show('x' * 1000000)"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        writer.stdout.close()
        writer.stdout = None
        _, complaint = writer.communicate()
    assert (writer.returncode, complaint) == (0, b"")


def test_what_is_beside_the_answer_is_not_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    tell("waiting")
    assert capsys.readouterr() == ("", "waiting\n")


def test_a_complaint_goes_to_one_stream(capsys: pytest.CaptureFixture[str]) -> None:
    complain("a: wrong\nb: wrong too", as_json=False)
    assert capsys.readouterr() == ("", "a: wrong\nb: wrong too\n")
    complain("a: wrong\nb: wrong too", as_json=True)
    out, err = capsys.readouterr()
    assert (json.loads(out), err) == ({"errors": ["a: wrong", "b: wrong too"]}, "")
