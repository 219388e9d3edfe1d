"""The signals of a target while something happens to it.

Here: watching. Not here: what must be seen; each target's tests say so.
Invariant: the watch has begun before the body does, and has ended when it is left.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from podgate.joints import Signal, Target


@asynccontextmanager
async def signals_of(target: Target[Any, Any]) -> AsyncIterator[list[Signal]]:
    """Give the signals, a list that grows as they come."""
    seen: list[Signal] = []

    async def watch() -> None:
        async for signal in target.signals():
            seen.append(signal)  # noqa: PERF401 - the body looks at the list while it grows

    async with asyncio.TaskGroup() as group:
        task = group.create_task(watch())
        await asyncio.sleep(0)
        yield seen
        task.cancel()
