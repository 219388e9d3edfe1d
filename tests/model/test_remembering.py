"""Remembered: a pure function is called again only for other arguments."""

from podgate.model.remembering import Remembered


def test_equal_arguments_give_the_same_object_and_others_are_computed() -> None:
    listed = Remembered(lambda first, last: list(range(first, last)))
    once = listed(1, 3)
    assert listed(1, 3) is once
    assert listed(1, 4) == [1, 2, 3]
    assert listed(1, 3) == once
    assert listed(1, 3) is not once
