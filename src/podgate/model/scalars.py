"""What a plain YAML scalar means: text in, a JSON value out, by the rules that Kubernetes' tools use.

Here: the rules of sigs.k8s.io/yaml (YAML 1.1 as go-yaml reads it): ``yes``, ``on`` and ``y`` are booleans, ``010`` is
octal, ``1_000`` is a number; sexagesimals (``1:30``) and time stamps stay text. Not here: syntax (documents.py).
Invariant: every value given can be written as JSON; what cannot (``.nan``, ``.inf``) is refused by name.
"""

import math
import re
from typing import Final

Scalar = str | int | float | bool | None

_WORDS: Final[dict[str, Scalar]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
}
_NOT_IN_JSON: Final = frozenset(
    sign + word
    for sign, words in (("", (".nan", ".NaN", ".NAN")), *((s, (".inf", ".Inf", ".INF")) for s in ("", "+", "-")))
    for word in words
)
_INTEGER: Final = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))", re.ASCII)
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_NUMERIC_START: Final = frozenset("+-.0123456789")
_BASES: Final = (16, 2, 8, 10)
_LONGEST: Final = 70
"""Characters of the longest text that can be a 64-bit integer: 64 binary digits, a prefix and a sign."""


class NotJson(ValueError):  # noqa: N818 - says what it is
    """The scalar has no JSON form."""


def resolve(text: str) -> Scalar:
    """Give the value of a plain (unquoted, untagged) scalar.

    Integers outside 64 bits become floats, as go-yaml has it.

    Raises:
        NotJson: for the not-a-number and infinity forms.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMERIC_START:
        return text
    if text in _NOT_IN_JSON:
        raise NotJson(text)
    plain = text.replace("_", "")
    integer = _integer(plain)
    if integer is not None:
        return integer
    if _FLOAT.fullmatch(plain):
        value = float(plain)
        return value if math.isfinite(value) else text
    return text


def _integer(plain: str) -> int | None:
    if len(plain) > _LONGEST:
        return None
    found = _INTEGER.fullmatch(plain)
    if found is None:
        return None
    sign, *digits = found.groups()
    value = next(int(text, base) for text, base in zip(digits, _BASES, strict=True) if text is not None)
    if sign == "-":
        value = -value
    return value if -(1 << 63) <= value < (1 << 64) else None


def key_text(value: Scalar) -> str | None:
    """Give a map key as JSON has it: ``on`` is the key ``true``, ``80`` is ``80``. None for null, which is no key."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return None if value is None else str(value)
