"""Defaults under the old name: what is given goes before them."""

from typing import Any

import pytest

from podgate.features.services.proxy_unasked import with_unasked
from podgate.features.services.settings import Settings


@pytest.mark.parametrize(
    ("given", "period", "oom"),
    [
        ({}, 1.0, -999),
        ({"min_sync_period": 0.0}, 0.0, -999),
        ({"oom_score_adj": 5, "min_sync_period": 2.0}, 2.0, 5),
    ],
)
def test_what_is_given_goes_before_the_old_program_s_defaults(given: dict[str, Any], period: float, oom: int) -> None:
    settings = with_unasked(Settings(**given), given)
    assert (settings.min_sync_period, settings.oom_score_adj) == (period, oom)
