"""dropin: metadata-proxy under its old name: two flags in Go's syntax, its defaults, its exit codes.

Here: the command line of v0.1.12, over settings. Not here: what the proxy does.
Invariant: what the old program took it takes; the node's rules are left to whoever made them for the old program.

Exit codes: 0 after SIGTERM or ``-h``, 1 when it cannot listen, 2 for a flag that is none (Go's package flag).
"""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Final

from podgate import __version__
from podgate.commandline.goflags import FlagError, HelpAskedError, read_go_flags
from podgate.commandline.options import SettingsError, settings_from
from podgate.features.metadata.server.running import SERVER
from podgate.features.metadata.settings import Settings

DEFAULTS: Final = {"addr": "127.0.0.1:988", "metrics-addr": "127.0.0.1:989"}
_HELP: Final = {
    "addr": "where Pods' requests are answered, HOST:PORT; rules of the node lead them here, which others write",
    "metrics-addr": "where /metrics is served, HOST:PORT",
}


def address(text: str) -> str:
    """Give an address as podgate's settings have it: Go leaves out the host for all addresses, and takes localhost."""
    host, colon, port = text.rpartition(":")
    if colon and not host:
        return f"0.0.0.0:{port}"
    return f"127.0.0.1:{port}" if host == "localhost" else text


def usage() -> str:
    """Give the usage text."""
    lines = ["Usage of metadata-proxy (podgate metadata under its old name):"]
    for name, default in sorted(DEFAULTS.items()):
        lines += [f"  -{name} string", f'    \t{_HELP[name]} (default "{default}")']
    from podgate.commandline.guidance import OLD_NAMES  # noqa: PLC0415 - the proxy's process is small

    lines += [
        f"This is podgate {__version__}; it takes no other flag. podgate metadata run --help shows what else there is.",
        str(OLD_NAMES["metadata-proxy"]),
    ]
    return "".join(f"{line}\n" for line in lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run as metadata-proxy; give the exit code."""
    try:
        flags = read_go_flags(sys.argv[1:] if argv is None else argv, dict.fromkeys(DEFAULTS, "string"))
    except HelpAskedError:
        sys.stderr.write(usage())
        return 0
    except FlagError as error:
        sys.stderr.write(f"metadata-proxy: {error}\n{usage()}")
        return 2
    given = {**DEFAULTS, **{name: str(value) for name, value in flags.given.items()}}
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
