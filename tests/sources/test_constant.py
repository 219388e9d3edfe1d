"""A source of one value gives it once and never ends."""

import asyncio

import pytest

from podgate.sources.constant import Constant


async def test_it_gives_its_value_once_and_waits() -> None:
    values = Constant("x").values()
    assert await anext(values) == "x"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await anext(values)
