"""Fixtures of tests in the real kernel: fresh network namespaces, and targets that are closed in the end.

Here: fixtures only. Not here: states and helpers (tests/support).
Invariant: whatever a test opened is closed when it ends, also when it failed.
"""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from podgate.model.machine import Family
from podgate.targets.nftables.apply import NftablesTarget
from tests.support.netns import NetNamespace, netns
from tests.support.nftables_states import TABLE
from tests.support.nftables_target import OpenTarget


@pytest.fixture(scope="module")
def shared() -> Iterator[NetNamespace]:
    with netns() as namespace:
        yield namespace


@pytest.fixture
def open_target() -> Iterator[OpenTarget]:
    with ExitStack() as stack:

        def opened(
            namespace: NetNamespace, family: Family = "ip", program: str = "nft", buffer_bytes: int = 1 << 20
        ) -> NftablesTarget:
            target = NftablesTarget(
                family, TABLE, program=program, namespace=namespace.descriptor, buffer_bytes=buffer_bytes
            )
            stack.callback(target.close)
            return target

        yield opened


@pytest.fixture
def namespace() -> Iterator[NetNamespace]:
    with netns() as fresh:
        yield fresh
