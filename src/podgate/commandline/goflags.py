"""goflags: a command line in the syntax of Go's package flag, for the old names of what podgate replaces. Pure.

Here: ``-x``, ``--x``, ``--x=v``, ``--x v``, where the flags end, and what a value of each type looks like.
Not here: which flags a program has, and what they do (each feature's dropin.py).
Invariant: what Go's package takes is taken, and what it refuses is refused, no more and no less.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from podgate.model.frozen import Frozen
from podgate.model.spelling import did_you_mean

Type = Literal["bool", "string", "int", "uint"]

_TRUE: Final = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE: Final = frozenset(("0", "f", "F", "FALSE", "false", "False"))
_NUMBERS: Final = {
    "int": re.compile(r"[+-]?[0-9]+"),
    "uint": re.compile(r"[0-9](?:_?[0-9])*|0[xX](?:_?[0-9a-fA-F])+|0[oO](?:_?[0-7])+|0[bB](?:_?[01])+"),
}
"""strconv.ParseInt with base 10, and strconv.ParseUint with base 0."""


class GoFlags(Frozen, frozen=True):
    """What a command line says.

    Attributes:
        given: the flags that were given, in their order; of one that is given twice the last value counts.
        rest: the words after the flags.
    """

    given: Mapping[str, str | bool]
    rest: tuple[str, ...] = ()


class FlagError(ValueError):
    """A command line that cannot be read; the message is for people. Go's programs end with exit code 2 then."""


class HelpAskedError(FlagError):
    """``-h`` or ``--help``, where the program defines no such flag. Go's programs end with exit code 0 then."""


def read_go_flags(words: Sequence[str], types: Mapping[str, Type]) -> GoFlags:
    """Read a command line, without the program's name.

    Args:
        words: the command line.
        types: the program's flags.

    Raises:
        FlagError: with the first mistake, as Go's package stops there too.
    """
    given: dict[str, str | bool] = {}
    rest = list(words)
    while rest and len(rest[0]) > 1 and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--":
            break
        name, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
        if not name or name.startswith("-"):
            raise FlagError(f"bad flag syntax: {word}")
        kind = types.get(name)
        if kind is None:
            raise _unknown(name, types)
        if not equals and kind != "bool":
            if not rest:
                raise FlagError(f"flag needs an argument: -{name}")
            value = rest.pop(0)
        given[name] = go_value(name, kind, value if equals or kind != "bool" else "true")
    return GoFlags(given, tuple(rest))


def _unknown(name: str, types: Mapping[str, Type]) -> FlagError:
    if name in ("h", "help"):
        return HelpAskedError("help requested")
    return FlagError(f"flag provided but not defined: -{name}{did_you_mean(name, types)}")


def go_value(name: str, kind: Type, text: str) -> str | bool:
    """Read one value. Raises FlagError."""
    if kind == "bool":
        if text not in _TRUE | _FALSE:
            raise FlagError(f'invalid boolean value "{text}" for -{name}: write true or false')
        return text in _TRUE
    if kind in _NUMBERS and not _NUMBERS[kind].fullmatch(text):
        raise FlagError(f'invalid value "{text}" for flag -{name}: write a whole number')
    return text
