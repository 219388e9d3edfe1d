"""Documents: the bytes of a YAML or JSON file become plain values, with the lines of their fields on demand.

Here: ``parse``, ``parse_json``, ``parse_json_lines``, ``each_json_line``; ``Lines`` and ``locate``.
Not here: reading files, or what the values mean.
Invariant: nothing raises on any bytes; every complaint is a Fault with a line; the first fatal one ends the stream.

YAML is read as sigs.k8s.io/yaml does (the rules are in scalars.py), with libyaml where PyYAML has it. Anchors, aliases
and merge keys work, within bounds (composing.py). Values keep no positions: ``Lines`` reads the text again, which only
happens when a message is printed. Paths are those of fieldpath.py: ``field_path`` writes them.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, AnyStr, Final

import yaml
import yaml.reader

from podgate.model.composing import MAX_DEPTH, Composer, Fault, Position, ReadingEnded
from podgate.model.fieldpath import Part, field_path, split_path
from podgate.model.frozen import Frozen
from podgate.model.plainjson import SURROGATE_ESCAPE, json_number, plain_json, plain_lines, refuse_constant
from podgate.model.scalars import NotJson, Scalar, resolve

_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG: Final = "tag:yaml.org,2002:"
_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "null": (type(None),),
}
_UNREADABLE: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_UNREADABLE_ASCII: Final = bytes(code for code in range(128) if _UNREADABLE.match(chr(code)))
_BOM: Final = b"\xef\xbb\xbf"
_BLOCK: Final = 1 << 15
"""Bytes of a ``.jsonl`` that are looked at together: their values are there at once."""

_JSON_TOKEN: Final = re.compile(
    r'(?P<string>"(?:[^"\\]|\\.)*")|(?P<number>-?[0-9][0-9.eE+-]*)|(?P<word>true|false|null)|(?P<mark>[][{}])|(?P<line>\n)',
    re.ASCII,
)
_WORDS: Final[dict[str, Scalar]] = {"true": True, "false": False, "null": None}


class Parsed(Frozen, frozen=True):
    """What a file holds.

    Attributes:
        documents: the values that were read whole, in order: dict (with text keys), list, str, int, float, bool, None.
            A document that ends in a fatal fault, and all after it, are missing.
        faults: warnings in order; a fatal one, if any, comes last.
    """

    documents: tuple[Any, ...] = ()
    faults: tuple[Fault, ...] = ()

    @property
    def fatal(self) -> Fault | None:
        """Give the fault that ended the reading, if any."""
        return self.faults[-1] if self.faults and self.faults[-1].fatal else None


def parse(data: bytes) -> Parsed:
    """Read YAML (which includes JSON), any number of documents. A BOM, CRLF and ``...`` are accepted."""
    return _composed(Composer(), data, _yaml)


def parse_json(data: bytes) -> Parsed:
    """Read one JSON document, as strictly as Go does: no comments, no trailing comma. Only white space: no document."""
    return _composed(Composer(), data, _json)


def parse_json_lines(data: bytes) -> Parsed:
    """Read one JSON document per line (``.jsonl``); blank lines are skipped. A bad line ends the stream."""
    return _composed(Composer(), data, _json_lines)


def each_json_line(data: bytes) -> Iterator[Parsed]:
    """Do what ``parse_json_lines`` does, some lines at a time: of a large file, not all values are there at once."""
    composer = Composer()
    told = 0
    try:
        for above, block in _blocks(_readable(data)):
            if (plain := plain_lines(block)) is not None:
                yield Parsed(tuple(plain))
                continue
            for at, line in enumerate(block.split(b"\n"), above):
                _json_line(composer, line.decode(), at)
                if composer.documents or len(composer.warnings) > told:
                    yield Parsed(tuple(composer.documents), tuple(composer.warnings[told:]))
                    composer.documents.clear()
                    told = len(composer.warnings)
    except ReadingEnded as stop:
        yield Parsed(faults=(*composer.warnings[told:], stop.fault))


class Lines:
    """The lines of all fields of a text, YAML or JSON; the text is read once, whatever is asked then."""

    def __init__(self, data: bytes) -> None:
        self._lines: dict[tuple[Part, ...], int] = {}
        for read in _READERS if data[:1] in {b"{", b"["} else (_yaml,):
            composer = Composer(records=True)
            parsed = _composed(composer, data, read)
            self._lines = composer.lines
            if not parsed.fatal:
                break

    def of(self, document: int, path: str) -> int | None:
        """Give the line (from 1) of a field: of its key, or of the item of a list.

        A field that is not there has the line of the nearest map or list around it that is; a field that came through
        an alias or a merge key has the line where the alias stands. ``""`` is the document itself.

        Args:
            document: index into ``Parsed.documents``.
            path: a path as ``field_path`` writes it.

        Returns:
            None when the text has no such document.
        """
        split = (document, *split_path(path))
        prefixes = (split[:length] for length in range(len(split), 0, -1))
        return next((self._lines[prefix] for prefix in prefixes if prefix in self._lines), None)


def locate(data: bytes, document: int, path: str) -> int | None:
    """Give the line of one field of a text (``Lines.of``)."""
    return Lines(data).of(document, path)


def json_line(data: bytes, document: int) -> tuple[int, bytes] | None:
    """Give a document of a ``.jsonl`` with the number of its line (from 1); None when there are not so many."""
    for number, line in enumerate(_lines(data, b"\n"), 1):
        if line.strip():
            if not document:
                return number, line
            document -= 1
    return None


def _composed(composer: Composer, data: bytes, read: Callable[[Composer, str], None]) -> Parsed:
    """Run a reader, and turn whatever ends it into faults."""
    try:
        read(composer, _text(data))
    except ReadingEnded as stop:
        return Parsed(tuple(composer.documents), (*composer.warnings, stop.fault))
    return Parsed(tuple(composer.documents), tuple(composer.warnings))


def _text(data: bytes) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # The start is relative to what follows a BOM; the lines before are the same either way.
        before = data.removeprefix(_BOM)[: error.start]
        at = (before.count(b"\n") + 1, error.start - before.rfind(b"\n"))
        byte = error.object[error.start]
        raise ReadingEnded(at, f"byte 0x{byte:02x} is not UTF-8; save the file as UTF-8") from error
    bad = _UNREADABLE.search(text)
    if bad:
        name = "NUL" if bad[0] == "\0" else f"U+{ord(bad[0]):04X}"
        raise _stop_at(text, bad.start(), f"the character {name} is not allowed; is this a text file?")
    return text


def _readable(data: bytes) -> bytes:
    """Give a text without its BOM. Raises what ``_text`` does; of ASCII no copy is made, a ``.jsonl`` may be large."""
    whole = memoryview(data)
    parts = (bytes(whole[begin : begin + _BLOCK]) for begin in range(0, len(data), _BLOCK))
    if not data.isascii() or any(len(part.translate(None, _UNREADABLE_ASCII)) < len(part) for part in parts):
        _text(data)
    return data.removeprefix(_BOM)


def _blocks(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Give a text some whole lines at a time, without the last line break, and the number of lines before."""
    begin = above = 0
    while begin < len(data):
        end = data.find(b"\n", begin + _BLOCK)
        block = data[begin:] if end < 0 else data[begin:end]
        yield above, block.removesuffix(b"\n")
        begin += len(block) + 1
        above += block.count(b"\n") + 1


