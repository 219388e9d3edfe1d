"""This process's own figures."""

import gc
import time
from pathlib import Path

from podgate.observe.process import process_readings


def test_they_are_of_this_process(tmp_path: Path) -> None:
    gc.collect()  # what other tests left open would close in between
    found = {each.name.removeprefix("process_"): each.value for each in process_readings()}
    assert found.keys() == {
        *("cpu_seconds_total", "open_fds", "max_fds", "resident_memory_bytes", "virtual_memory_bytes"),
        "start_time_seconds",
    }
    numbers = {name: value for name, value in found.items() if isinstance(value, float)}
    assert 0 < numbers["cpu_seconds_total"] <= time.process_time()
    assert 1 << 20 < numbers["resident_memory_bytes"] < numbers["virtual_memory_bytes"]
    assert time.time() - 86_400 < numbers["start_time_seconds"] <= time.time()
    before = numbers["open_fds"]
    with (tmp_path / "one").open("w"), (tmp_path / "two").open("w"):
        (after,) = (each.value for each in process_readings() if each.name == "process_open_fds")
    assert after == before + 2


def test_without_proc_there_are_none(tmp_path: Path) -> None:
    assert list(process_readings(tmp_path)) == []


def test_a_machine_that_does_not_say_when_it_started_costs_no_other_figure(tmp_path: Path) -> None:
    (tmp_path / "self").symlink_to("/proc/self")
    (tmp_path / "stat").write_text("cpu  1 2 3\n")
    names = {each.name for each in process_readings()}
    assert {each.name for each in process_readings(tmp_path)} == names - {"process_start_time_seconds"}
