"""Tests that are coroutines.

Here: a decorator that runs each in an event loop of its own. Not here: virtual time (virtual_time.py); fixtures, which
stay plain functions.
Invariant: a task that a test left running fails nothing silently: asyncio.run cancels it and raises what it raised.
"""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

P = ParamSpec("P")


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Make a plain test of a coroutine function."""

    @functools.wraps(test)
    def run(*words: P.args, **named: P.kwargs) -> None:
        asyncio.run(test(*words, **named))

    return run
