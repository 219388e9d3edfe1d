"""A minute of mixed load on the real process: the soak, shortened."""

import random
from pathlib import Path

import pytest

from tools.soak_metadata import soak


@pytest.mark.kernel
@pytest.mark.slow
def test_a_minute_of_everything_at_once(tmp_path: Path) -> None:
    assert soak(tmp_path, 60.0, random.Random(1)) == []
