"""Waiting in tests: ask again and again until something is true, and fail at a deadline.

Here: the two polls. Not here: sleeping for a fixed time, which is either too short or too long.
Invariant: a poll ends as soon as its condition holds, and fails with the condition's last value otherwise.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_PAUSE = threading.Event()


def poll(condition: Callable[[], T], timeout: float = 5.0) -> T:
    """Call until the result is true, and give it; AssertionError after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"still {found!r} after {timeout} s")
        _PAUSE.wait(0.005)
    return found


async def poll_async(condition: Callable[[], T], timeout: float = 5.0) -> T:  # noqa: ASYNC109 - a deadline is the point
    """Call until the result is true, letting other tasks run in between; AssertionError after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"still {found!r} after {timeout} s")
        await asyncio.sleep(0.005)
    return found
