"""dropin: kube-proxy under its old name: its flags, its file, its exit codes.

Here: the old command line over settings. Not here: its flags (proxy_flags.py), its file (proxy_config.py), what the
proxy does.
Invariant: what the old program took it takes; what changes nothing here is named once, with the reason.

Exit codes: 0 after SIGTERM, ``--help``, ``--version``, ``--cleanup``, ``--init-only`` or ``--write-config-to``; 1 for
flags or a file that cannot be used, or work that failed; 2 for mode ipvs, which is not built.
"""

import argparse
import asyncio
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from podgate import __version__
from podgate.commandline.goflags import FlagError, HelpAskedError
from podgate.commandline.guidance import OLD_NAMES
from podgate.commandline.options import SettingsError, settings_from
from podgate.features.services.feature import FEATURE, Services
from podgate.features.services.proxy_config import ProxyConfig, completed, nested, node_name, usual_pages
from podgate.features.services.proxy_flags import ProxyFlags, flag_of, in_old_words, read_flags
from podgate.features.services.proxy_limits import beyond_limits
from podgate.features.services.proxy_settings import NO_IPVS, idle_fields, in_go_form, options_in, paths_of
from podgate.features.services.proxy_unasked import with_unasked
from podgate.features.services.proxy_usage import usage_lines
from podgate.features.services.server.proxy_file import config_in
from podgate.features.services.settings import Settings
from podgate.features.services.to_sysctls import NAMES, sysctls_of
from podgate.observe.logs import Log, stderr_log
from podgate.targets.sysctl.apply import SysctlTarget

NAME: Final = "kube-proxy"


def settings_of(flags: ProxyFlags, log: Log) -> Settings:
    """Give the settings that old flags mean.

    ``--cleanup`` is not about a back end: with any mode, ipvs too, it has that in which all chains may be kube-proxy's.

    Raises:
        SettingsError: with every mistake at once.
    """
    chosen: dict[str, Any] = {"backend": "nftables"} if flags.cleanup else {}
    say = _nothing if flags.cleanup else log.warning
    if flags.config:
        given: dict[str, Any] = {"config": flags.config, **chosen}
        if "hostnameOverride" in flags.fields:
            given["node_name"] = node_name(flags.fields["hostnameOverride"])
        try:
            options = FEATURE.configured(given, say)
            return with_unasked(settings_from(Settings, options), options)
        except SettingsError as error:
            raise _told_by_old_names(error, "nftables") from error
    mistakes: list[str] = []
    config = ProxyConfig(flags.fields)
    try:
        options = options_in(config, chosen.get("backend"))
    except SettingsError as error:
        mistakes += (f"--proxy-mode: {each}" for each in error.problems)
        options = options_in(config, "nftables")
    settings = None
    try:
        settings = settings_from(Settings, options)
    except SettingsError as error:
        mistakes += _told_by_old_names(error, options["backend"]).problems
    told = {each.partition(" ")[0].rstrip(":") for each in mistakes}
    limits = ((f"--{flag_of(path)}", said) for path, said in beyond_limits(config))
    mistakes += dict.fromkeys(f"{flag} {said}" for flag, said in limits if flag not in told)
    if mistakes or settings is None:
        raise SettingsError(mistakes)
    for path, why in idle_fields(config, options["backend"]):
        say(f"--{flag_of(path)} has no effect here: {why}")
    return with_unasked(settings, options)


def _nothing(_line: str) -> None:
    """Say nothing: what a field changes is no matter where all is taken away."""


def _check_writable(flags: ProxyFlags, log: Log) -> None:
    """Raise SettingsError for flags that kube-proxy would not write as a configuration; mode ipvs it would."""
    try:
        settings_of(flags, log)
    except SettingsError as error:
        if others := [each for each in error.problems if NO_IPVS not in each]:
            raise SettingsError(others) from error


def _told_by_old_names(error: SettingsError, backend: str) -> SettingsError:
    paths = paths_of(backend)
    return SettingsError(in_old_words(_in_go_form(each, paths), paths) for each in error.problems)


def _in_go_form(mistake: str, paths: Mapping[str, str]) -> str:
    path = paths.get(mistake.partition(" ")[0].removeprefix("--").replace("-", "_"))
    return mistake if path is None else in_go_form(path, mistake)


def main(argv: Sequence[str] | None = None) -> int:
    """Run as kube-proxy until stopped; give the exit code."""
    try:
        flags = read_flags(sys.argv[1:] if argv is None else argv)
    except HelpAskedError:
        sys.stdout.write(_usage())
        return 0
    except FlagError as error:
        sys.stderr.write(f"Error: {error}\n{NAME}: --help says which there are\n")
        return 1
    if flags.version:
        sys.stdout.write(f"podgate {__version__}, in place of kube-proxy\n")
        return 0
    log = stderr_log(os.environ)
    for note in flags.notes:
        log.warning(note)
    if flags.write_to:
        return _write_config(flags, log)
    try:
        settings = settings_of(flags, log)
    except SettingsError as error:
        return _refuse(error)
    if flags.init_only:
        return asyncio.run(_init(settings, log))
    # The composition root stands above the features: it is named here, and knows this module as little as any other.
    verbs = importlib.import_module("podgate.verbs")
    verb, feature = ("clean", Services(clears=True)) if flags.cleanup else ("run", FEATURE)
    asked = argparse.Namespace(output="text")
    return int(verbs.perform(verb, feature, settings, asked, os.environ, program=NAME))


async def _init(settings: Settings, log: Log) -> int:
    """Do what needs a privileged container, and end; what cannot be written is said, and is no failure."""
    target = SysctlTarget(NAMES)
    refused = await target.apply(target.diff(await target.read(), sysctls_of(settings, os.cpu_count() or 1)))
    if refused:
        log.warning("parameters of the kernel stay as they are", refused="; ".join(refused.values()))
    return 0


def _write_config(flags: ProxyFlags, log: Log) -> int:
    given = flags.fields
    try:
        if flags.config:
            config = config_in(flags.config, log.warning)
            given = {**usual_pages(config["bindAddress"]), **config.given, **given}
        else:
            _check_writable(flags, log)
        Path(flags.write_to).write_text(yaml.safe_dump(nested(completed(given))), encoding="utf-8")
    except SettingsError as error:
        return _refuse(error)
    except OSError as error:
        sys.stderr.write(f"{NAME}: --write-config-to {flags.write_to}: cannot be written ({error.strerror})\n")
        return 1
    log.info("wrote the configuration", file=flags.write_to)
    return 0


def _refuse(error: SettingsError) -> int:
    for problem in error.problems:
        sys.stderr.write(f"{NAME}: {problem}\n")
    return 2 if any(NO_IPVS in problem for problem in error.problems) else 1


def _usage() -> str:
    lines = (*usage_lines(), str(OLD_NAMES[NAME]))
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
