"""An asyncio loop whose clock jumps: waits cost nothing and happen in the right order.

Here: the loop and a runner. Not here: real sockets (they work, but nothing advances while they are waited for).
Invariant: time moves only when every task waits; waiting for ever with nothing to come is an error, not a hang.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Skipping(selectors.SelectSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready:
            return ready
        if timeout is None:
            raise RuntimeError("every task waits for something that can no longer happen")
        self.now += timeout
        return ready


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.now


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine as asyncio.run does, in virtual time."""
    with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
        return runner.run(main)
