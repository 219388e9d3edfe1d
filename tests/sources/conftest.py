"""Tests of sources may be coroutines: each runs in an event loop of its own.

Here: that hook. Not here: fixtures. Invariant: a coroutine test that does not end in some minutes fails.
"""

import asyncio
import inspect

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine test; leave the others to pytest."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: value for name, value in pyfuncitem.funcargs.items() if name in names}

    async def limited() -> None:
        async with asyncio.timeout(200):
            await pyfuncitem.obj(**arguments)

    asyncio.run(limited())
    return True
