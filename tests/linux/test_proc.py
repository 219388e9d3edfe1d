"""What /proc shows of processes: this one, a child, and one that has ended."""

import os
import subprocess
from pathlib import Path

import pytest

from podgate.linux import proc


def test_a_process_is_shown_until_it_has_ended() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            assert {os.getpid(), child.pid} <= set(proc.pids())
            assert proc.network_of(child.pid) == proc.network_of(proc.SELF)
        finally:
            child.kill()
    assert child.pid not in proc.pids()
    for question in (proc.name_of, proc.network_of):
        with pytest.raises(OSError, match="No such"):
            question(child.pid)


def test_processes_come_in_the_order_of_their_numbers_and_nothing_else_does(tmp_path: Path) -> None:
    for name in ("10", "9", "self", "thread-self", "net"):
        (tmp_path / name).mkdir()
    assert proc.pids(str(tmp_path)) == [9, 10]


def test_a_name_is_given_without_its_line_end_and_whatever_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "comm").write_bytes(b"kube-\xff proxy \n")
    assert proc.name_of(7, str(tmp_path)) == "kube-\N{REPLACEMENT CHARACTER} proxy "


def test_a_network_is_named_as_the_kernel_names_it(tmp_path: Path) -> None:
    (tmp_path / "7" / "ns").mkdir(parents=True)
    (tmp_path / "7" / "ns" / "net").symlink_to("net:[4026531840]")
    assert proc.network_of(7, str(tmp_path)) == "net:[4026531840]"


@pytest.mark.parametrize(
    ("rights", "may"), [("000001ffffffffff", True), ("000001fffeffffff", False), ("0000000001000000", True)]
)
def test_who_may_be_ended_less_readily_has_cap_sys_resource(rights: str, may: bool, tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "status").write_text(f"Name:\tx\nCapPrm:\t{rights}\nCapEff:\t{rights}\n")
    assert proc.may_lower_oom(str(tmp_path)) is may
