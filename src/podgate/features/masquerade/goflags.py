"""goflags: the flags of ip-masq-agent.

Here: their names, types and help, and which of them change nothing here. Pure. Not here: Go's syntax
(commandline/goflags.py), what the flags do (dropin.py).
Invariant: the flags are the old program's, no more and no less.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from podgate.commandline.goflags import Type, read_go_flags
from podgate.commandline.guidance import OLD_NAMES
from podgate.model.frozen import Frozen

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

TYPES: Final[dict[str, Type]] = {**{name: kind for name, (kind, _) in AGENT_FLAGS.items()}, **KLOG_FLAGS}


class Flags(Frozen, frozen=True):
    """What a command line says.

    Attributes:
        given: the agent's own flags that were given.
        unused: flags of the log library that were given, in their order.
        ignored: words after the first one that is no flag: none of them is looked at.
    """

    given: Mapping[str, str | bool]
    unused: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()


def read_flags(words: Sequence[str]) -> Flags:
    """Read a command line, without the program's name. Raises FlagError."""
    read = read_go_flags(words, TYPES)
    own = {name: value for name, value in read.given.items() if name in AGENT_FLAGS}
    return Flags(own, tuple(name for name in read.given if name in KLOG_FLAGS), read.rest)


def usage_lines() -> Iterator[str]:
    """Give the lines of the usage text."""
    yield "Usage of ip-masq-agent (podgate masquerade under its old name):"
    for name, (kind, text) in AGENT_FLAGS.items():
        yield f"  -{name}{'' if kind == 'bool' else ' ' + kind}"
        yield f"    \t{text}"
    yield f"Accepted without effect, since podgate logs its own way: -{', -'.join(KLOG_FLAGS)}"
    yield "podgate masquerade run --help shows what else there is."
    yield str(OLD_NAMES["ip-masq-agent"])