def _stop_at(text: str, position: int, message: str) -> ReadingEnded:
    return ReadingEnded((text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)), message)


def _yaml(composer: Composer, text: str) -> None:
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            _take(composer, event)
    except yaml.MarkedYAMLError as error:
        raise _syntax(text, error) from error
    except yaml.reader.ReaderError as error:
        raise ReadingEnded((1, 1), f"{error.reason}; is this a text file?") from error


def _syntax(text: str, error: yaml.MarkedYAMLError) -> ReadingEnded:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    lines = text.split("\n", line)
    this = lines[line - 1] if line <= len(lines) else ""
    if "\t" in this[: len(this) - len(this.lstrip())]:
        return ReadingEnded(
            (line, this.index("\t") + 1), "a TAB in the indentation, where YAML takes only spaces; use spaces"
        )
    message = error.problem or "syntax error"
    if error.context and error.context_mark and error.context_mark.line + 1 != line:
        message += f" ({error.context} that began on line {error.context_mark.line + 1})"
    elif error.context:
        message += f" ({error.context})"
    return ReadingEnded((line, column), f"not YAML: {message}")


def _take(composer: Composer, event: Any) -> None:
    """Feed one of PyYAML's events to the composer."""
    at: Position = (event.start_mark.line + 1, event.start_mark.column + 1)
    if isinstance(event, yaml.ScalarEvent):
        if event.implicit[0] and event.tag is None:
            if event.value == "<<" and composer.merge_key(at):
                return
            try:
                value = resolve(event.value)
            except NotJson as error:
                raise ReadingEnded(at, f"{error} is not a number in JSON; put it in quotes if it is text") from error
        else:
            value = _tagged(event, at)
        composer.scalar(value, event.anchor, at)
    elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
        is_map = isinstance(event, yaml.MappingStartEvent)
        if event.tag not in {None, "!", _TAG + ("map" if is_map else "seq")}:
            raise ReadingEnded(at, f"the tag {_shown(event.tag)} is not supported; remove it")
        composer.open({} if is_map else [], event.anchor, at)
    elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
        composer.close()
    elif isinstance(event, yaml.AliasEvent):
        composer.alias(str(event.anchor), at)
    elif isinstance(event, yaml.DocumentStartEvent):
        composer.start_document()


