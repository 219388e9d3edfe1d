"""durations: the grammar of Go's time.ParseDuration, in which what podgate replaces has its times. Pure.

Here: text to nanoseconds and back, by Go's rules and limits. Not here: which durations make sense (each feature).
Invariant: accepts exactly what Go 1.x accepts; the result is whole nanoseconds within 64 signed bits.
"""

import re
from typing import Final

NANOSECONDS: Final = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,  # micro sign
    "\u03bcs": 1_000,  # Greek mu
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_LIMIT: Final = 1 << 63
_PART: Final = re.compile(r"([0-9]*)(\.?)([0-9]*)([^0-9.]*)")


class NotADuration(ValueError):  # noqa: N818 - says what it is
    """The text is no Go duration; the message says why, without the text itself."""


def parse(text: str) -> int:
    """Give the nanoseconds of a Go duration: ``60s``, ``1h30m``, ``.5s``, ``-1.5h``, ``0``.

    Raises:
        NotADuration: for everything that Go refuses, overflow included.
    """
    sign, rest = (text[0], text[1:]) if text[:1] in ("+", "-") else ("", text)
    if rest == "0":
        return 0
    if not rest:
        raise NotADuration("it is empty" if not text else "it has no number")
    total = 0
    while rest:
        found = _PART.match(rest)
        assert found is not None  # noqa: S101 - every part of the pattern may be empty
        whole, _, fraction, unit = found.groups()
        if not whole and not fraction:
            raise NotADuration(f'"{rest}" does not begin with a number')
        if not unit:
            raise NotADuration("a number has no unit")
        if unit not in NANOSECONDS:
            raise NotADuration(f'there is no unit "{unit}"')
        total += _part(whole, fraction, NANOSECONDS[unit])
        # Go lets -(1<<63) through and nothing else beyond 63 bits.
        if total > _LIMIT - (sign != "-"):
            raise NotADuration("it is too long for 64 bits of nanoseconds (292 years)")
        rest = rest[found.end() :]
    return -total if sign == "-" else total


def _part(whole: str, fraction: str, scale: int) -> int:
    """Give one number times its unit, with Go's floating point for the fraction."""
    if len(whole.lstrip("0")) > len(str(_LIMIT)):
        return _LIMIT + 1
    digits, power = 0, 1.0
    for digit in fraction:
        following = digits * 10 + int(digit)
        if following > _LIMIT:
            break  # Go drops the digits that 63 bits cannot hold
        digits, power = following, power * 10
    return int(whole or "0") * scale + int(digits * (scale / power))


def text_of(nanoseconds: int) -> str:
    """Write a duration for people: ``60s``, ``1.5s``, ``100us``."""
    for unit in ("s", "ms", "us"):
        if nanoseconds % NANOSECONDS[unit] == 0 or nanoseconds >= NANOSECONDS[unit]:
            return f"{nanoseconds / NANOSECONDS[unit]:g}{unit}"
    return f"{nanoseconds}ns"


def go_text(nanoseconds: int) -> str:
    """Write a duration as Go's ``Duration.String`` does: ``1h0m0s``, ``1.5s``, ``100µs``, ``0s``."""
    if nanoseconds < 0:
        return f"-{go_text(-nanoseconds)}"
    if nanoseconds < NANOSECONDS["s"]:
        unit = next((each for each in ("ms", "\u00b5s", "ns") if nanoseconds >= NANOSECONDS[each]), "s")
        return f"{_decimal(nanoseconds, NANOSECONDS[unit])}{unit}"
    minutes, rest = divmod(nanoseconds, NANOSECONDS["m"])
    seconds = f"{_decimal(rest, NANOSECONDS['s'])}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{seconds}" if hours else f"{minutes}m{seconds}" if minutes else seconds


def _decimal(value: int, unit: int) -> str:
    """Write a quotient without rounding and without zeros at its end."""
    whole, rest = divmod(value, unit)
    fraction = str(unit + rest)[1:].rstrip("0") if rest else ""
    return f"{whole}.{fraction}" if fraction else str(whole)
