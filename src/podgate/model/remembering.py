"""remembering: a pure function that is not called again for equal arguments.

Here: memory of one call, and of some. Not here: tables, whose operators remember by themselves (model/table.py).
Invariant: what is remembered equals what would be computed, as arguments are compared by value.
"""

from collections.abc import Callable
from typing import Final, Generic, ParamSpec, TypeVar

T = TypeVar("T")
A = TypeVar("A")
P = ParamSpec("P")

SOME: Final = 64
"""Arguments whose results are remembered: many where most are equal, and few where each is another."""


class Remembered(Generic[P, T]):
    """A pure function that is called again only when an argument differs from the last call's."""

    def __init__(self, function: Callable[P, T]) -> None:
        self._function = function
        self._last: tuple[object, T] | None = None

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> T:
        given = arguments, named
        if self._last is None or self._last[0] != given:
            self._last = given, self._function(*arguments, **named)
        return self._last[1]


class RememberedSome(Generic[A, T]):
    """A pure function of one hashable argument, whose results for the ``most`` newest arguments are given again."""

    def __init__(self, function: Callable[[A], T], most: int = SOME) -> None:
        self._function = function
        self._most = most
        self._known: dict[A, T] = {}

    def __call__(self, argument: A) -> T:
        if argument not in self._known:
            if len(self._known) == self._most:
                del self._known[next(iter(self._known))]
            self._known[argument] = self._function(argument)
        return self._known[argument]
