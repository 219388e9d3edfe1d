"""A lab whose API server answers badly: what it wants to write arrives all the same, and Pods do not notice."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.chaos_proxy import ChaosProxy, Do, Fault, in_thread
from tests.support.cluster import ControlPlane
from tests.support.kubeconfigs import through
from tests.support.lab import TestLab, lab
from tests.support.poll import poll
from tests.support.real_api import RealApi

NODE = """\
apiVersion: v1
kind: Node
metadata: {name: bad-1}
spec: {podCIDRs: [10.22.1.0/24]}
status: {addresses: [{type: InternalIP, address: 172.18.0.31}]}
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: bad-days}
spec:
  terminationGracePeriodSeconds: 1
  nodeSelector: {kubernetes.io/hostname: bad-1}
  containers: [{name: echo, image: echo}]
"""


def on_a_bad_day(plane: ControlPlane, tmp_path: Path, day: Callable[[TestLab, ChaosProxy, Do], None]) -> None:
    """Run a lab behind a proxy that passes everything on, until the day brings its faults."""
    upstream = (plane.server, RealApi(plane).upstream)
    with in_thread(*upstream) as (proxy, do), lab(NODE, name="bad", kubeconfig=through(proxy, plane, tmp_path)) as made:
        day(made, proxy, do)


FAULTS = {
    "a binding is refused, then slowed": [
        Fault(500, times=2, asked=lambda line: "/binding" in line),
        Fault(429, "TooManyRequests", retry_after=1, asked=lambda line: "/binding" in line),
    ],
    "a status is refused": [Fault(500, times=3, asked=lambda line: "/status" in line)],
    "answers to writes are lost": [
        Fault(after=0, asked=lambda line: "/binding" in line),
        Fault(after=0, times=3, asked=lambda line: "/status" in line),
    ],
    "tokens are refused": [Fault(503, "ServiceUnavailable", times=2, asked=lambda line: "/token" in line)],
    "watches break and expire": [
        Fault(after=200, times=4, asked=lambda line: "watch=true" in line),
        Fault(410, "Expired", times=2, asked=lambda line: "watch=true" in line and "resourceVersion=" in line),
    ],
}


@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
def test_a_pod_comes_up_and_goes_all_the_same(plane: ControlPlane, tmp_path: Path, faults: list[Fault]) -> None:
    def day(running: TestLab, proxy: ChaosProxy, do: Do) -> None:
        do(lambda: proxy.strike(*faults))
        do(proxy.cut_all)
        running.apply(POD % "echo")
        assert running.execute("bad-days/echo", "hostname").strip() == "echo"
        running.run("delete", "-n", "bad-days", "pod/echo")
        assert plane.get("/api/v1/namespaces/bad-days/pods/echo")[0] == 404
        poll(lambda: not proxy.pending)  # All of it has happened.

    on_a_bad_day(plane, tmp_path, day)


def test_a_pod_that_is_deleted_while_the_api_is_away_ends_when_it_is_back(plane: ControlPlane, tmp_path: Path) -> None:
    def day(running: TestLab, proxy: ChaosProxy, do: Do) -> None:
        running.apply(POD % "gone", POD % "stays")
        proxy.down = True
        do(proxy.cut_all)
        assert plane.request("DELETE", "/api/v1/namespaces/bad-days/pods/gone")[0] == 200
        assert running.execute("bad-days/gone", "hostname").strip() == "gone"  # It cannot know yet.
        proxy.down = False
        poll(lambda: plane.get("/api/v1/namespaces/bad-days/pods/gone")[0] == 404)
        assert running.execute("bad-days/stays", "hostname").strip() == "stays"

    on_a_bad_day(plane, tmp_path, day)
