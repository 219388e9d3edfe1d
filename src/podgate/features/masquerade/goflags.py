"""goflags: a command line in the syntax of Go's package flag, with the flags of ip-masq-agent.

Here: ``-x``, ``--x``, ``--x=v``, ``--x v``, where the flags end, and what a value of each type looks like. Pure.
Not here: what the flags do (dropin.py).
Invariant: what the old program takes is taken, and what it refuses is refused with exit code 2, no more and no less.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

from podgate.model.frozen import Frozen
from podgate.model.options import did_you_mean

Type = Literal["bool", "string", "int", "uint"]

AGENT_FLAGS: Final[dict[str, tuple[Type, str]]] = {
    "masq-chain": ("string", "the chain in table nat that the rules are in (default IP-MASQ-AGENT)"),
    "nomasq-all-reserved-ranges": ("bool", "widen the built-in list from the 3 private ranges to all 11 reserved ones"),
    "enable-ipv6": ("bool", "write ip6tables rules too"),
    "random-fully": ("bool", "choose source ports at random where iptables can (default true)"),
    "to-ports": ("string", "source ports of translated connections, as 1024-29999,32768-65535"),
}
"""Name to type and help."""

KLOG_FLAGS: Final[dict[str, Type]] = {
    "add_dir_header": "bool",
    "alsologtostderr": "bool",
    "legacy_stderr_threshold_behavior": "bool",
    "log_backtrace_at": "string",
    "log_dir": "string",
    "log_file": "string",
    "log_file_max_size": "uint",
    "logtostderr": "bool",
    "one_output": "bool",
    "skip_headers": "bool",
    "skip_log_headers": "bool",
    "stderrthreshold": "string",
    "v": "int",
    "vmodule": "string",
}
"""Flags of the old program's log library: podgate logs its own way, so they change nothing."""

_TYPES: Final[dict[str, Type]] = {**{name: kind for name, (kind, _) in AGENT_FLAGS.items()}, **KLOG_FLAGS}
_TRUE: Final = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE: Final = frozenset(("0", "f", "F", "FALSE", "false", "False"))
_NUMBERS: Final = {
    "int": re.compile(r"[+-]?[0-9]+"),
    "uint": re.compile(r"[0-9](?:_?[0-9])*|0[xX](?:_?[0-9a-fA-F])+|0[oO](?:_?[0-7])+|0[bB](?:_?[01])+"),
}
"""strconv.ParseInt with base 10, and strconv.ParseUint with base 0."""


class Flags(Frozen, frozen=True):
    """What a command line says.

    Attributes:
        given: the agent's own flags that were given; of one that is given twice the last counts.
        unused: flags of the log library that were given, in their order.
        ignored: words after the first one that is no flag: none of them is looked at.
    """

    given: Mapping[str, str | bool]
    unused: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()


class FlagError(ValueError):
    """A command line that cannot be read; the message is for people."""


class HelpAskedError(FlagError):
    """``-h`` or ``--help``."""


def read_flags(words: Sequence[str]) -> Flags:
    """Read a command line, without the program's name.

    Raises:
        FlagError: with the first mistake, as Go's package stops there too.
    """
    given: dict[str, str | bool] = {}
    unused: list[str] = []
    rest = list(words)
    while rest and len(rest[0]) > 1 and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--":
            break
        name, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
        if not name or name.startswith("-"):
            raise FlagError(f"bad flag syntax: {word}")
        kind = _TYPES.get(name)
        if kind is None:
            raise _unknown(name)
        if not equals and kind != "bool":
            if not rest:
                raise FlagError(f"flag needs an argument: -{name}")
            value = rest.pop(0)
        read = _value(name, kind, value if equals or kind != "bool" else "true")
        if name in AGENT_FLAGS:
            given[name] = read
        elif name not in unused:
            unused.append(name)
    return Flags(given, tuple(unused), tuple(rest))


def _unknown(name: str) -> FlagError:
    if name in ("h", "help"):
        return HelpAskedError("help requested")
    return FlagError(f"flag provided but not defined: -{name}{did_you_mean(name, _TYPES)}")


def _value(name: str, kind: Type, text: str) -> str | bool:
    if kind == "bool":
        if text not in _TRUE | _FALSE:
            raise FlagError(f'invalid boolean value "{text}" for -{name}: write true or false')
        return text in _TRUE
    if kind in _NUMBERS and not _NUMBERS[kind].fullmatch(text):
        raise FlagError(f'invalid value "{text}" for flag -{name}: write a whole number')
    return text


def usage_lines() -> Iterator[str]:
    """Give the lines of the usage text."""
    yield "Usage of ip-masq-agent (podgate masquerade under its old name):"
    for name, (kind, text) in AGENT_FLAGS.items():
        yield f"  -{name}{'' if kind == 'bool' else ' ' + kind}"
        yield f"    \t{text}"
    yield f"Accepted without effect, since podgate logs its own way: -{', -'.join(KLOG_FLAGS)}"
    yield "podgate masquerade run --help shows what else there is."
