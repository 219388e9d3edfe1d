"""Which branches of some modules a search has reached, as far as the interpreter tells at little cost.

Here: the branches of sys.monitoring (PEP 669, Python 3.12), and lines by sys.settrace before it, which costs ten times
as much, so for one input in ten. Not here: the search.
Invariant: an input that reaches nothing new costs next to nothing where sys.monitoring is: a branch that went both ways
is no longer watched.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FrameType, ModuleType
from typing import Any, Final, Self

_TOOL: Final = 3
"""A number that PEP 669 leaves to anybody."""
_ONE_IN: Final = 10


class Reached:
    """What was reached; a context manager while it watches.

    Attributes:
        places: branches, or lines, by the code that they are in.
    """

    def __init__(self, modules: Iterable[ModuleType]) -> None:
        self._codes = frozenset(code for module in modules for code in _codes(module))
        self._monitoring: Any = getattr(sys, "monitoring", None)
        self.places: set[tuple[int, int, int]] = set()
        self._numbers = {code: number for number, code in enumerate(sorted(self._codes, key=_place))}
        self._ends: dict[tuple[int, int], set[int]] = {}
        self._turn = 0

    def __enter__(self) -> Self:
        if self._monitoring is not None:
            events = self._monitoring.events
            self._monitoring.use_tool_id(_TOOL, "podgate fuzz")
            self._monitoring.register_callback(_TOOL, events.BRANCH, self._branch)
            for code in self._codes:
                self._monitoring.set_local_events(_TOOL, code, events.BRANCH)
        return self

    def __exit__(self, *_: object) -> None:
        if self._monitoring is not None:
            self._monitoring.free_tool_id(_TOOL)

    def grew(self, work: Callable[[], object]) -> bool:
        """Do something, and say whether it reached what nothing before it did."""
        before, self._turn = len(self.places), self._turn + 1
        if self._monitoring is None and self._turn % _ONE_IN == 0:
            other = sys.gettrace()
            sys.settrace(self._enter)
            try:
                work()
            finally:
                sys.settrace(other)
        else:
            work()
        return len(self.places) > before

    def _branch(self, code: CodeType, start: int, end: int) -> object:
        place = (self._numbers[code], start)
        ends = self._ends.setdefault(place, set())
        ends.add(end)
        self.places.add((*place, end))
        return self._monitoring.DISABLE if len(ends) > 1 else None

    def _enter(self, frame: FrameType, event: str, argument: object) -> Any:
        return self._line if frame.f_code in self._numbers else None

    def _line(self, frame: FrameType, event: str, argument: object) -> Any:
        self.places.add((self._numbers[frame.f_code], frame.f_lineno, 0))
        return self._line


def _place(code: CodeType) -> tuple[str, int, str]:
    return code.co_filename, code.co_firstlineno, code.co_qualname


def _codes(module: ModuleType) -> Iterator[CodeType]:
    """Give the code of every function that a module defines, methods and functions inside others too."""
    for value in list(vars(module).values()):
        for inner in (value, *(vars(value).values() if isinstance(value, type) else ())):
            code = getattr(getattr(inner, "__func__", inner), "__code__", None)
            if isinstance(code, CodeType) and code.co_filename == module.__file__:
                yield from _within(code)


def _within(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _within(constant)
