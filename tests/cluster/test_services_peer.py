"""Clusters by chance, served by kube-proxy and by podgate: each packet goes the same way, or it is known why not.

Here: a few comparisons, the same ones on each run. Not here: the search for more (./dev fuzz services-peer), packets
on a wire (test_kube_proxy.py).
Invariant: all three answers are compared, in both modes: kube-proxy's rules, podgate's rules, ``explain``.
"""

from pathlib import Path

import pytest

from tests.fuzz.services_peer import Size, search
from tests.support.cluster import ControlPlane

pytestmark = [pytest.mark.slow, pytest.mark.kernel]

SEED = 4
SIZE = Size(services=30, rounds=2)


def test_random_clusters_are_served_as_kube_proxy_does(plane: ControlPlane, tmp_path: Path) -> None:
    found = search(plane, tmp_path, SEED, SIZE, lambda sessions: sessions < 2)
    assert found.findings == []
    assert found.decisions > 2000
