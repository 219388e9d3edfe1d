"""A pure function is called again only for other arguments."""

from podgate.model.remembering import SOME, Remembered, RememberedSome


def test_equal_arguments_give_the_same_object_and_others_are_computed() -> None:
    listed = Remembered(lambda first, last: list(range(first, last)))
    once = listed(1, 3)
    assert listed(1, 3) is once
    assert listed(1, 4) == [1, 2, 3]
    assert listed(1, 3) == once
    assert listed(1, 3) is not once


def test_of_many_arguments_the_newest_are_remembered() -> None:
    listed: RememberedSome[int, list[int]] = RememberedSome(lambda number: [number])
    once = [listed(number) for number in range(SOME)]
    assert all(listed(number) is once[number] for number in range(SOME))
    assert listed(SOME) == [SOME]
    assert listed(SOME - 1) is once[-1]
    assert listed(0) == [0]
    assert listed(0) is not once[0]
