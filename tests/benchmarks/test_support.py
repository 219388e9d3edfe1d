"""The arithmetic of benchmarks: percentiles, turns, ratios, columns."""

import os
from pathlib import Path

import pytest

from benchmarks.support import Row, counters, interleaved, percentile, table, versus
from tests.support.volume import MountedFile


@pytest.mark.parametrize(
    ("values", "share", "found"),
    [
        ([3.0], 0.99, 3.0),
        ([1.0, 2.0, 3.0, 4.0], 0.5, 2.0),
        ([float(number) for number in range(1, 101)], 0.99, 99.0),
        ([float(number) for number in range(1, 1001)], 0.99, 990.0),
        ([5.0, 1.0], 1.0, 5.0),
    ],
)
def test_a_percentile_is_a_value_that_was_measured(values: list[float], share: float, found: float) -> None:
    assert percentile(values, share) == found


def test_contestants_take_turns_and_the_first_turn_is_not_counted() -> None:
    turns: list[str] = []

    def contestant(name: str) -> float:
        turns.append(name)
        return float(len(turns))

    found = interleaved(2, ours=lambda: contestant("ours"), theirs=lambda: contestant("theirs"))
    assert turns == ["ours", "theirs"] * 3
    assert found == {"ours": [3.0, 5.0], "theirs": [4.0, 6.0]}


def test_a_ratio_is_one_of_medians() -> None:
    row = versus("load", "<= 1.3", [0.2, 0.1, 0.9], [0.4, 0.1, 0.1], "nft -f")
    assert row == Row("load", "<= 1.3", "200 ms", "100 ms - 900 ms", "nft -f 100 ms: ratio 2.00")


def test_rows_are_laid_out_in_columns() -> None:
    shown = table([Row("a", "1", "2"), Row("long name", "", "3", "x", "y")]).splitlines()
    assert shown[0].split() == ["figure", "wanted", "measured", "min", "-", "max", "reference"]
    assert [line.index(value) for line, value in zip(shown[2:], "23", strict=True)] == [shown[0].index("measured")] * 2


def test_each_form_of_an_edit_changes_what_the_path_shows(tmp_path: Path) -> None:
    volume = MountedFile(tmp_path / "volume", "first")
    assert volume.path.read_text() == "first"
    for _ in range(2):
        for form, edit in volume.forms.items():
            edit(form)
            assert volume.path.read_text() == form
    hidden = sorted(path.name for path in (tmp_path / "volume").iterdir() if path.name != "ip-masq-agent")
    assert hidden == ["..3", "..data"], "old folders are removed, as kubelet does"


@pytest.mark.kernel
def test_what_a_process_did_is_the_difference_of_two_counts(tmp_path: Path) -> None:
    before = counters(os.getpid())
    (tmp_path / "file").write_bytes(b"x" * 5000)
    done = counters(os.getpid()).since(before)
    assert done.writes >= 1
    assert done.written >= 5000
    assert done.children == 0
