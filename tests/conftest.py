"""What holds for every test: hypothesis profiles, what needs root, and that nothing is left behind.

Here: settings and checks of the whole session. Not here: fixtures of one area; they stand beside their tests.
Invariant: a test is skipped for one reason only, that this process is not root; a machine that lacks something else
fails it. The exception are other projects' clients (tests/clients), where no registry or no Node.js is.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# "ci": the same examples on each run, so that a landing never fails by chance. "fuzz": for ./dev fuzz, until stopped.
settings.register_profile("ci", derandomize=True, deadline=None, max_examples=50, print_blob=True)
settings.register_profile(
    "fuzz",
    deadline=None,
    max_examples=int(os.environ.get("PODGATE_FUZZ_EXAMPLES", "5000")),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile(os.environ.get("PODGATE_TEST_PROFILE", "ci"))

NAMESPACES = Path("/run/netns")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs root where there is none."""
    if os.geteuid() == 0:
        return
    reason = pytest.mark.skip(reason="needs root for network namespaces; ./dev test asks sudo for it")
    for item in items:
        if any(item.get_closest_marker(name) for name in ("kernel", "lab", "cluster")):
            item.add_marker(reason)


def own_namespaces() -> set[str]:
    """Give the named network namespaces that this test process made: tests name them pg-PID-RANDOM."""
    if not NAMESPACES.is_dir():
        return set()
    return {path.name for path in NAMESPACES.iterdir() if path.name.startswith(f"pg-{os.getpid()}-")}


@pytest.fixture(scope="session", autouse=True)
def _own_lock_of_iptables(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Give this test process a lock of its own: iptables-legacy's is one file for all network namespaces.

    Otherwise a test waits for what another worker writes, and gives up when that takes long.
    """
    os.environ["XTABLES_LOCKFILE"] = str(tmp_path_factory.mktemp("iptables") / "xtables.lock")


@pytest.fixture(scope="session", autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    """Fail the session's last test when a network namespace of this process is still there."""
    yield
    left = sorted(own_namespaces())
    assert not left, f"tests left network namespaces behind: {', '.join(left)}; clean up in a finally or a fixture"
