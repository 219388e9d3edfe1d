"""A fresh network namespace for each test of faults."""

from collections.abc import Iterator

import pytest

from tests.support.netns import NetNamespace, netns


@pytest.fixture
def node() -> Iterator[NetNamespace]:
    with netns() as namespace:
        yield namespace
