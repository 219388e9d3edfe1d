"""Descriptors and the event loop.

Here: waiting for a descriptor to become readable. Not here: reading it.
Invariant: the wait owns a duplicate, so several tasks may wait for one file, and cancelling one leaves nothing behind.
"""

import asyncio
import os


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
