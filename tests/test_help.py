"""Help that teaches: each one ends with examples that the command line takes, exit codes, and a page that is there."""

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from podgate import cli
from podgate.admin import relabelling
from podgate.admin.addons import cli as addons
from podgate.admin.doctor import cli as doctor
from podgate.commandline.guidance import GUIDES, OLD_NAMES
from podgate.commandline.usage import Parser
from podgate.features.masquerade import dropin as ip_masq_agent
from podgate.features.metadata import dropin as metadata_proxy
from podgate.features.metadata import kube_up
from podgate.features.services import dropin as kube_proxy
from tests.test_cli import run

NARROW = "100"
ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("words", GUIDES)
def test_a_help_ends_with_what_one_should_know(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.setenv("COLUMNS", NARROW)
    code, out, err = run(capsys, *words.split(), "--help")
    assert (code, err) == (0, "")
    assert out.endswith(f"{GUIDES[words]}\n")
    assert out.startswith(f"usage: podgate {words} [-h]")


def test_every_verb_of_the_command_line_has_a_help_that_teaches() -> None:
    verbs = {f"{name} {verb}" for name, entry in cli.FEATURES.items() for verb in (*cli.VERBS, *entry.alone)}
    assert verbs <= GUIDES.keys()
    for words, guide in GUIDES.items():
        assert (ROOT / guide.page).exists()
        assert bool(guide.codes) == bool(guide.examples)
        assert all(each.startswith(words) for each in guide.examples), words


def test_the_labs_help_ends_so_too(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "lab", "--help")[1]
    assert out.index("example:") < out.index("exit codes:") < out.index("documentation: docs/guide/lab.md")


def test_the_help_of_all_leads_on(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "--help")[1]
    assert "docs/guide/exit-codes.md" in out
    assert "podgate FEATURE VERB --help" in out


@pytest.mark.parametrize(
    ("name", "main"),
    [("ip-masq-agent", ip_masq_agent.main), ("metadata-proxy", metadata_proxy.main), ("kube-proxy", kube_proxy.main)],
)
def test_an_old_name_says_the_same(
    capsys: pytest.CaptureFixture[str], name: str, main: Callable[[Sequence[str]], int]
) -> None:
    assert main(["--help"]) == 0
    said = capsys.readouterr()
    assert (said.out + said.err).endswith(f"{OLD_NAMES[name]}\n")


EXAMPLES = [(words, example) for words, guide in GUIDES.items() for example in guide.examples]


@pytest.mark.parametrize(("words", "example"), EXAMPLES, ids=[example for _, example in EXAMPLES])
def test_an_example_is_understood(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: str, example: str
) -> None:
    given = shlex.split(example.partition(" <")[0])
    match words:
        case "doctor":
            doctor._parser(tuple(cli.FEATURES)).parse_args(given[1:])
        case "addon reconcile":
            addons._parser().parse_args(given[1:])
        case "metadata kube-up migrate-labels":
            relabelling._parser().parse_args(given[3:])
        case "metadata kube-up":
            kube_up._parser().parse_args(given[2:])
        case "metadata doctor" | "metadata watch" | "metadata untaint":
            # What is left out is no mistake; what would be one is said before anything is looked at.
            monkeypatch.setattr(Parser, "parse_known_args", _checked(Parser.parse_known_args))
            with pytest.raises(_UnderstoodError):
                cli.main(given)
        case _:
            parser, chosen = cli._parser(given)
            arguments, unknown = parser.parse_known_args(given)
            assert (chosen, arguments.verb, unknown) == (*words.split(), [])
    assert capsys.readouterr().err == ""


class _UnderstoodError(Exception):
    """The words were understood, and nothing is to be done."""


def _checked(parse: Callable[..., Any]) -> Callable[..., Any]:
    def parse_known_args(*given: Any) -> Any:
        _, unknown = parse(*given)
        assert unknown == []
        raise _UnderstoodError

    return parse_known_args
