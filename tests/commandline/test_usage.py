"""Complaints about a command line: guesses, and the form that was asked for."""

from typing import Annotated

import pytest

from podgate.commandline.options import Option, OptionSpec, SettingsError, options_of, settings_from
from podgate.commandline.usage import Parser, UsageError, add_option, given, wants_json
from podgate.model.frozen import Frozen


def parser() -> Parser:
    made = Parser(prog="podgate x")
    verbs = made.add_subparsers(metavar="VERB", required=True, parser_class=Parser)
    for verb in ("explain", "clean"):
        verbs.add_parser(verb).add_argument("--output", choices=("text", "json"))
    return made


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["exlain"], 'did you mean "explain"?'),
        (["EXPLAIN"], 'did you mean "explain"?'),
        (["explain", "--output", "jsn"], 'did you mean "json"?'),
        ([], "VERB"),
    ],
)
def test_a_mistyped_word_is_guessed(words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=r"podgate x") as raised:
        parser().parse_args(words)
    assert message in str(raised.value)
    assert str(raised.value).endswith(": --help says more")


def test_nothing_is_guessed_where_nothing_is_near() -> None:
    with pytest.raises(UsageError) as raised:
        parser().parse_args(["nonsense"])
    assert "did you mean" not in str(raised.value)


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("plan --output json", True),
        ("plan --output=json", True),
        ("lab get pods -o json", True),
        ("lab get pods -ojson", True),
        ("plan --output text", False),
        ("lab exec web -- kubectl get -o json", False),
        ("explain json", False),
    ],
)
def test_whether_json_is_asked_for(words: str, wanted: bool) -> None:
    assert wants_json(words.split()) is wanted


@pytest.mark.parametrize(
    ("kind", "default", "shown"),
    [
        (int, 32768, "--least-of N  how many (default: 32768)"),
        (float, 86400.0, "--least-of N  how many (default: 86400)"),
    ],
)
def test_a_number_is_called_n_and_its_default_shown_without_an_empty_fraction(
    kind: type, default: float, shown: str
) -> None:
    made = Parser(prog="podgate x")
    add_option(made, OptionSpec("least_of", "--least-of", kind, default, required=False, help="how many"))
    assert shown in made.format_help()


class Numbers(Frozen, frozen=True):
    tries: Annotated[int, Option("how often")] = 3
    pause: Annotated[float, Option("for how long")] = 0.5

    def mistakes(self) -> list[str]:
        return ["--tries must be more than 0"] if self.tries <= 0 else []


def test_what_is_no_number_is_told_beside_every_other_mistake() -> None:
    made = Parser(prog="podgate x")
    specs = options_of(Numbers)
    for spec in specs:
        add_option(made, spec)
    words = made.parse_args(["--tries", "0", "--pause", "1m"])
    with pytest.raises(SettingsError) as raised:
        settings_from(Numbers, given(words, specs))
    assert raised.value.problems == ("--pause '1m': must be a number", "--tries must be more than 0")
    assert given(made.parse_args(["--tries=5", "--pause", "2"]), specs) == {"tries": 5, "pause": 2.0}
