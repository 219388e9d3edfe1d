"""remembering: a pure function that is not called again for equal arguments.

Here: memory of one call. Not here: tables, whose operators remember by themselves (model/table.py).
Invariant: what is remembered equals what would be computed, as arguments are compared by value.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Remembered(Generic[T]):
    """A pure function that is called again only when an argument differs from the last call's."""

    def __init__(self, function: Callable[..., T]) -> None:
        self._function = function
        self._last: tuple[tuple[Any, ...], T] | None = None

    def __call__(self, *arguments: Any) -> T:
        if self._last is None or self._last[0] != arguments:
            self._last = (arguments, self._function(*arguments))
        return self._last[1]
