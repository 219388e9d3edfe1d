"""plainjson: JSON of which there is nothing to complain, read as fast as it can be.

Here: ``plain_json``, ``plain_lines``, and what JSON's numbers mean. Not here: what is wrong with any other text, and
where (documents.py).
Invariant: what is given is what reading token by token gives without a word; any doubt is None.

A key that is there twice is such a doubt, and msgspec takes it in silence: what it read is written again, and the
quotation marks are counted.
"""

import json
import math
import re
from typing import Any, Final, NoReturn

import msgspec

from podgate.model.composing import MAX_DEPTH
from podgate.model.scalars import NotJson

SURROGATE_ESCAPE: Final = re.compile(r"\\u[dD][89a-fA-F]")
"""Half of a character that is written as two escapes, or not written whole."""

_BRACKET: Final = re.compile(r'"(?:[^"\\]|\\.)*+"|([][{}])', re.DOTALL)
_DECODER: Final = msgspec.json.Decoder()
_ENCODER: Final = msgspec.json.Encoder()
_PACKER: Final = msgspec.msgpack.Encoder()
_OPENING: Final = b"[{"
_NO_MARK: Final = bytes(sorted(set(range(256)) - {*b'"\n', *_OPENING}))


def plain_json(text: str) -> Any:
    """Read one document, ten times as fast as token by token; None for what is to be read so, and for null."""
    if text.count("[") + text.count("{") > MAX_DEPTH and _is_deep(text):
        return None
    if "\\u" not in text and (found := _same_again(text)) is not None:
        return found
    if SURROGATE_ESCAPE.search(text):
        return None
    try:
        return json.loads(
            text,
            parse_constant=refuse_constant,
            parse_int=json_number,
            parse_float=json_number,
            object_pairs_hook=_unique,
        )
    except (ValueError, RecursionError):  # among the former NotJson and a key that is there twice
        return None


def plain_lines(block: bytes) -> list[Any] | None:
    """Read lines of one document each; None where one of them is to be read by itself, as an empty one."""
    if b"\\" in block and b"\\u" in block:  # a quotation mark may be written as an escape, which is none
        return None
    marks = block.translate(None, _NO_MARK)
    brackets = marks.replace(b'"', b"").split(b"\n")
    lines = block.split(b"\n")
    for opened, line in zip(brackets, lines, strict=True) if max(map(len, brackets)) > MAX_DEPTH else ():
        if len(opened) > MAX_DEPTH and _is_deep(line.decode()):
            return None
    try:
        found = [_DECODER.decode(line) for line in lines]
        _PACKER.encode(found)  # has no larger numbers
    except (msgspec.DecodeError, OverflowError, RecursionError):
        return None
    return found if _ENCODER.encode(found).count(b'"') == marks.count(b'"') else None


def _same_again(text: str) -> Any:
    """Read what is still all there when it is written again; None for anything else, and for a number of 65 bits."""
    try:
        found = _DECODER.decode(text)
        _PACKER.encode(found)  # has no larger numbers
    except (msgspec.DecodeError, OverflowError, RecursionError):
        return None
    # Of a key that is there twice msgspec drops the first, and with it at least two quotation marks.
    return found if _ENCODER.encode(found).count(b'"') == text.count('"') else None


def _is_deep(text: str) -> bool:
    """Say whether maps and lists nest deeper than documents may."""
    depth = 0
    for found in _BRACKET.finditer(text):
        if found[1]:
            depth += 1 if found[1] in "[{" else -1
            if depth > MAX_DEPTH:
                return True
    return False


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise NotJson("a key is there twice")
    return found


def json_number(text: str) -> int | float:
    """Read a JSON number: whole ones within 64 bits as int, others as float. Raises NotJson."""
    if len(text) <= 20 and text.lstrip("-").isdigit():
        value = int(text)
        if -(1 << 63) <= value < (1 << 64):
            return value
    real = float(text)
    if not math.isfinite(real):
        raise NotJson(text)
    return real


def refuse_constant(text: str) -> NoReturn:
    """Refuse ``NaN`` and the like, which Python's reader takes. Raises NotJson."""
    raise NotJson(text)
