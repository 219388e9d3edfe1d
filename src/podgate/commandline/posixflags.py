"""posixflags: a command line in the syntax of pflag, for old names whose programs use cobra. Pure.

Here: ``--x=v``, ``--x v``, ``--x`` of booleans, ``-v 2``, where the flags end. Not here: which flags a program has, and
what they do (each feature's dropin.py); Go's own package flag (goflags.py).
Invariant: what pflag takes is taken, and what it refuses is refused, with the first mistake.
"""

from collections.abc import Mapping, Sequence

from podgate.commandline.goflags import FlagError, HelpAskedError, Type, go_value
from podgate.model.spelling import did_you_mean


def read_posix_flags(
    words: Sequence[str], types: Mapping[str, Type], shorthands: Mapping[str, str]
) -> tuple[dict[str, str | bool], tuple[str, ...]]:
    """Read a command line, without the program's name; give the flags and the other words.

    Args:
        words: the command line.
        types: the program's flags. Of one that is given twice the last value counts.
        shorthands: letters that stand for a flag.

    Raises:
        FlagError: with the first mistake.
        HelpAskedError: ``-h`` or ``--help``.
    """
    given: dict[str, str | bool] = {}
    others: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            others += rest
            break
        if len(word) < 2 or not word.startswith("-"):
            others.append(word)
            continue
        name, equals, value = _split(word, types, shorthands)
        kind = types[name]
        if not equals:
            if kind == "bool":
                value = "true"
            elif not rest:
                raise FlagError(f"flag needs an argument: --{name}")
            else:
                value = rest.pop(0)
        given[name] = _value(name, kind, value)
    return given, tuple(others)


def _value(name: str, kind: Type, text: str) -> str | bool:
    try:
        return go_value(name, kind, text)
    except FlagError as error:
        raise FlagError(str(error).replace(f"-{name}", f"--{name}", 1)) from error


def _split(word: str, types: Mapping[str, Type], shorthands: Mapping[str, str]) -> tuple[str, bool, str]:
    """Give a flag's name, whether a value stands in the word, and that value."""
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        if name in types:
            return name, bool(equals), value
        if name == "help":
            raise HelpAskedError("help requested")
        raise FlagError(f"unknown flag: --{name}{did_you_mean(name, types)}")
    letter, value = word[1], word[2:]
    if letter == "h":
        raise HelpAskedError("help requested")
    if letter not in shorthands:
        name = word[1:].partition("=")[0]
        guess = f' (did you mean "--{name}"?)' if name in types else ""
        raise FlagError(f"unknown shorthand flag: {letter!r} in {word}{guess}")
    return shorthands[letter], bool(value), value.removeprefix("=")
