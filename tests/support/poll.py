"""Waiting in tests: ask again and again until something is true, and fail at a deadline.

Here: polls that fail, one that says what came of it, and one for coroutines. Not here: sleeping for a fixed time,
which is either too short or too long.
Invariant: a poll ends as soon as its condition holds. Deadlines are for what never comes, not for what comes late: a
test that is right on an idle machine is right on a busy one.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_PAUSE = threading.Event()


def happens(condition: Callable[[], T], seconds: float, pause: float = 0.005) -> T:
    """Call until the result is true, or for ``seconds``; give the last result."""
    deadline = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < deadline:
        _PAUSE.wait(pause)
    return found


def poll(condition: Callable[[], T], timeout: float = 60.0) -> T:
    """Call until the result is true, and give it; AssertionError after ``timeout`` seconds."""
    found = happens(condition, timeout)
    if not found:
        raise AssertionError(f"still {found!r} after {timeout} s")
    return found


async def poll_async(condition: Callable[[], T], timeout: float = 60.0) -> T:  # noqa: ASYNC109 - a deadline is the point
    """Call until the result is true, letting other tasks run in between; AssertionError after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"still {found!r} after {timeout} s")
        await asyncio.sleep(0.005)
    return found
