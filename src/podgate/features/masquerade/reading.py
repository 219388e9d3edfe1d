"""reading: the bytes that a user wrote become a Config and problems.

Here: keys, types, limits, and what each mistake means. Not here: syntax (model/documents.py), one entry's text
(cidrs.py), which of several texts is in force (compile.py).
Invariant: an error makes the whole text unusable, since half a list would masquerade what the user kept; all errors of
a text are reported at once. A warning changes nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from podgate.features.masquerade.cidrs import CIDR, read_cidr, shown
from podgate.features.masquerade.config import CIDR_LIMIT, KEYS, RESYNC_INTERVAL, Config
from podgate.features.masquerade.prefixes import Entry, RuleOrigin
from podgate.model import documents
from podgate.model.documents import field_path, split_path
from podgate.model.durations import NotADuration, parse, text_of
from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.machine import Family
from podgate.model.problems import Problem, Severity
from podgate.model.spelling import did_you_mean, nearest

RESYNC_FLOOR: Final = 1_000_000_000
"""Nanoseconds. Changes and drift are noticed at once; more drift checks than one a second only cost."""

LIST: Final = "nonMasqueradeCIDRs"
"""The key that everything turns on."""

_WHITE: Final = b" \t\r\n"
_BOM: Final = b"\xef\xbb\xbf"


class Text(Frozen, frozen=True):
    """One text to read.

    Attributes:
        ref: the file, or the ConfigMap that holds it.
        data: the text.
        field: where in the object it stands, as ``data.config``; empty for a file.
        alone: True for the one configuration, whose absent list means the built-in one; False for one of several that
            are merged, whose absent list means none.
    """

    ref: ObjectRef
    data: bytes
    field: str = ""
    alone: bool = True


class ConfigReading(Frozen, frozen=True):
    """What came of a text: no config when there was an error."""

    config: Config | None
    problems: tuple[Problem, ...] = ()


def read(text: Text, defaults: tuple[Entry, ...], families: Sequence[Family]) -> ConfigReading:
    """Read one text.

    Args:
        text: what was written, and where.
        defaults: the built-in list.
        families: the families that are on.
    """
    reader = _Reader(text, families)
    value = reader.document()
    config = reader.config(value, defaults if text.alone else ()) if isinstance(value, Mapping) else None
    failed = any(problem.severity == "error" for problem in reader.problems)
    order = list(value) if isinstance(value, Mapping) else []
    return ConfigReading(None if failed else config, reader.in_order(order))


class _Reader:
    """Reads one text and collects what is wrong with it."""

    def __init__(self, text: Text, families: Sequence[Family]) -> None:
        self._text = text
        self._families = families
        self._prefix = split_path(text.field)
        self.problems: list[Problem] = []

    def _field(self, *parts: str | int) -> str:
        return field_path((*self._prefix, *parts))

    def _complain(self, severity: Severity, reason: str, message: str, *parts: str | int) -> None:
        self.problems.append(Problem(self._text.ref, severity, reason, self._field(*parts), message))

    def in_order(self, keys: Sequence[str]) -> tuple[Problem, ...]:
        """Give the problems in the order of the keys in the text; those of the whole come first."""

        def position(problem: Problem) -> int:
            parts = split_path(problem.field)[len(self._prefix) :]
            return keys.index(str(parts[0])) if parts else -1

        return tuple(sorted(self.problems, key=position))

    def document(self) -> Any:
        """Give the first document; an empty text is an empty map, and None stands for what has no keys."""
        parsed = self._parsed(self._text.data)
        if parsed.fatal is not None:
            return None
        if len(parsed.documents) > 1:
            message = f"there are {len(parsed.documents)} documents, and only the first one is used: remove the others"
            self._complain("warning", "SeveralDocuments", message)
        value = parsed.documents[0] if parsed.documents else None
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            words = f"a {_word(value)} stands where keys must be"
            self._complain("error", "WrongType", f"{words}: begin with a key such as nonMasqueradeCIDRs:")
            return None
        if "apiVersion" in value and "kind" in value:
            message = f"this is a manifest of kind {value['kind']}, not what such an object holds"
            self._complain("error", "Manifest", f"{message}: write the keys themselves, or give the file to --source")
            return None
        return value

    def _parsed(self, data: bytes) -> documents.Parsed:
        parsed = documents.parse(data)
        if data.removeprefix(_BOM).lstrip(_WHITE).startswith(b"{"):
            # JSON first, for its own rules and messages; YAML also takes a trailing comma or bare keys.
            strict = documents.parse_json(data)
            if strict.fatal is None or parsed.fatal is not None:
                parsed = strict
        for fault in parsed.faults:
            if fault.fatal:
                self._complain("error", "Syntax", str(fault))
            else:
                self._complain("warning", "DuplicateKey", str(fault))
        return parsed

    def config(self, value: Mapping[str, Any], defaults: tuple[Entry, ...]) -> Config:
        """Read the keys. What is wrong has its default; the caller drops the whole if there was an error."""
        keys = self._keys(value)
        limit = self._limit(value, keys)
        entries = self._entries(value, keys, limit, defaults)
        return Config(
            entries=entries,
            masq_link_local=self._boolean(value, keys, "masqLinkLocal"),
            masq_link_local_ipv6=self._boolean(value, keys, "masqLinkLocalIPv6"),
            cidr_limit=limit,
            resync_interval=self._interval(value, keys),
            given={known: RuleOrigin(self._text.ref, self._field(written)) for known, written in keys.items()},
        )

    def _keys(self, value: Mapping[str, Any]) -> dict[str, str]:
        """Match the keys, as Go does without regard to case; give each known key as it was written."""
        by_lower = {key.lower(): key for key in KEYS}
        found: dict[str, str] = {}
        for written in value:
            known = by_lower.get(written.lower())
            if known is None:
                self._unknown(written, value)
                continue
            if written != known:
                self._complain("warning", "LetterCase", f'taken as "{known}": write it so', written)
            if known in found:
                # Go takes the last one, but has sorted them before; the right spelling is the better rule.
                written = known if known in value else written  # noqa: PLW2901
                message = f'"{known}" is given in several spellings; "{written}" counts: remove the others'
                self._complain("warning", "DuplicateKey", message, written)
            found[known] = written
        return found

    def _unknown(self, written: str, value: Mapping[str, Any]) -> None:
        """Ignore an unknown key, unless it is the list itself, misspelt: without it the built-in list would rule."""
        guess = did_you_mean(written, KEYS)
        if nearest(written, KEYS) == LIST and not any(key.lower() == LIST.lower() for key in value):
            self._complain("error", "UnknownKey", f"unknown key, and there is no {LIST}{guess}: correct it", written)
        else:
            self._complain("warning", "UnknownKey", f"unknown key, ignored{guess}: correct or remove it", written)

    def _limit(self, value: Mapping[str, Any], keys: Mapping[str, str]) -> int:
        if "cidrLimit" not in keys:
            return CIDR_LIMIT
        key = keys["cidrLimit"]
        limit = value[key]
        if limit is None:
            return CIDR_LIMIT
        if isinstance(limit, float) and limit.is_integer():
            limit = int(limit)
        if isinstance(limit, bool) or not isinstance(limit, int):
            hint = ", without quotes" if isinstance(limit, str) and limit.strip().isdecimal() else ""
            self._complain("error", "WrongType", f"{shown(limit)} is not a whole number: write one{hint}", key)
            return CIDR_LIMIT
        if limit < 0:
            self._complain("error", "InvalidLimit", f"{limit} is less than 0: no list is that short", key)
            return CIDR_LIMIT
        return limit

    def _entries(
        self, value: Mapping[str, Any], keys: Mapping[str, str], limit: int, defaults: tuple[Entry, ...]
    ) -> tuple[Entry, ...]:
        if "nonMasqueradeCIDRs" not in keys:
            if len(defaults) > limit:
                message = (
                    f"the limit is {limit}, and the built-in list, in force while none is given, has {len(defaults)}"
                )
                fix = f"raise cidrLimit to {len(defaults)} or give nonMasqueradeCIDRs"
                self._complain("error", "TooManyCIDRs", f"{message} CIDRs: {fix}", keys["cidrLimit"])
            return defaults
        key = keys["nonMasqueradeCIDRs"]
        items = value[key]
        if not items and (items is None or isinstance(items, list)):
            if self._text.alone:
                self._complain("warning", "EmptyList", EMPTY_LIST, key)
            return ()
        if not isinstance(items, list):
            form = f'"{items}"' if isinstance(items, str) and "," not in items else '"10.0.0.0/8"'
            self._complain("error", "WrongType", f"{shown(items)} is not a list: write [{form}]", key)
            return ()
        if len(items) > limit:
            fix = f"set cidrLimit to {len(items)} or more, or join ranges"
            self._complain("error", "TooManyCIDRs", f"{len(items)} CIDRs, and cidrLimit allows {limit}: {fix}", key)
        entries: list[Entry] = []
        for index, item in enumerate(items):
            cidr = read_cidr(item, self._families)
            if not isinstance(cidr, CIDR):
                self._complain("error", cidr.reason, cidr.message, key, index)
                continue
            if cidr.warning is not None:
                self._complain("warning", cidr.warning.reason, cidr.warning.message, key, index)
            entries.append(Entry(cidr.network, "keep", RuleOrigin(self._text.ref, self._field(key, index))))
        return tuple(entries)

    def _boolean(self, value: Mapping[str, Any], keys: Mapping[str, str], known: str) -> bool:
        key = keys.get(known)
        given = value[key] if key is not None else None
        if key is None or given is None:
            return False
        if isinstance(given, bool):
            return given
        hint = ", without quotes" if isinstance(given, str) else ""
        self._complain("error", "WrongType", f"{shown(given)} is not true or false: write one of them{hint}", key)
        return False

    def _interval(self, value: Mapping[str, Any], keys: Mapping[str, str]) -> int:
        key = keys.get("resyncInterval")
        if key is None:
            return RESYNC_INTERVAL
        given = value[key]
        if isinstance(given, int | float) and not isinstance(given, bool):
            form = f"{given}s" if given > 0 else "60s"
            self._complain("error", "InvalidDuration", f'{given} has no unit: write "{form}" for seconds', key)
            return RESYNC_INTERVAL
        if given is None or given == "":
            self._complain("error", "InvalidDuration", 'it is empty: write "60s", or remove the key', key)
            return RESYNC_INTERVAL
        if not isinstance(given, str):
            self._complain("error", "InvalidDuration", f'{shown(given)} is not a duration: write "60s"', key)
            return RESYNC_INTERVAL
        return self._duration(given, key)

    def _duration(self, given: str, key: str) -> int:
        try:
            interval = parse(given)
        except NotADuration as error:
            units = "units are h, m, s, ms, us and ns, as in 1h30m"
            self._complain("error", "InvalidDuration", f'"{given}" is not a duration: {error}; {units}', key)
            return RESYNC_INTERVAL
        if interval <= 0:
            message = f'"{given}" is not more than 0, which would check without pause: write 1s or more'
            self._complain("error", "InvalidDuration", message, key)
            return RESYNC_INTERVAL
        if interval < RESYNC_FLOOR:
            message = f'"{given}" is too short, taken as {text_of(RESYNC_FLOOR)}: write that or more'
            self._complain("warning", "ShortInterval", message, key)
            return RESYNC_FLOOR
        return interval


EMPTY_LIST: Final = (
    "the list is empty, so that Pods on other nodes, too, see node addresses: list the ranges that should see Pod "
    "addresses (the built-in list is 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16)"
)


def _word(value: Any) -> str:
    words: dict[type, str] = {bool: "boolean", int: "number", float: "number", str: "text", list: "list", dict: "map"}
    return words.get(type(value), type(value).__name__)
