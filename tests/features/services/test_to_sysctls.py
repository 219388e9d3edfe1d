"""Parameters of the kernel that options ask for."""

from typing import Any

import pytest

from podgate.commandline.options import settings_from
from podgate.features.services.settings import Settings
from podgate.features.services.to_sysctls import (
    CLOSE_WAIT,
    ESTABLISHED,
    LIBERAL,
    MAX,
    NAMES,
    UDP,
    UDP_STREAM,
    sysctls_of,
)

USUAL = {MAX: 131072, ESTABLISHED: 86400, CLOSE_WAIT: 3600}

CASES: dict[str, tuple[dict[str, Any], int, dict[str, int]]] = {
    "few processors": ({}, 2, USUAL),
    "many processors": ({}, 64, {**USUAL, MAX: 64 * 32768}),
    "0 leaves the limit": ({"conntrack_max_per_core": 0}, 2, {ESTABLISHED: 86400, CLOSE_WAIT: 3600}),
    "UDP": (
        {"conntrack_udp_timeout": 30.0, "conntrack_udp_timeout_stream": 0.4},
        2,
        {**USUAL, UDP: 30, UDP_STREAM: 1},
    ),
    "liberal": ({"conntrack_tcp_be_liberal": True}, 2, {**USUAL, LIBERAL: 1}),
}


@pytest.mark.parametrize(("options", "processors", "expected"), CASES.values(), ids=CASES)
def test_parameters(options: dict[str, Any], processors: int, expected: dict[str, int]) -> None:
    found = sysctls_of(settings_from(Settings, options), processors)
    assert dict(found.values) == expected
    assert set(found.values) <= set(NAMES)
    assert found.at_least == {MAX}
