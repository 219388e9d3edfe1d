"""dropin: ip-masq-agent under its old name: its flags, its file, its exit codes, its rules byte for byte.

Here: the old command line over settings. Not here: its syntax (goflags.py), what the agent does.
Invariant: what the old program took it takes, and the rules are those of the old program and no others; only messages
are better, and a configuration that is bad weakens nothing.

Exit codes: 0 after SIGTERM or ``-h``; 1 for a --to-ports or --masq-chain that cannot be used; 2 for a flag that
is none.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from podgate.commandline.goflags import FlagError, HelpAskedError
from podgate.commandline.options import SettingsError, settings_from
from podgate.features.masquerade.goflags import Flags, read_flags, usage_lines
from podgate.features.masquerade.settings import Settings
from podgate.observe.logs import stderr_log

NAME: Final = "ip-masq-agent"

_OF_THE_CLUSTER: Final = ("PODGATE_SOURCE", "KUBERNETES_SERVICE_HOST")
"""Variables that lead to Kubernetes objects, which the old program never asked for."""


def settings_of(flags: Flags) -> Settings:
    """Give the settings that old flags mean.

    Raises:
        SettingsError: with every mistake at once.
    """
    own: dict[str, Any] = {name.replace("-", "_"): value for name, value in flags.given.items()}
    # The back end is what the wrapper in the old image chose: the program that the kubelet hints at, else iptables-nft.
    return settings_from(Settings, {**own, "backend": "iptables", "rules": NAME})


def notes_on(flags: Flags) -> list[str]:
    """Give what should be known about a command line that is taken as it is."""
    notes = []
    if flags.unused:
        named = ", ".join(f"-{name}" for name in flags.unused)
        notes.append(f"{named}: accepted without effect, since podgate logs its own way: remove them")
    late = [word for word in flags.ignored if word.startswith("-")]
    if late:
        notes.append(f'{" ".join(late)}: not looked at, since flags end at "{flags.ignored[0]}": put them before it')
    return notes


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Give the environment without what leads to Kubernetes objects."""
    return {name: value for name, value in environ.items() if name not in _OF_THE_CLUSTER}


def main(argv: Sequence[str] | None = None) -> int:
    """Run as ip-masq-agent until stopped; give the exit code."""
    try:
        flags = read_flags(sys.argv[1:] if argv is None else argv)
    except HelpAskedError:
        sys.stderr.write("".join(f"{line}\n" for line in usage_lines()))
        return 0
    except FlagError as error:
        sys.stderr.write("".join(f"{line}\n" for line in (f"{NAME}: {error}", *usage_lines())))
        return 2
    try:
        settings = settings_of(flags)
    except SettingsError as error:
        for problem in error.problems:
            sys.stderr.write(f"{NAME}: {problem}\n")
        return 1
    log = stderr_log(os.environ)
    for note in notes_on(flags):
        log.warning(note)
    # The composition root stands above the features: it is named here, and knows this module as little as any other.
    verbs = importlib.import_module("podgate.verbs")
    feature = importlib.import_module("podgate.features.masquerade.feature").FEATURE
    return int(verbs.perform("run", feature, settings, argparse.Namespace(), environment(os.environ), program=NAME))


if __name__ == "__main__":
    sys.exit(main())
