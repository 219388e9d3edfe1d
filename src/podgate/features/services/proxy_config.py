"""proxy_config: a KubeProxyConfiguration v1alpha1 as values by field, with every complaint.

Here: reading the document, writing the defaults. Not here: the fields (proxy_fields.py), what they do (settings.py).
Invariant: as the old program does, an unknown key is a warning and a value of a wrong type an error; what is given and
never changes anything here is named in a warning that says why (what another field makes idle: proxy_settings.py).
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from podgate.features.services.addresses import packed
from podgate.features.services.intent import ADDRESS_BYTES
from podgate.features.services.proxy_fields import (
    EXTERNAL_IPS_GATE,
    FIELDS,
    NANOSECONDS,
    SECOND,
    ConfigField,
    means_default,
)
from podgate.model import documents
from podgate.model.durations import NotADuration, go_text, parse
from podgate.model.fieldpath import field_path
from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.problems import Problem, Severity
from podgate.model.spelling import did_you_mean

API_VERSION: Final = "kubeproxy.config.k8s.io/v1alpha1"
KIND: Final = "KubeProxyConfiguration"

_CONFIG_MAP: Final = (
    "this is a ConfigMap, and the configuration a text in it: give that alone, as "
    "kubectl get -n kube-system configmap/kube-proxy -o jsonpath='{.data.config\\.conf}' does"
)

HEALTH_PORT: Final = 10256
METRICS_PORT: Final = 10249

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "text": (str,),
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "list": (list,),
    "maps": (list,),
    "map": (dict,),
    "duration": (str,),
}
_WORDS: Final = {
    "text": "a text",
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "list": "a list of texts",
    "maps": "a list of maps",
    "map": "a map",
    "duration": "a duration as 30s or 1h30m",
}
_GROUPS: Final = frozenset(path.partition(".")[0] for path in FIELDS if "." in path)


class ProxyConfig(Frozen, frozen=True):
    """What was read: the fields that were given, with durations in nanoseconds, and what is wrong with them."""

    given: Mapping[str, Any] = {}
    problems: tuple[Problem, ...] = ()

    def __getitem__(self, path: str) -> Any:
        """Give a field's value, or its default."""
        return self.given.get(path, FIELDS[path].default)

    @property
    def is_usable(self) -> bool:
        """Whether nothing in it is an error."""
        return all(problem.severity != "error" for problem in self.problems)


def read_config(ref: ObjectRef, data: bytes) -> ProxyConfig:
    """Read a configuration."""
    return _Reader(ref).read(data)


def with_port(address: str, port: int) -> str:
    """Give an address of pages with this port, where it has none, as the old program completes it (k3s gives none)."""
    found = packed(address)
    if found is None:
        return address
    return f"[{address}]:{port}" if len(found) == ADDRESS_BYTES["ip6"] else f"{address}:{port}"


def usual_pages(bound: str) -> dict[str, str]:
    """Give by field where pages are that a file says nothing of, if that comes of the address that it has us bind."""
    found = packed(bound)
    if found is None or len(found) != ADDRESS_BYTES["ip6"]:
        return {}
    return {"healthzBindAddress": f"[::]:{HEALTH_PORT}", "metricsBindAddress": f"[::1]:{METRICS_PORT}"}


def completed(given: Mapping[str, Any]) -> dict[str, Any]:
    """Give the fields as the old program completes them before it writes them.

    It keeps one sync period and one masqueradeAll, whatever the mode, and writes them to the part of the mode that is
    chosen alone (conversion.go of its configuration's API; ipvs has masqueradeAll in the part of iptables).
    """
    mode = given.get("mode") or "iptables"
    values = {"detectLocalMode": "ClusterCIDR", **given, "mode": mode}
    if mode == "nftables":
        values.setdefault("nodePortAddresses", ["primary"])
    if "hostnameOverride" in values:
        values["hostnameOverride"] = node_name(values["hostnameOverride"])
    for part in _MODE_PARTS:
        for name, usual in _OF_ONE_PART.items():
            path, chosen = f"{part}.{name}", "iptables" if (mode, name) == ("ipvs", "masqueradeAll") else mode
            if path in FIELDS:
                values[path] = given.get(path, usual) if part == chosen else type(usual)()
    return values


def node_name(text: str) -> str:
    """Give a node's name as the old program takes it."""
    return text.strip().lower()


_MODE_PARTS: Final = ("iptables", "ipvs", "nftables")
_OF_ONE_PART: Final[Mapping[str, Any]] = {"syncPeriod": 30 * SECOND, "minSyncPeriod": SECOND, "masqueradeAll": False}