def _tagged(event: yaml.ScalarEvent, at: Position) -> Scalar:
    """Give the value of a scalar in quotes, in block style or with a tag."""
    tag: str | None = event.tag
    if tag in {None, "!", _TAG + "str", _TAG + "timestamp"}:
        return str(event.value)
    types = _TYPES.get(str(tag).removeprefix(_TAG))
    if types is None:
        raise ReadingEnded(at, f"the tag {_shown(tag)} is not supported; remove it")
    try:
        value = resolve(event.value)
    except NotJson:
        value = str(event.value)
    if type(value) not in types:
        raise ReadingEnded(at, f"{event.value!r} is not what its tag {_shown(tag)} says; remove the tag")
    return value


def _shown(tag: str | None) -> str:
    return "!!" + str(tag).removeprefix(_TAG) if str(tag).startswith(_TAG) else str(tag)


def _json(composer: Composer, text: str, above: int = 0) -> None:
    """Read one document; ``above`` is the number of lines before it in the file."""
    if not text.strip():
        return
    if composer.is_plain and (plain := plain_json(text)) is not None:
        composer.whole(plain)
        return
    try:
        json.loads(text, parse_constant=refuse_constant, parse_int=json_number, parse_float=json_number)
    except json.JSONDecodeError as error:
        raise ReadingEnded((error.lineno, error.colno), f"not JSON: {error.msg}") from error
    except NotJson as error:
        position = text.find(str(error))
        raise _stop_at(text, position, f"not JSON: {str(error)[:40]} is not a number that JSON can hold") from error
    except RecursionError as error:
        raise ReadingEnded((1, 1), f"maps and lists nest deeper than {MAX_DEPTH}; write it flatter") from error
    # The syntax is right from here on, so that the tokens alone tell the structure.
    composer.start_document()
    line, begin = above + 1, 0
    for token in _JSON_TOKEN.finditer(text):
        if token.lastgroup == "line":
            line, begin = line + 1, token.end()
        else:
            _take_json(composer, token, (line, token.start() - begin + 1))


def _json_lines(composer: Composer, text: str) -> None:
    for above, line in enumerate(_lines(text, "\n")):
        _json_line(composer, line, above)


def _lines(text: AnyStr, end: AnyStr) -> Iterator[AnyStr]:
    begin = 0
    while (until := text.find(end, begin)) >= 0:
        yield text[begin:until]
        begin = until + 1
    yield text[begin:]


def _json_line(composer: Composer, line: str, above: int) -> None:
    try:
        _json(composer, line, above)
    except ReadingEnded as stop:
        fault = stop.fault
        raise ReadingEnded((max(fault.line, above + 1), fault.column), fault.message) from stop


def _take_json(composer: Composer, token: re.Match[str], at: Position) -> None:
    text = token[0]
    match token.lastgroup:
        case "string":
            value = json.loads(text)
            if SURROGATE_ESCAPE.search(text):
                # Half of a surrogate pair cannot be written as UTF-8; Go replaces it likewise.
                value = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
            composer.scalar(value, None, at)
        case "number":
            composer.scalar(json_number(text), None, at)
        case "word":
            composer.scalar(_WORDS[text], None, at)
        case _ if text == "{":
            composer.open({}, None, at)
        case _ if text == "[":
            composer.open([], None, at)
        case _:
            composer.close()


_READERS: Final = (_json, _json_lines, _yaml)
"""How text that begins like JSON may be meant: JSON allows escapes that YAML does not know."""

__all__ = [
    "Fault",
    "Lines",
    "Parsed",
    "Part",
    "each_json_line",
    "field_path",
    "json_line",
    "locate",
    "parse",
    "parse_json",
    "parse_json_lines",
    "split_path",
]
