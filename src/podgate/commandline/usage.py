"""Usage: the parser of every command line, and what it says of mistyped words.

Here: the parser, options as flags, the guess at a mistyped word, whether JSON is asked for. Not here: any verb, and
printing (observe/showing.py).
Invariant: a mistake never ends the process: it is raised, and says where help is.
"""

import argparse
import itertools
import re
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NoReturn

from podgate.commandline.options import OptionSpec
from podgate.model.spelling import did_you_mean

_CHOICE: Final = re.compile(r"invalid choice: '(?P<word>[^']*)' \(choose from (?P<known>.*)\)$", re.DOTALL)


class UsageError(Exception):
    """Words that no parser understands; the message says which, and where help is."""


class Formatter(argparse.HelpFormatter):
    """Keeps the lines of a text that has some, and fills any other."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


class Parser(argparse.ArgumentParser):
    """Raises UsageError instead of ending the process, and guesses what a word was meant to be.

    Args:
        guided: the words after ``podgate`` whose guidance its help ends with; none for no guidance.
    """

    def __init__(self, *args: Any, guided: str = "", **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", Formatter)
        if guided:
            from podgate.commandline.guidance import GUIDES  # noqa: PLC0415 - texts that a small process never shows

            kwargs["epilog"] = str(GUIDES[guided])
        super().__init__(*args, **kwargs)

    def error(self, message: str) -> NoReturn:
        """Say what was wrong in one line, and where help is."""
        raise UsageError(f"{self.prog}: {guessed(message)}\n{self.prog}: --help says more")


def guessed(message: str) -> str:
    """Add to argparse's message about a wrong choice what was probably meant."""
    found = _CHOICE.search(message)
    return message + did_you_mean(found["word"], re.findall(r"[\w./-]+", found["known"])) if found else message


def wants_json(words: Sequence[str]) -> bool:
    """Say whether a command line asks for JSON; what follows ``--`` is another program's."""
    own = list(words[: words.index("--")] if "--" in words else words)
    pairs = itertools.pairwise(own)
    return any(word in {"--output=json", "-ojson", "-o=json"} for word in own) or any(
        flag in {"--output", "-o"} and value == "json" for flag, value in pairs
    )


def add_option(parser: argparse.ArgumentParser, spec: OptionSpec) -> None:
    """Add a flag whose absence is None, so that the settings alone know the defaults."""
    if spec.type is bool:
        action: Any = argparse.BooleanOptionalAction if spec.default else "store_true"
        parser.add_argument(spec.flag, dest=spec.name, action=action, default=None, help=spec.help)
        return
    shown = f" (default: {_shown(spec.default)})" if spec.default not in (None, "") else ""
    metavar = "|".join(spec.choices) or spec.metavar or ("N" if spec.type in (int, float) else None)
    parser.add_argument(
        spec.flag,
        dest=spec.name,
        type=partial(_value, spec.type),
        action="append" if spec.many else "store",
        metavar=metavar,
        required=spec.required,
        help=spec.help + shown,
    )


def _value(kind: type, text: str) -> Any:
    """Read a value; one that cannot be read stays a text, so that the settings tell of it beside all other mistakes."""
    try:
        return kind(text)
    except ValueError:
        return text


def _shown(default: object) -> str:
    """Give a default as users write it: 30 seconds are ``30``, not ``30.0``."""
    return str(int(default)) if isinstance(default, float) and default.is_integer() else str(default)


def given(arguments: argparse.Namespace, specs: Sequence[OptionSpec]) -> dict[str, Any]:
    """Give the options that were on the command line; all others keep their defaults."""
    values = vars(arguments)
    given = {spec.name: values[spec.name] for spec in specs if values.get(spec.name) is not None}
    return given | {spec.name: ",".join(given[spec.name]) for spec in specs if spec.many and spec.name in given}
