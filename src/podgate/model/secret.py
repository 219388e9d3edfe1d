"""Secret: bytes that never show themselves.

Here: the wrapper. Not here: where secrets come from or go to.
Invariant: no way of printing, formatting or comparing a Secret shows its bytes; only ``reveal()`` does.
"""

import hashlib
import hmac


class Secret:
    """Bytes that show as a short digest. Call ``reveal()`` in apply modules and servers only."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        self._value = value

    def reveal(self) -> bytes:
        """Give the bytes themselves."""
        return self._value

    def digest(self) -> str:
        """Give eight hexadecimal digits of the SHA-256, enough to tell two values apart."""
        return hashlib.sha256(self._value).hexdigest()[:8]

    def __repr__(self) -> str:
        return f"Secret(sha256:{self.digest()})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._value, other._value)

    def __hash__(self) -> int:
        return hash(self._value)

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a Secret is not pickled: reveal() it where it is needed")
