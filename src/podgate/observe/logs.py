"""Log lines: text for a person at a terminal, JSON for everything else.

Here: the writer, the escaping, and ``Repeats``: one line for a fault that lasts.
Not here: what is worth a line; that is the caller's choice.
Invariant: one record is one line, whatever a user put into it, and a stream that cannot be written to stops nobody.
In text alone, a ``Multiline`` goes on below its record; what goes on begins with spaces, as no record does.
"""

import contextlib
import json
import math
import re
import sys
import time
from collections.abc import Callable, Hashable, Mapping
from datetime import UTC, datetime
from typing import Final, Literal, TextIO

import msgspec

Format = Literal["text", "json"]
Level = Literal["info", "warning", "error"]

_COLOURS: Final[Mapping[Level, str]] = {"info": "\x1b[32m", "warning": "\x1b[33m", "error": "\x1b[31m"}
_PLAIN: Final = "\x1b[0m"
_BARE: Final = re.compile(r"[^\s\"'=\\{}\[\]]+")
_RESERVED: Final = frozenset({"time", "level", "message"})


class Multiline(str):
    """Text of several lines that are ours, as a plan: a person sees them one below the other."""

    __slots__ = ()


def clipped(text: str, most: int) -> str:
    """Give the beginning of a text, whole lines where there are some, and how much was left out."""
    if len(text) <= most:
        return text
    kept = text[:most]
    kept = kept[: kept.rfind("\n")] if "\n" in kept else kept
    return f"{kept}… ({len(text) - len(kept)} more characters)"


def escaped(text: str) -> str:
    r"""Give the text with every character that is not printable as ``\n``, ``\t`` or ``\uXXXX``.

    That covers line ends of every kind, terminal control sequences, and marks that reorder what is read
    (Unicode categories Cc, Cf, Cs, Co, Cn, Zl and Zp). A backslash is doubled, so that no two texts look alike.
    """
    return _quoted(text)[1:-1].replace('\\"', '"')


def _quoted(text: str) -> str:
    quoted = json.dumps(text, ensure_ascii=False)
    if quoted.isprintable():
        return quoted
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in quoted)


def _plain(value: object) -> object:
    """Give what JSON can say as it is, and the text of everything else: a Secret's text is its digest."""
    if value is None or isinstance(value, (bool, int, str)):
        return str(value) if isinstance(value, Multiline) else value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((_plain(item) for item in value), key=str)
    return str(value)


def _json(value: object) -> str:
    """Write JSON on one line; strings keep printable characters, everything else in them is escaped."""
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_quoted(key)}: {_json(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_json, value)) + "]"
    return json.dumps(value)


def as_json(value: object) -> str:
    """Give a value as a record shows it in JSON: on one line, everything that is not printable escaped."""
    return _json(_plain(value))


