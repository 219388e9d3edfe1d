"""The limit of open files, in a process of its own."""

import subprocess
import sys

import pytest

ASK = "import resource; from podgate.linux.descriptors import raised_limit; print(raised_limit(), {})"
SOFT = "resource.getrlimit(resource.RLIMIT_NOFILE)[0]"


@pytest.mark.parametrize(("soft", "hard"), [(64, 128), (128, 128)])
def test_the_soft_limit_is_raised_to_the_hard_one(soft: int, hard: int) -> None:
    words = ["prlimit", f"--nofile={soft}:{hard}", sys.executable, "-c", ASK.format(SOFT)]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == f"{hard} {hard}\n"
