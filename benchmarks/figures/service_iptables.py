"""Figures of the service proxy with iptables: both programs, and beside kube-proxy in iptables mode.

Here: loading and single changes (service_child.py), and the same with a real API (service_cluster.py); how legacy
iptables is chosen. Not here: nftables (services.py, service_rival.py), heals (service_heals.py).
Invariant: of each pair both use the same program of iptables.
"""

from functools import partial
from pathlib import Path

from benchmarks.figures.service_cluster import Found, Proxy, api, fill, followed, list_seconds, timestamps
from benchmarks.figures.service_rival import start_kube_proxy, start_podgate, versus, versus_rows
from benchmarks.figures.services import change_row, load_row, measured, restart_row
from benchmarks.support import Row
from podgate.features.services.backends import BINARIES
from podgate.targets.iptables.state import Binary
from tests.support.agent import Agent
from tests.support.iptables_programs import path_with
from tests.support.netns import NetNamespace


def iptables(folder: Path, quick: bool) -> list[Row]:
    """Measure both programs by themselves, then beside kube-proxy."""
    rows: list[Row] = []
    for binary in BINARIES:
        for size in (300,) if quick else (10_000, 30_000):
            rows += _alone(folder, binary, size, 4 if quick else 20)
    size = 200 if quick else 10_000
    with api(folder) as plane:
        fill(plane, 0, size)
        listed = list_seconds(plane)
        for number, binary in enumerate(BINARIES):
            theirs = followed(plane, folder, _kube_proxy(binary, folder, 2 * number + 1), size, 2 if quick else 7)
            ours = followed(plane, folder, _podgate(binary, 2 * number + 2), size, 4 if quick else 20)
            rows += _beside(f"{size:,} x 2, iptables-{binary}, from the API:", ours, theirs, listed)
    return rows


def _alone(folder: Path, binary: Binary, size: int, changes: int) -> list[Row]:
    figure = f"{size:,} x 2, iptables-{binary}:"
    found = measured(folder, size, 2, backend=binary, changes=changes, restart=True)
    return [
        load_row(figure, "", found, "rule"),
        change_row(f"{figure} one endpoint replaced, event to kernel", "", found["replaced"]),
        change_row(f"{figure} one endpoint added or removed, event to kernel", "", found["resized"]),
        restart_row(figure, "", found["restart"]),
    ]


def _beside(figure: str, ours: Found, theirs: Found, listed: float) -> list[Row]:
    lists = f"the API's own lists: {listed:.2f} s"
    load = Row(f"{figure} exec to last rule", "", f"{ours.loaded:.2f} s", lists, versus(theirs.loaded, ours.loaded))
    return [load, *versus_rows(figure, ours, theirs, "")]


def _kube_proxy(binary: Binary, folder: Path, version: int) -> Proxy:
    path = None if binary == "nft" else path_with(binary, folder / "legacy")
    return Proxy(
        f"kube-proxy, iptables-{binary}",
        partial(start_kube_proxy, "iptables", path=path),
        partial(timestamps, rest=0.5),
        partial(_rules, binary),
        version,
    )


def _podgate(binary: Binary, version: int) -> Proxy:
    return Proxy(
        f"podgate, iptables-{binary}",
        partial(_start_podgate, binary),
        partial(timestamps, rest=0.2),
        partial(_rules, binary),
        version,
    )


def _start_podgate(binary: Binary, node: NetNamespace, kubeconfig: Path, folder: Path) -> Agent:
    if binary == "legacy":
        # By this chain a kubelet says which of the two programs it uses.
        node.run("iptables-legacy", "-t", "mangle", "-N", "KUBE-IPTABLES-HINT")
    return start_podgate("iptables", node, kubeconfig, folder)


def _rules(binary: Binary, node: NetNamespace) -> str:
    return node.run(f"iptables-{binary}-save", "-t", "nat")
