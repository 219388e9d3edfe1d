"""The cell: swapped in one step, and never for an equal value."""

import asyncio

import pytest

from podgate.model.frozen import Frozen
from podgate.targets.cell.apply import Cell, CellTarget
from podgate.targets.cell.diff import diff
from podgate.targets.cell.render import listing
from podgate.targets.cell.state import State


class Policy(Frozen, frozen=True):
    rules: tuple[str, ...] = ()


ONE = State(Policy(("a",)), "1 rule")
TWO = State(Policy(("a", "b")), "2 rules")


def test_a_reader_keeps_the_value_that_it_took() -> None:
    cell = Cell()

    async def swaps() -> object:
        target = CellTarget(cell)
        await target.apply(target.diff(await target.read(), ONE))
        taken = cell.value
        await target.apply(target.diff(await target.read(), TWO))
        assert await target.read() == TWO
        return taken

    assert asyncio.run(swaps()) is ONE.value
    assert cell.value is TWO.value


def test_an_equal_value_is_no_plan_and_the_held_one_stays_the_same_object() -> None:
    plan = diff(ONE, State(Policy(("a",)), "said otherwise"))
    assert not plan
    assert str(plan) == ""


def test_a_plan_shows_both_sides_and_never_the_value() -> None:
    assert str(diff(State(), ONE)) == "empty -> 1 rule"
    assert str(diff(ONE, TWO)) == "1 rule -> 2 rules"
    assert listing(State(Policy(("secret",)))) == "a value without a description"
    assert list(diff(ONE, TWO).touches()) == []
    assert diff(ONE, TWO).without([]) == diff(ONE, TWO)


def test_the_target_gives_no_signal() -> None:
    async def first() -> None:
        async with asyncio.timeout(0.01):
            async for _ in CellTarget(Cell()).signals():
                raise AssertionError

    with pytest.raises(TimeoutError):
        asyncio.run(first())
