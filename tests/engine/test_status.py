"""What a person reads in the log of a step whose target refuses something."""

import asyncio
import io
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from podgate.engine.reconcile import Applied, Board, StepTask
from podgate.engine.status import MOST_LOGGED, Status
from podgate.joints import ApplyError, Compiled, Key, Step
from podgate.model.frozen import ObjectRef
from podgate.model.problems import Problem, problems_by_object
from podgate.observe.logs import Log
from podgate.targets.sysctl.diff import Plan
from podgate.targets.sysctl.fake import FakeSysctl
from podgate.targets.sysctl.state import State
from tests.support.fake_target import FakePlan, FakeTarget, Heard
from tests.support.virtual_time import run_virtual

HOW = "cannot be written here: set it to 2 on the node, or in a privileged init container"


def told(readonly: set[str], *, essential: bool) -> list[dict[str, Any]]:
    """Give the log of a first pass that wants three parameters."""
    written = io.StringIO()
    target, want = FakeSysctl({"a": 1, "b": 1, "c": 1}, readonly), State({"a": 2, "b": 2, "c": 2})
    step: Step[State, State, Plan] = Step("sysctl", target, lambda state: state, State(), essential=essential)
    board: Board[State] = Board((step,))

    async def pass_once() -> None:
        status = Status("services", ["sysctl"], Log(written), optional=() if essential else ["sysctl"])
        task = StepTask(step, board, status, lambda: 0.0)
        board.publish(Compiled(want))
        await task._attempt()
        known: dict[Key, str] = status.refusals()
        status.refused("sysctl", known)  # as when another step is refused something

    run_virtual(pass_once())
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    return [{key: line[key] for key in ("message", "level", "keys", "why", "plan") if key in line} for line in lines]


@pytest.mark.parametrize(("essential", "level"), [(True, "error"), (False, "warning")])
def test_all_that_is_refused_at_once_is_one_line(*, essential: bool, level: str) -> None:
    (line,) = told({"a", "b", "c"}, essential=essential)
    why = "\n".join(f"{name} {HOW}" for name in "abc")
    assert line == {"message": "refused", "level": level, "keys": "a, b, c", "why": why}


def test_trying_again_what_is_refused_heals_nothing() -> None:
    target, heard = FakeTarget(), Heard()
    want = {"a": "bad", "b": "1"}
    step: Step[Mapping[str, str], Mapping[str, str], FakePlan] = Step(
        "step", target, lambda state: state, {}, resync=lambda _state: 10.0
    )
    board: Board[Mapping[str, str]] = Board((step,))

    async def checked_twice() -> None:
        board.publish(Compiled(want))
        async with asyncio.TaskGroup() as group:
            task = group.create_task(StepTask(step, board, heard, lambda: 0.0).run())
            await asyncio.sleep(5.0)
            target.state["b"] = "2"
            await asyncio.sleep(20.0)
            task.cancel()

    run_virtual(checked_twice())
    assert [(each.plan, each.healed) for each in heard.commits] == [("+b=1", False), ("+b=1", True), ("", False)]


def test_the_rest_is_told_as_applied() -> None:
    refused, applied = told({"a"}, essential=False)
    assert refused == {"message": "refused", "level": "warning", "keys": "a", "why": f"a {HOW}"}
    assert applied == {"message": "applied", "level": "info", "plan": "~ b = 2, was 1\n~ c = 2, was 1"}


LONG = "\n".join(f"rule {number}: -s 10.0.0.0/8 -j ACCEPT" for number in range(10_000))


def logged(tell: Callable[[Status], None]) -> dict[str, Any]:
    """Give the one line that a status logs."""
    written = io.StringIO()
    tell(Status("services", ["step"], Log(written)))
    (line,) = written.getvalue().splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def test_a_plan_of_much_text_is_told_in_counts() -> None:
    target, heard = FakeTarget(), Heard()
    step: Step[Mapping[str, str], Mapping[str, str], FakePlan] = Step("step", target, lambda state: state, {})
    board: Board[Mapping[str, str]] = Board((step,))

    async def passes() -> None:
        for count in (3, 10_000):
            board.publish(Compiled({str(number): "1" for number in range(count)}))
            await StepTask(step, board, heard, lambda: 0.0)._attempt()

    run_virtual(passes())
    assert [each.plan for each in heard.commits] == ["+0=1, +1=1, +2=1", "9997 changes"]


def test_a_value_of_any_length_in_an_object_is_a_short_line() -> None:
    ref = ObjectRef("Service", "web", "shop")
    complaint = Problem(ref, "error", "BadAddress", "spec.clusterIP", f"{'9' * 100_000} is no address")
    line = logged(lambda status: status.problems(problems_by_object((complaint,)), lambda problem: problem.message))
    assert line["message"].endswith("… (98814 more characters)")


MUCH: dict[str, tuple[Callable[[Status], None], str]] = {
    "done": (lambda status: status.applied(Applied("step", 1, LONG, 0.1, healed=False)), "plan"),
    "healed": (lambda status: status.applied(Applied("step", 1, LONG, 0.1, healed=True)), "plan"),
    "failed": (lambda status: status.failed("step", ApplyError(LONG), 1), "error"),
    "refused": (lambda status: status.refused("step", {f"key {n}": f"why {n}" for n in range(10_000)}), "keys"),
}


@pytest.mark.parametrize(("tell", "field"), MUCH.values(), ids=MUCH)
def test_no_line_holds_a_whole_ruleset(tell: Callable[[Status], None], field: str) -> None:
    line = logged(tell)
    assert line[field].startswith(("rule 0: ", "key 0, key 1, "))
    assert "more" in line[field]
    assert len(json.dumps(line)) < 3 * MOST_LOGGED


def test_problems_are_told_in_the_order_of_their_objects_as_they_come_and_as_they_go() -> None:
    refs = [ObjectRef("Service", f"web-{number:02}", space) for number in range(12) for space in ("farm", "shop")]
    written = io.StringIO()
    status = Status("services", ["step"], Log(written))
    for found in ([Problem(ref, "error", "BadPort", "spec.ports", "no") for ref in reversed(refs)], []):
        status.problems(problems_by_object(found), lambda problem: str(problem.ref))
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    assert [line["message"] for line in lines[:24]] == list(map(str, refs))
    assert [line["object"] for line in lines[24:]] == list(map(str, refs))
