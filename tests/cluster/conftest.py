"""Tests against a real control plane: one per test process, started when the first test needs it.

Here: the session's control plane, the marker. Not here: how it is built and started (tests/support).
Invariant: each test file uses a lab and namespaces of its own names, and each test begins with what it is about: their
order does not matter, nor which of them run in one process.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import ControlPlane, control_plane
from tests.support.rights import audited

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark these tests and put them last; their time limit leaves out the control plane, which may be built yet."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.cluster)
            item.add_marker(pytest.mark.timeout(300, func_only=True))
    items.sort(key=lambda item: item.path.is_relative_to(HERE))


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("plane"), audited()) as started:
        yield started