def is_usual(path: str, value: Any) -> bool:
    """Say whether a field has the value that it has unless somebody says another, in whichever part of a mode."""
    return value in (FIELDS[path].default, ()) or value == _OF_ONE_PART.get(path.rpartition(".")[2])


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Give a whole configuration as the old program writes it: every field, durations in Go's text."""
    document: dict[str, Any] = {"apiVersion": API_VERSION}
    for path, field in FIELDS.items():
        value = values.get(path, field.default)
        shown = go_text(value) if field.type == "duration" else value
        group, dot, name = path.partition(".")
        if dot:
            document.setdefault(group, {})[name] = shown
        else:
            document[group] = shown
    document["kind"] = KIND
    return document


class _Reader:
    def __init__(self, ref: ObjectRef) -> None:
        self._ref = ref
        self._problems: list[Problem] = []

    def _complain(self, severity: Severity, reason: str, field: str, message: str) -> None:
        self._problems.append(Problem(self._ref, severity, reason, field, message))

    def read(self, data: bytes) -> ProxyConfig:
        """Read the first document."""
        parsed = documents.parse(data)
        for fault in parsed.faults:
            self._complain("error" if fault.fatal else "warning", "Syntax", "", str(fault))
        document = parsed.documents[0] if parsed.documents else None
        given: dict[str, Any] = {}
        if isinstance(document, Mapping) and document.get("kind") == "ConfigMap":
            self._complain("error", "WrongKind", "kind", _CONFIG_MAP)
        elif isinstance(document, Mapping):
            self._head(document)
            given = {path: value for path, value in self._fields(document) if not means_default(path, value)}
            self._say_unused(given)
        elif parsed.fatal is None:
            self._complain("error", "Syntax", "", f"there is no {KIND} in it: begin with apiVersion: {API_VERSION}")
        return ProxyConfig(given, tuple(self._problems))

    def _head(self, document: Mapping[str, Any]) -> None:
        for key, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
            if key not in document:
                self._complain("error", "WrongKind", key, f"it is missing: write {wanted}")
            elif document[key] != wanted:
                self._complain(
                    "error", "WrongKind", key, f"{_shown(document[key])} is not what is read here: write {wanted}"
                )

    def _fields(self, document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        for key, value in document.items():
            if key in ("apiVersion", "kind") or value is None:
                continue
            if key in _GROUPS:
                if isinstance(value, Mapping):
                    yield from self._group(key, value)
                else:
                    self._complain(
                        "error", "WrongType", key, f"{_shown(value)} is not a map: write its fields below it"
                    )
            else:
                yield from self._field(field_path((key,)), value)

    def _group(self, group: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        for key, value in values.items():
            if value is not None:
                yield from self._field(field_path((group, key)), value)

    def _field(self, path: str, value: Any) -> Iterator[tuple[str, Any]]:
        field = FIELDS.get(path)
        if field is None:
            guess = did_you_mean(path, FIELDS)
            self._complain("warning", "UnknownKey", path, f"there is no such field{guess}: it changes nothing")
        elif path in NANOSECONDS and type(value) is int:
            yield path, value
        elif _fits(field, value):
            yield from self._value(path, field, value)
        else:
            self._complain(
                "error", "WrongType", path, f"{_shown(value)} is not {_WORDS[field.type]}: {_remedy(field, value)}"
            )

    def _value(self, path: str, field: ConfigField, value: Any) -> Iterator[tuple[str, Any]]:
        if path == "featureGates":
            self._check_gates(value)
        if field.type != "duration":
            yield path, tuple(value) if isinstance(value, list) else value
            return
        try:
            yield path, parse(value)
        except NotADuration as problem:
            self._complain("error", "WrongType", path, f'"{value}" is no duration ({problem}): write 30s or 1h30m')

    def _check_gates(self, gates: Mapping[str, Any]) -> None:
        for gate, value in gates.items():
            if not isinstance(value, bool):
                message = f"{_shown(value)} is not {_WORDS['bool']}: correct it"
                self._complain("error", "WrongType", field_path(("featureGates", gate)), message)

    def _say_unused(self, given: Mapping[str, Any]) -> None:
        for path, value in given.items():
            field = FIELDS[path]
            if field.unused and not is_usual(path, value):
                self._complain("warning", "Unused", path, f"it changes nothing here: {field.unused}")
        for gate in given.get("featureGates", {}):
            if gate != EXTERNAL_IPS_GATE:
                field_name = field_path(("featureGates", gate))
                self._complain("warning", "Unused", field_name, "it changes nothing here: podgate has no such gate")


def _shown(value: Any) -> str:
    """Show a value in JSON's form, which YAML takes too; what JSON has no form for, as a date, as text."""
    return json.dumps(value, ensure_ascii=False, default=str)


def _remedy(field: ConfigField, value: Any) -> str:
    return "write one text with commas" if field.type == "text" and isinstance(value, list) else "correct it"


def _fits(field: ConfigField, value: Any) -> bool:
    if isinstance(value, bool) and field.type != "bool":
        return False
    if field.type in ("list", "maps"):
        items = str if field.type == "list" else Mapping
        return isinstance(value, list) and all(isinstance(each, items) for each in value)
    return isinstance(value, _TYPES[field.type])
