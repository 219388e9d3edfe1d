"""Field paths: how a message names one field of an object, as ``spec.template.spec.containers[0].image``.

Here: the grammar, from parts to text and back. Not here: finding the line of a field (documents.py).
Invariant: ``split_path(field_path(parts)) == parts`` for every sequence of keys and indexes.

Grammar: a path is empty (the whole document) or parts one after the other:

* a key of letters, digits, ``_``, ``-``, ``/`` or ``$`` stands for itself, after a ``.`` unless it comes first;
* any other key is a JSON string in brackets: ``metadata.annotations["lab.podgate.dev/ip"]``;
* an index into a list, from 0, is a number in brackets: ``nonMasqueradeCIDRs[1]``.
"""

import json
import re
from collections.abc import Iterable
from typing import Final

Part = str | int

_PLAIN: Final = re.compile(r"[A-Za-z0-9_/$-]+", re.ASCII)
_PART: Final = re.compile(
    r"""\[(?P<index>[0-9]{1,9})\]|\[(?P<quoted>"(?:[^"\\]|\\.)*")\]|(?P<dot>\.?)(?P<key>[A-Za-z0-9_/$-]+)""",
    re.ASCII | re.DOTALL,
)


def field_path(parts: Iterable[Part]) -> str:
    """Write a path from its keys (text) and indexes (numbers)."""
    text = ""
    for part in parts:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN.fullmatch(part):
            text += f".{part}" if text else part
        else:
            text += f"[{json.dumps(part)}]"
    return text


def split_path(path: str) -> tuple[Part, ...]:
    """Read a path back into its parts.

    Raises:
        ValueError: when the text is no path: a bug of the caller, since users do not write paths.
    """
    parts: list[Part] = []
    position = 0
    while position < len(path):
        found = _PART.match(path, position)
        if found is None or (found["key"] and bool(found["dot"]) != bool(position)):
            raise ValueError(f"not a field path: {path!r}, at character {position + 1}")
        if found["index"]:
            parts.append(int(found["index"]))
        else:
            parts.append(found["key"] or json.loads(found["quoted"]))
        position = found.end()
    return tuple(parts)