def _time(seconds: float) -> str:
    """Give RFC 3339 in UTC with milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Log:
    """Writes records to one stream. ``bind`` gives a log that adds fields to each record; both share the stream.

    Args:
        stream: where lines go; flushed after each.
        form: ``text`` or ``json``.
        clock: seconds since 1970.
        colour: colour the level, in text.
        bound: fields of every record.
    """

    __slots__ = ("_bound", "_clock", "_colour", "_form", "_stream")

    def __init__(
        self,
        stream: TextIO,
        form: Format = "json",
        clock: Callable[[], float] = time.time,
        *,
        colour: bool = False,
        bound: Mapping[str, object] | None = None,
    ) -> None:
        self._stream = stream
        self._form = form
        self._clock = clock
        self._colour = colour
        self._bound = dict(bound or {})

    @property
    def form(self) -> Format:
        """Whether lines are text or JSON."""
        return self._form

    def bind(self, **fields: object) -> "Log":
        """Give a log on the same stream whose records carry these fields too."""
        return Log(self._stream, self._form, self._clock, colour=self._colour, bound={**self._bound, **fields})

    def info(self, event: str, /, **fields: object) -> None:
        """Write what happened: a change, a start, an end."""
        self.write("info", event, fields)

    def warning(self, event: str, /, **fields: object) -> None:
        """Write what went on although something is not as it should be."""
        self.write("warning", event, fields)

    def error(self, event: str, /, **fields: object) -> None:
        """Write what could not be done."""
        self.write("error", event, fields)

    def write(self, level: Level, event: str, fields: Mapping[str, object]) -> None:
        """Write one record. A field replaces a bound one; ``time``, ``level``, ``message`` get a ``_`` at the end."""
        named = {f"{key}_" if key in _RESERVED else key: value for key, value in {**self._bound, **fields}.items()}
        line = (self._as_json if self._form == "json" else self._as_text)(level, event, named)
        try:
            self._put(line)
        except UnicodeEncodeError:
            self._put(line.encode("ascii", "backslashreplace").decode("ascii"))

    def _put(self, line: str) -> None:
        # A closed, full or broken stderr must not stop the agent: rules in the kernel matter more than lines.
        with contextlib.suppress(OSError):
            if not self._stream.closed:
                self._stream.write(line + "\n")
                self._stream.flush()

    def _as_json(self, level: Level, event: str, fields: Mapping[str, object]) -> str:
        return _json({"time": _time(self._clock()), "level": level, "message": event, **_values(fields)})

    def _as_text(self, level: Level, event: str, fields: Mapping[str, object]) -> str:
        shown = f"{_COLOURS[level]}{level:<7}{_PLAIN}" if self._colour else f"{level:<7}"
        words = [_time(self._clock()), shown, escaped(event)]
        long = {key: value for key, value in fields.items() if isinstance(value, Multiline) and "\n" in value}
        words += [f"{escaped(key)}={_shown(_plain(value))}" for key, value in fields.items() if key not in long]
        below = [line for key, value in long.items() for line in (f"  {escaped(key)}:", *_indented(value))]
        return "\n".join([" ".join(words), *below])


def _values(fields: Mapping[str, object]) -> dict[str, object]:
    return {key: _plain(value) for key, value in fields.items()}


def _indented(text: str) -> list[str]:
    return [f"    {escaped(line)}" for line in text.split("\n")]


def _shown(value: object) -> str:
    """Give a value as text shows it: bare when it is one plain word, JSON otherwise."""
    if isinstance(value, str) and _BARE.fullmatch(value) and value.isprintable():
        return value
    return _json(value)


def log_for(stream: TextIO, environ: Mapping[str, str], clock: Callable[[], float] = time.time) -> Log:
    """Give the log that suits a stream: text on a terminal, JSON elsewhere.

    Colour is used on a terminal unless ``NO_COLOR`` is set and not empty (no-color.org) or ``TERM`` is ``dumb``.
    """
    terminal = not stream.closed and stream.isatty()
    colour = terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
    return Log(stream, "text" if terminal else "json", clock, colour=colour)


class News(msgspec.Struct, frozen=True):
    """What a fault's latest sighting adds to what was already said.

    Attributes:
        what: ``appeared``, ``changed`` (another fault at the same place) or ``ended``.
        fault: the fault that is there now; of ``ended``, the one that went away.
        repeated: how often the earlier fault came again without a line.
    """

    what: Literal["appeared", "changed", "ended"]
    fault: Hashable
    repeated: int = 0


class Repeats:
    """Keeps a fault that comes again and again to one line when it appears, one when it changes, one when it ends."""

    __slots__ = ("_faults",)

    def __init__(self) -> None:
        self._faults: dict[Hashable, tuple[Hashable, int]] = {}

    def saw(self, place: Hashable, fault: Hashable) -> News | None:
        """Tell of a fault at a place; gives what is new about it, or None when it was said already."""
        if place not in self._faults:
            self._faults[place] = (fault, 0)
            return News("appeared", fault)
        known, repeated = self._faults[place]
        if known == fault:
            self._faults[place] = (known, repeated + 1)
            return None
        self._faults[place] = (fault, 0)
        return News("changed", fault, repeated)

    def ended(self, place: Hashable) -> News | None:
        """Tell that all is well at a place; gives the fault that ended, or None when there was none."""
        if place not in self._faults:
            return None
        fault, repeated = self._faults.pop(place)
        return News("ended", fault, repeated)


def stderr_log(environ: Mapping[str, str]) -> Log:
    """Give the log of this process: on standard error, in the form that suits it."""
    return log_for(sys.stderr, environ)
