"""Converting: plain API JSON becomes the struct of its kind, and what does not fit becomes a Problem. Pure.

Here: null as an API server treats it, msgspec's complaints in our words. Not here: where JSON comes from (sources/).
Invariant: a complaint names the field by its path inside the object, and what stands there instead.
"""

import re
from typing import Any, Final

from podgate.model.frozen import ObjectRef
from podgate.model.problems import Problem

_WORDS: Final = {"str": "text", "int": "a whole number", "bool": "true or false", "object": "a map",
                 "array": "a list", "float": "a number"}  # fmt: skip
_TYPES: Final = re.compile(rf"`((?:(?:{'|'.join(_WORDS)}|null)(?: \| )?)+)`")


def without_nulls(value: Any) -> Any:
    """Do as an API server does: null is the same as absent. Encoders of Go programs write it for empty lists."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def worded(complaint: str) -> tuple[str, str]:
    """Give the field that msgspec complains of, and the complaint in our words.

    ``Expected `str`, got `int` - at `$.spec.podCIDR``` is ``spec.podCIDR`` and ``expected text, got a whole number``.
    """
    what, _, path = complaint.partition(" - at `")
    what = _TYPES.sub(_in_words, what)
    # Keys of maps are shown as [...]: what is before them is as near as one gets.
    field = path.rstrip("`").removeprefix("$").removeprefix(".").split("[...]")[0]
    return field, f"{what[:1].lower()}{what[1:]}"


def _in_words(types: re.Match[str]) -> str:
    return " or ".join(_WORDS[each] for each in types[1].split(" | ") if each in _WORDS) or "null"


def invalid(ref: ObjectRef, complaint: str) -> Problem:
    """Make a problem of msgspec's complaint about an object."""
    field, message = worded(complaint)
    return Problem(ref, "error", "Invalid", field, f"{message}: correct it")
