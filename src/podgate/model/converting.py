"""Converting: plain API JSON becomes the struct of its kind, and what does not fit becomes a Problem. Pure.

Here: null as an API server treats it, msgspec's complaints in our words. Not here: where JSON comes from (sources/).
Invariant: a complaint names the field by its path inside the object, and what stands there instead.
"""

import re
from typing import Any, Final

from podgate.model.frozen import ObjectRef
from podgate.model.problems import Problem

_WHERE: Final = re.compile(r"(?P<what>.*?)(?: - at `(?P<path>.*)`)?", re.DOTALL)
_WORDS: Final = {"`str`": "text", "`int`": "a whole number", "`bool`": "true or false", "`object`": "a map",
                 "`array`": "a list", "`float`": "a number"}  # fmt: skip


def without_nulls(value: Any) -> Any:
    """Do as an API server does: null is the same as absent. Encoders of Go programs write it for empty lists."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def invalid(ref: ObjectRef, complaint: str) -> Problem:
    """Put msgspec's complaint, ``Expected `str`, got `int` - at `$.spec.podCIDR```, into our form."""
    found = _WHERE.fullmatch(complaint)
    what, path = (found["what"], found["path"] or "$") if found else (complaint, "$")
    for word, ours in _WORDS.items():
        what = what.replace(word, ours)
    # Keys of maps are shown as [...]: what is before them is as near as one gets.
    field = path.removeprefix("$").removeprefix(".").split("[...]")[0]
    message = f"{what[:1].lower()}{what[1:]}: correct it"
    return Problem(ref, "error", "Invalid", field, message)
