"""proxy_file: the file that ``--config`` names, as options; every complaint names its line and field.

Here: reading the file, and saying of each mistake where in it. Not here: what fields mean (proxy_settings.py), which
there are (proxy_fields.py).
Invariant: nothing that kube-proxy refuses is taken (proxy_limits.py). A mistake in a value that the file gave names the
file's line and field, whoever found it; one in a flag names the flag.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from podgate.commandline.options import SettingsError, settings_from
from podgate.features.services.proxy_config import ProxyConfig, read_config
from podgate.features.services.proxy_limits import beyond_limits
from podgate.features.services.proxy_settings import NO_IPVS, idle_fields, in_go_form, options_in, paths_of
from podgate.features.services.settings import Settings
from podgate.model.fieldpath import field_path
from podgate.model.files import Present
from podgate.model.frozen import file_ref
from podgate.model.problems import Problem
from podgate.sources.locate import Locator

_FLAG: Final = re.compile(r"--([a-z][a-z-]*)")


class Configured(NamedTuple):
    """Options, completed by a file.

    Attributes:
        options: by the names of the settings.
        noted: what the file says and changes nothing, in its order, each with its place (``PATH:LINE``).
    """

    options: Mapping[str, Any]
    noted: Mapping[Problem, str]


def configured_by(path: str, given: Mapping[str, Any], say: Callable[[str], None]) -> Configured:
    """Complete options by those in a KubeProxyConfiguration.

    Args:
        path: of the file.
        given: what the command line says, which goes before the file.
        say: told what is taken and changes nothing.

    Raises:
        SettingsError: it cannot be read, or used.
    """
    file = _read(path)
    options, mistakes, others = file.options(given)
    _tell(file, mistakes, others, say)
    return Configured(options, file.placed((*file.config.problems, *mistakes)))


def config_in(path: str, say: Callable[[str], None]) -> ProxyConfig:
    """Give a KubeProxyConfiguration by its fields, of any mode; arguments and errors as above."""
    file = _read(path)
    _, mistakes, others = file.options({})
    _tell(file, [each for each in mistakes if each.message != NO_IPVS], others, say)
    return file.config


def _tell(file: "_File", found: Sequence[Problem], others: Sequence[str], say: Callable[[str], None]) -> None:
    problems = (*file.config.problems, *found)
    lines = file.lines(problems)
    if others or any(each.severity == "error" for each in problems):
        raise SettingsError([*others, *lines])
    for line in lines:
        say(line)


def _read(path: str) -> "_File":
    try:
        return _File(path, Path(path).read_bytes())
    except OSError as error:
        raise SettingsError([f"--config {path}: cannot be read ({error.strerror})"]) from error


class _File:
    def __init__(self, path: str, data: bytes) -> None:
        self._ref = file_ref(path)
        self._files = {path: Present(data)}
        self._locator = Locator()
        self.config: ProxyConfig = read_config(self._ref, data)

    def lines(self, problems: Iterable[Problem]) -> list[str]:
        """Give complaints with their places, in the order of the file."""
        return [self._locator.describe(each, self._files) for each in self._sorted(problems)]

    def placed(self, problems: Iterable[Problem]) -> dict[Problem, str]:
        """Give the places of problems, in the order of the file."""
        return {each: self._locator.place(each, self._files) for each in self._sorted(problems)}

    def _sorted(self, problems: Iterable[Problem]) -> list[Problem]:
        placed = [(self._locator.line(self._ref, each.field, self._files) or 0, each) for each in problems]
        return [each for _, each in sorted(placed, key=lambda pair: pair[0])]

    def options(self, given: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem], list[str]]:
        """Give the options, what is wrong with the file or changes nothing in it, and mistakes of the command line.

        Fields that cannot be read are told already, and what other fields say together with them is not known.
        """
        wrong = {problem.field for problem in self.config.problems if problem.severity == "error"}
        mistakes: list[Problem] = []
        local_mode = given.get("detect_local_mode")
        try:
            backend = given.get("backend") or ("nftables" if "mode" in wrong else None)
            options = {**options_in(self.config, backend, local_mode), **given}
        except SettingsError as error:
            mistakes += (self._mistake("mode", each) for each in error.problems)
            options = {**options_in(self.config, "nftables", local_mode), **given}
        others: list[str] = []
        try:
            settings_from(Settings, options)
        except SettingsError as error:
            for said in error.problems:
                field, message = self._whose(said, options, given)
                if not field:
                    others.append(said)
                elif not any(re.search(rf"\b{re.escape(name)}\b", f"{field}: {message}") for name in wrong if name):
                    mistakes.append(self._mistake(field, message))
        told = {each.field for each in mistakes}
        mistakes += (self._mistake(path, said) for path, said in beyond_limits(self.config) if path not in told)
        if "mode" not in wrong | told:
            mistakes += (
                Problem(self._ref, "warning", "Unused", path, f"it changes nothing here: {why}")
                for path, why in idle_fields(self.config, options["backend"], local_mode)
            )
        return options, mistakes, others

    def _mistake(self, field: str, message: str) -> Problem:
        return Problem(self._ref, "error", "Invalid", field, message)

    def _whose(self, said: str, options: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[str, str]:
        """Give the field that a mistake in an option is about, and its message; no field where a flag gave it."""
        paths = paths_of(options["backend"])
        flag = _FLAG.match(said)
        name = flag[1].replace("-", "_") if flag else ""
        if flag is None or name in given or name not in options or name not in paths:
            return "", said
        message = _FLAG.sub(lambda found: paths.get(found[1].replace("-", "_"), found[0]), said[flag.end() :].strip())
        return self._item(paths[name], message), in_go_form(paths[name], message)

    def _item(self, path: str, message: str) -> str:
        """Give the item of a list that a message quotes, or the field."""
        values = self.config[path]
        if not isinstance(values, tuple):
            return path
        at = next((index for index, value in enumerate(values) if f'"{value}"' in message), None)
        return path if at is None else field_path((path, at))
