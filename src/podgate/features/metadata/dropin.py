"""dropin: metadata-proxy under its old name: two flags in Go's syntax, its defaults, its exit codes.

Here: the command line of v0.1.12, over settings. Not here: what the proxy does.
Invariant: what the old program took it takes; the node's rules are left to whoever made them for the old program.

Exit codes: 0 after SIGTERM or ``-h``, 1 when it cannot listen, 2 for a flag that is none (Go's package flag).
"""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Final, NamedTuple

from podgate import __version__
from podgate.features.metadata.server.running import SERVER
from podgate.features.metadata.settings import Settings
from podgate.model.options import SettingsError, settings_from

DEFAULTS: Final = {"addr": "127.0.0.1:988", "metrics-addr": "127.0.0.1:989"}
_HELP: Final = {"addr": "Address at which to listen and proxy", "metrics-addr": "Address at which to publish metrics"}


class Flags(NamedTuple):
    """What the words say: values by name, or what is wrong; ``asks_help`` for ``-h``."""

    values: dict[str, str]
    wrong: str = ""
    asks_help: bool = False


def read_flags(words: Sequence[str]) -> Flags:
    """Read flags as Go's package flag does: one dash or two, the value after ``=`` or as the next word.

    The first word that is no flag, or ``--``, ends them; what follows was never looked at.
    """
    values: dict[str, str] = {}
    rest = list(words)
    while rest and len(rest[0]) > 1 and rest[0].startswith("-") and rest[0] != "--":
        word = rest.pop(0)
        name, equals, value = word[2 if word.startswith("--") else 1 :].partition("=")
        if not name or name.startswith("-"):
            return Flags(values, f"bad flag syntax: {word}")
        if name not in DEFAULTS:
            if name in ("h", "help"):
                return Flags(values, asks_help=True)
            return Flags(values, f"flag provided but not defined: -{name}")
        if not equals:
            if not rest:
                return Flags(values, f"flag needs an argument: -{name}")
            value = rest.pop(0)
        values[name] = value
    return Flags(values)


def address(text: str) -> str:
    """Give an address as podgate's settings have it: Go leaves out the host for all addresses, and takes localhost."""
    host, colon, port = text.rpartition(":")
    if colon and not host:
        return f"0.0.0.0:{port}"
    return f"127.0.0.1:{port}" if host == "localhost" else text


def usage() -> str:
    """Give the usage text."""
    lines = ["Usage of metadata-proxy:"]
    for name, default in sorted(DEFAULTS.items()):
        lines += [f"  -{name} string", f'    \t{_HELP[name]} (default "{default}")']
    return "\n".join(lines) + f"\nThis is podgate {__version__}: podgate metadata run --help shows more.\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Run as metadata-proxy; give the exit code."""
    flags = read_flags(sys.argv[1:] if argv is None else argv)
    if flags.wrong or flags.asks_help:
        sys.stderr.write(f"{flags.wrong}\n{usage()}" if flags.wrong else usage())
        return 2 if flags.wrong else 0
    given = {**DEFAULTS, **flags.values}
    values = {"addr": address(given["addr"]), "metrics_addr": address(given["metrics-addr"]), "firewall": False}
    try:
        settings = settings_from(Settings, values)
    except SettingsError as error:
        for problem in error.problems:
            sys.stderr.write(f"metadata-proxy: {problem}\n")
        return 1
    # The composition root stands above the features: it is named here, and knows this module as little as any other.
    return int(importlib.import_module("podgate.servers").run(SERVER, settings, os.environ))


if __name__ == "__main__":
    sys.exit(main())
