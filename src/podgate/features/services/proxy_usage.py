"""proxy_usage: what ``kube-proxy --help`` says: each flag with its meaning and default, and which change nothing. Pure.

Here: its form. Not here: the flags and their meanings (proxy_flags.py), why a field changes nothing (proxy_fields.py).
Invariant: a default that is shown is the one that counts when no flag is given.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from podgate.features.services.proxy_config import ProxyConfig
from podgate.features.services.proxy_fields import FIELDS, SECOND
from podgate.features.services.proxy_flags import FLAGS, WITHOUT_EFFECT, ProxyFlag, unused_why
from podgate.features.services.proxy_settings import options_in, paths_of
from podgate.features.services.proxy_unasked import UNASKED
from podgate.features.services.settings import Settings
from podgate.model.durations import go_text

_WIDE: Final = {"duration": "duration", "list": "list", "map": "list", "float": "float"}
"""What a flag's value is called where its type on the command line says less than the field's."""


def usage_lines() -> Iterator[str]:
    """Give the lines about flags."""
    yield "Usage of kube-proxy (podgate services under its old name):"
    usual = _defaults()
    idle: dict[str, list[str]] = {}
    for name, flag in FLAGS.items():
        if why := unused_why(flag):
            idle.setdefault(why, []).append(name)
            continue
        yield f"      --{name}{_value_name(flag)}"
        yield f"          {flag.does}{_default(flag, usual)}"
    for name, effect in WITHOUT_EFFECT.items():
        idle.setdefault(effect.why, []).append(name)
    yield "Taken without effect, with a warning in the log that says why:"
    for why, names in idle.items():
        yield f"      --{', --'.join(names)}"
        yield f"          {why}"
    yield "podgate services run --help shows what else there is."


def _value_name(flag: ProxyFlag) -> str:
    if flag.type == "bool":
        return ""
    return f" {_WIDE.get(FIELDS[flag.fields[0]].type, flag.type)}" if flag.fields else f" {flag.type}"


def _defaults() -> Mapping[str, Any]:
    """Give what fields come to when no flag is given."""
    settings = Settings(**UNASKED, **options_in(ProxyConfig()))
    return {path: getattr(settings, option, None) for option, path in paths_of(settings.backend).items()}


def _default(flag: ProxyFlag, usual: Mapping[str, Any]) -> str:
    path = flag.fields[0] if flag.fields else ""
    value = usual[path] if path in usual else FIELDS[path].default if path else None
    if value in (None, "", False, {}):
        return ""
    return f" (default {_shown(path, value)})"


def _shown(path: str, value: Any) -> str:
    if FIELDS[path].type == "duration":
        return go_text(int(value * SECOND))
    return "true" if value is True else str(value)
