"""An asyncio loop whose clock jumps: waits cost nothing and happen in the right order.

Here: the loop and runners. Not here: waiting for other processes: what they do takes real time, and none passes here.
Invariant: time moves only when every task waits and no descriptor is ready; waiting for ever with nothing to come is an
error, not a hang. What this thread itself causes, as an inotify event of its own writing, is ready at once.
"""

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, Final, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


SOCKETS: Final = 0.03
"""Seconds of real time that a packet on loopback may take: a busy kernel hands it on a little later."""


class _Skipping(selectors.SelectSelector):
    def __init__(self, grace: float) -> None:
        super().__init__()
        self.now = 1000.0
        self.jumps = 0
        self._grace = grace

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(self._grace if timeout != 0 else 0)
        if ready:
            return ready
        if timeout is None:
            raise RuntimeError("every task waits for something that can no longer happen")
        self.now += timeout
        self.jumps += timeout > 0
        return ready


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, grace: float = 0.0) -> None:
        self._skipping = _Skipping(grace)
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.now

    @property
    def jumps(self) -> int:
        return self._skipping.jumps


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine as asyncio.run does, in virtual time."""
    with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
        return runner.run(main)


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Make a plain test of a coroutine function, run in virtual time."""

    @functools.wraps(test)
    def run(*words: P.args, **named: P.kwargs) -> None:
        run_virtual(test(*words, **named))

    return run


def in_virtual_time_over_sockets(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Do what ``in_virtual_time`` does for a test both of whose ends are in its loop, with loopback between them."""

    @functools.wraps(test)
    def run(*words: P.args, **named: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=lambda: _VirtualLoop(SOCKETS)) as runner:
            runner.run(test(*words, **named))

    return run


def now() -> float:
    """Give the running loop's time, in seconds."""
    return asyncio.get_running_loop().time()


def jumps() -> int:
    """Say how often the running virtual loop slept until a timer: what a process would be woken for."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, _VirtualLoop)
    return loop.jumps
