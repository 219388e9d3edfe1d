"""The verbs over a feature that is none of ours: exit codes, order, and what is printed where."""

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import pytest

from podgate import verbs
from podgate.commandline.options import Option
from podgate.engine.kept import KeptDirectory
from podgate.engine.single import only_one
from podgate.joints import Answered, Compiled, Inputs, Key, Look, QuestionError, Served, Step
from podgate.model.files import FileWatch, Present
from podgate.model.frozen import Frozen, file_ref
from podgate.model.problems import Problem, problems_by_object
from podgate.model.snapshot import Watch
from podgate.observe.answers import Page
from podgate.observe.metrics import Measured
from tests.support.fake_target import FakePlan, FakeTarget, State


class Settings(Frozen, frozen=True):
    file: Annotated[str, Option("the file")]
    state_dir: Annotated[str, Option("the state")]
    source: str | None = None
    kubeconfig: str | None = None
    context: str | None = None
    node_name: str | None = None


class States(Frozen, frozen=True):
    first: Mapping[str, str]
    second: Mapping[str, str]


class Words:
    """A feature whose file holds the one value that both of its steps want."""

    name = "words"
    settings = Settings

    def __init__(self) -> None:
        self.targets = (FakeTarget(), FakeTarget())

    def watches(self, settings: Settings, node_name: str | None) -> tuple[Watch, ...]:
        return ()

    def files(self, settings: Settings) -> tuple[FileWatch, ...]:
        return (FileWatch(settings.file),)

    def compiler(self, settings: Settings) -> Callable[[Inputs], Compiled[States]]:
        def compile_(inputs: Inputs) -> Compiled[States]:
            content = inputs.files[settings.file]
            word = content.data.decode().strip() if isinstance(content, Present) else ""
            if severity := {"": "error", "odd": "warning", "apart": "error"}.get(word):
                problem = Problem(file_ref(settings.file), severity, "Odd", "", "it is odd: write another word")  # type: ignore[arg-type]
                return Compiled(States({}, {}), problems_by_object([problem]), isolates=word == "apart")
            return Compiled(States({"word": word}, {"word": word}))

        return compile_

    def steps(self, settings: Settings) -> tuple[Step[States, Any, Any], ...]:
        first, second = self.targets
        return (
            Step[States, State, FakePlan]("first", first, lambda states: states.first, {}),
            Step[States, State, FakePlan]("second", second, lambda states: states.second, {}),
        )

    def samples(self, states: States) -> tuple[Measured, ...]:
        return ()

    def recover(self, read_back: Mapping[str, Any]) -> Mapping[str, bytes]:
        return {}

    def render(self, states: States) -> Answered:
        return Answered("\n".join(states.first.values()), dict(states.first))

    def add_questions(self, parser: argparse.ArgumentParser) -> None: ...

    def configured(self, given: Mapping[str, Any], say: Callable[[str], None]) -> Mapping[str, Any]:
        return given

    def obstacle(self, settings: Settings, environ: Mapping[str, str], say: Callable[[str], None]) -> str:
        return ""

    def instance(self, settings: Settings) -> str:
        return self.name

    def pages(self, settings: Settings, served: Served) -> Mapping[str, Mapping[str, Page]]:
        return {}

    def explain(self, asked: argparse.Namespace, compiled: Compiled[States], look: Look) -> Answered:
        if states_word(compiled) == "half":
            return Answered("one answer", ["answer"], 2, ("what do you mean by the other?",))
        raise QuestionError("what do you mean? ask for a word")

    def check(self, compiled: Compiled[States], look: Look) -> Answered:
        return Answered("one finding", ["finding"], 1)


def states_word(compiled: Compiled[States]) -> str:
    return compiled.states.first.get("word", "")


class Rig:
    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.file, self.state = directory / "file", directory / "state"
        self.feature = Words()
        self._capsys = capsys
        self.file.write_text("hello\n")

    def perform(self, verb: str, output: str = "text") -> tuple[int, str, str]:
        settings = Settings(str(self.file), str(self.state))
        code = verbs.perform(verb, self.feature, settings, argparse.Namespace(output=output), {})
        said = self._capsys.readouterr()
        return code, said.out, said.err


