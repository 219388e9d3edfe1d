"""proxy_file: the file that ``--config`` names, as options; every complaint names its line and field.

Here: reading the file, and saying of each mistake where in it. Not here: what fields mean (proxy_settings.py), which
there are (proxy_fields.py).
Invariant: a mistake in a value that the file gave names the file's line and field, whoever found it; one in a flag
names the flag.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from podgate.commandline.options import SettingsError, settings_from
from podgate.features.services.proxy_config import ProxyConfig, read_config
from podgate.features.services.proxy_settings import options_in, paths_of
from podgate.features.services.settings import Settings
from podgate.model.fieldpath import field_path
from podgate.model.files import Present
from podgate.model.frozen import file_ref
from podgate.model.problems import Problem
from podgate.sources.locate import Locator

_FLAG: Final = re.compile(r"--([a-z][a-z-]*)")


def configured_by(path: str, given: Mapping[str, Any], say: Callable[[str], None]) -> Mapping[str, Any]:
    """Complete options by those in a KubeProxyConfiguration.

    Args:
        path: of the file.
        given: what the command line says, which goes before the file.
        say: told what is taken and changes nothing.

    Raises:
        SettingsError: it cannot be read, or used.
    """
    file = _read(path, say)
    try:
        options = {**options_in(file.config, given.get("backend")), **given}
    except SettingsError as error:
        raise SettingsError([file.mistake("mode", each) for each in error.problems]) from error
    try:
        settings_from(Settings, options)
    except SettingsError as error:
        raise SettingsError([file.whose(each, options, given) for each in error.problems]) from error
    return options


def config_in(path: str, say: Callable[[str], None]) -> ProxyConfig:
    """Give a KubeProxyConfiguration by its fields; arguments and errors as above."""
    return _read(path, say).config


def _read(path: str, say: Callable[[str], None]) -> "_File":
    try:
        file = _File(path, Path(path).read_bytes())
    except OSError as error:
        raise SettingsError([f"--config {path}: cannot be read ({error.strerror})"]) from error
    lines = [file.line(problem) for problem in file.config.problems]
    if not file.config.is_usable:
        raise SettingsError(lines)
    for line in lines:
        say(line)
    return file


class _File:
    def __init__(self, path: str, data: bytes) -> None:
        self._ref = file_ref(path)
        self._files = {path: Present(data)}
        self._locator = Locator()
        self.config: ProxyConfig = read_config(self._ref, data)

    def line(self, problem: Problem) -> str:
        """Give a complaint, with its place."""
        return self._locator.describe(problem, self._files)

    def mistake(self, field: str, message: str) -> str:
        """Give a mistake in a field."""
        return self.line(Problem(self._ref, "error", "Invalid", field, message))

    def whose(self, said: str, options: Mapping[str, Any], given: Mapping[str, Any]) -> str:
        """Give a mistake in an option: with its place in the file, or as it is said where the command line gave it."""
        paths = paths_of(options["backend"])
        flag = _FLAG.match(said)
        name = flag[1].replace("-", "_") if flag else ""
        if flag is None or name in given or name not in options or name not in paths:
            return said
        message = _FLAG.sub(lambda found: paths.get(found[1].replace("-", "_"), found[0]), said[flag.end() :].strip())
        return self.mistake(self._item(paths[name], message), message)

    def _item(self, path: str, message: str) -> str:
        """Give the item of a list that a message quotes, or the field."""
        values = self.config[path]
        if not isinstance(values, tuple):
            return path
        at = next((index for index, value in enumerate(values) if f'"{value}"' in message), None)
        return path if at is None else field_path((path, at))
