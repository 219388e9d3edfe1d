"""Constant: a source of one value.

Here: the source. Not here: values.
Invariant: it gives its value once and then waits for ever, as a source that never changes.
"""

from collections.abc import AsyncIterator
from typing import Generic, TypeVar

from podgate.linux.waiting import for_ever

T = TypeVar("T")


class Constant(Generic[T]):
    """A source of one value that never changes."""

    def __init__(self, value: T) -> None:
        self._value = value

    async def values(self) -> AsyncIterator[T]:
        """Give the value, then wait for ever."""
        yield self._value
        await for_ever()
