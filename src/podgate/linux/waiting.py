"""Waiting in the event loop: for a descriptor, or until cancelled.

Here: the waits. Not here: reading what became readable.
Invariant: a wait for a descriptor owns a duplicate, so several tasks may wait for one file, and cancelling one leaves
nothing behind.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any


async def for_ever() -> None:
    """Wait until cancelled."""
    await asyncio.get_running_loop().create_future()


async def silent() -> AsyncIterator[Any]:
    """Give nothing until cancelled: the signals of a target that nobody else changes."""
    await for_ever()
    yield  # what makes this a generator


async def readable(descriptor: int) -> None:
    """Wait until a descriptor is readable; a pidfd is when its process has ended."""
    loop = asyncio.get_running_loop()
    # The event loop's selector knows one waiter per descriptor number.
    watched = os.dup(descriptor)
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(watched, _wake, ready)
    try:
        await ready
    finally:
        loop.remove_reader(watched)
        os.close(watched)


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
