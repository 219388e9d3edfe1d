"""redact: a JSON answer without a secret field, at any depth. Pure.

Here: OpenStack's ``admin_pass`` in ``meta_data.json``. Not here: which answers (profiles.py), reading them.
Invariant: an answer that is not understood gives None, and the client gets a 502 rather than what could not be checked.
"""

from typing import Any, Final

import msgspec

MAX_ANSWER: Final = 512 * 1024
"""Bytes of the longest answer that is looked through."""


def without_field(body: bytes, field: str) -> bytes | None:
    """Give a JSON text without the fields of a name, in any case of letters."""
    if len(body) > MAX_ANSWER:
        return None
    try:
        value = msgspec.json.decode(body)
        return msgspec.json.encode(_without(value, field.lower()))
    except (msgspec.DecodeError, RecursionError):
        return None


def _without(value: Any, field: str) -> Any:
    if isinstance(value, dict):
        return {key: _without(inner, field) for key, inner in value.items() if key.lower() != field}
    if isinstance(value, list):
        return [_without(inner, field) for inner in value]
    return value