@pytest.fixture
def rig(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Rig:
    return Rig(tmp_path, capsys)


def test_render_prints_text_or_json(rig: Rig) -> None:
    assert rig.perform("render") == (0, "hello\n", "")
    code, out, _ = rig.perform("render", "json")
    assert (code, json.loads(out)) == (0, {"word": "hello"})


def test_what_has_no_answer_is_said_beside_the_answers(rig: Rig) -> None:
    rig.file.write_text("half")
    said = "podgate words explain: what do you mean by the other?\n"
    assert rig.perform("explain") == (2, "one answer\n", said)
    code, out, err = rig.perform("explain", "json")
    assert (code, json.loads(out), err) == (2, ["answer"], said)


def test_an_error_in_the_input_is_exit_2_and_no_answer(rig: Rig) -> None:
    rig.file.write_text("")
    for verb in ("render", "explain", "check", "plan"):
        code, out, err = rig.perform(verb)
        assert (code, out) == (2, "")
        assert "it is odd: write another word" in err
    assert [target.reads for target in rig.feature.targets] == [0, 0]


def test_an_error_of_one_object_among_many_goes_to_stderr_beside_the_answer(rig: Rig) -> None:
    rig.file.write_text("apart")
    code, out, err = rig.perform("render")
    assert (code, out) == (0, "\n")
    assert "error: it is odd" in err
    assert rig.perform("check") == (1, "one finding\n", "")


def test_a_warning_goes_to_stderr_beside_the_answer(rig: Rig) -> None:
    rig.file.write_text("odd")
    code, out, err = rig.perform("render")
    assert (code, out) == (0, "\n")
    assert "warning: it is odd" in err


def test_check_gives_the_feature_s_code_and_leaves_warnings_to_it(rig: Rig) -> None:
    rig.file.write_text("odd")
    assert rig.perform("check") == (1, "one finding\n", "")


def test_a_question_that_makes_no_sense_is_exit_2(rig: Rig) -> None:
    assert rig.perform("explain") == (2, "", "podgate words explain: what do you mean? ask for a word\n")


def test_plan_is_exit_0_without_a_difference_1_with_one_2_when_it_cannot_tell(rig: Rig) -> None:
    first, second = rig.feature.targets
    first.state = {"word": "hello"}
    assert rig.perform("plan") == (1, "second:\n+word=hello\n", "")
    assert second.state == {}
    code, out, _ = rig.perform("plan", "json")
    assert code == 1
    steps = [
        {"step": "first", "differs": False, "plan": ""},
        {"step": "second", "differs": True, "plan": "+word=hello"},
    ]
    assert json.loads(out) == {"differs": True, "steps": steps}
    second.state = {"word": "hello"}
    assert rig.perform("plan") == (0, "no difference\n", "")
    second.fail_reads = 1
    assert rig.perform("plan") == (2, "", "podgate words plan: reading failed\n")


def test_plan_works_while_an_agent_runs_and_clean_does_not(rig: Rig) -> None:
    with only_one("words"):
        assert rig.perform("plan")[0] == 1
        code, out, err = rig.perform("clean")
    assert (code, out) == (1, "")
    assert "already running" in err


def test_clean_empties_every_step_and_forgets_what_was_kept(rig: Rig) -> None:
    first, second = rig.feature.targets
    first.state, second.state = {"word": "old"}, {}
    KeptDirectory(rig.state).save({"config": b"x"})
    code, out, err = rig.perform("clean")
    assert (code, err) == (0, "")
    assert out == f"first: -word\n{rig.state}: removed what was kept there\n"
    assert (first.state, second.state) == ({}, {})
    assert not rig.state.exists()
    assert rig.perform("clean") == (0, "nothing of ours was there\n", "")
    code, out, _ = rig.perform("clean", "json")
    assert code == 0
    nothing = [{"step": step, "differs": False, "plan": ""} for step in ("first", "second")]
    assert json.loads(out) == {"differs": False, "steps": nothing, "kept_removed": False}


def test_clean_does_not_need_a_good_configuration(rig: Rig) -> None:
    rig.file.write_text("")
    rig.feature.targets[0].state = {"word": "old"}
    assert rig.perform("clean")[0] == 0
    assert rig.feature.targets[0].state == {}


def test_clean_that_fails_keeps_what_was_kept_for_the_next_try(rig: Rig) -> None:
    rig.feature.targets[1].state = {"word": "old"}
    rig.feature.targets[1].fail_applies = 1
    KeptDirectory(rig.state).save({"config": b"x"})
    code, out, err = rig.perform("clean")
    assert (code, out) == (1, "")
    assert "applying failed half-way" in err
    assert rig.state.exists()
    assert rig.perform("clean")[0] == 0


def test_a_key_that_a_target_refuses_fails_clean(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(_plan: FakePlan) -> Mapping[Key, str]:
        return {"word": "it is in use"}

    rig.feature.targets[0].state = {"word": "old"}
    monkeypatch.setattr(rig.feature.targets[0], "apply", refuse)
    assert rig.perform("clean") == (1, "", "podgate words clean: first: word: it is in use\n")


def test_a_bug_is_not_hidden(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_states: States) -> Answered:
        raise KeyError("a bug")

    monkeypatch.setattr(rig.feature, "render", broken)
    with pytest.raises(KeyError):
        rig.perform("render")
