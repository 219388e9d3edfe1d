"""Figures of the service proxy with a real API, beside kube-proxy in nftables mode: both as users start them.

Here: which of the two and how it is started, rows. Not here: the API, one proxy from start to end, how it is watched
(service_cluster.py); iptables mode (service_iptables.py).
Invariant: a ratio is one of the same objects of the same API, and both sides are said.
"""

import json
import statistics
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.figures.service_cluster import (
    CHURN,
    Churned,
    Found,
    Proxy,
    api,
    fill,
    followed,
    list_seconds,
    transactions,
)
from benchmarks.figures.service_objects import PODS
from benchmarks.figures.services import LOADED, change_row, measured
from benchmarks.support import Row, installed, launch, milliseconds, percentile
from podgate.features.services.to_nftables import TABLE
from tests.support.agent import Agent
from tests.support.controlplane import build
from tests.support.kube_proxy import configuration
from tests.support.netns import NetNamespace


def start_kube_proxy(mode: str, node: NetNamespace, kubeconfig: Path, folder: Path, path: str | None = None) -> Agent:
    """Start kube-proxy in a mode; ``path``: where it looks for programs, as $PATH."""
    # No pass that nothing asked for, so that each one is that of a change.
    period = {"syncPeriod": "1h", "minSyncPeriod": "0.1s"}
    config = configuration("kube-proxy", mode, kubeconfig, clusterCIDR=PODS, iptables=period, nftables=period)
    (file := folder / "kube-proxy.json").write_text(json.dumps(config))
    environ = installed() if path is None else {**installed(), "PATH": path}
    (log := folder / "kube-proxy.log").unlink(missing_ok=True)
    return Agent.start(node, [str(build(("kube-proxy",)) / "kube-proxy"), "--config", str(file)], log, environ)


def start_podgate(backend: str, node: NetNamespace, kubeconfig: Path, folder: Path) -> Agent:
    """Start podgate with a back end."""
    command = ["services", "run", "--kubeconfig", str(kubeconfig), "--cluster-cidr", PODS, "--node-name", "podgate"]
    command += ["--backend", backend, "--sync-period", "3600"]
    command += ["--state-dir", str(folder / "state"), "--conntrack-max-per-core=0"]
    (log := folder / "podgate.log").unlink(missing_ok=True)
    return launch(node, command, log)


def _table(name: str, node: NetNamespace) -> str:
    return node.run("nft", "list", "table", "ip", name)


KUBE_PROXY: Final = Proxy(
    "kube-proxy",
    partial(start_kube_proxy, "nftables"),
    # It deletes old chains a second after a change.
    partial(transactions, table="kube-proxy", data=0, rest=2.5),
    partial(_table, "kube-proxy"),
    version=1,
)
PODGATE: Final = Proxy(
    "podgate",
    partial(start_podgate, "nftables"),
    partial(transactions, table=TABLE, data=4, rest=0.1),
    partial(_table, TABLE),
    version=2,
)


def rival(folder: Path, quick: bool) -> list[Row]:
    """Measure both at a size that kube-proxy can finish, then podgate alone at a larger one."""
    both, alone = (300, 600) if quick else (10_000, 30_000)
    with api(folder) as plane:
        fill(plane, 0, both)
        listed = list_seconds(plane)
        theirs = followed(plane, folder, KUBE_PROXY, both, 2 if quick else 7)
        ours = followed(plane, folder, PODGATE, both, 20 if quick else 300)
        rows = _load_rows(folder, both, ours, listed, theirs)
        rows += versus_rows(f"{both:,} x 2, from the API:", ours, theirs)
        fill(plane, both, alone)
        listed = list_seconds(plane)
        again, changes = PODGATE._replace(version=3), 20 if quick else 300
        ours = followed(plane, folder, again, alone, changes, churn=3 * CHURN if quick else 60 * CHURN)
    figure = f"{alone:,} x 2, from the API:"
    return [
        *rows,
        *_load_rows(folder, alone, ours, listed),
        change_row(f"{figure} one endpoint replaced, request to kernel", "", ours.replaced),
        change_row(f"{figure} one endpoint added or removed, request to kernel", "", ours.resized),
        *_churn_rows(figure, ours.churned),
        Row(f"{figure} memory, RSS", "", f"{ours.rss / 1024:.0f} MB"),
    ]


def _churn_rows(figure: str, found: Churned | None) -> list[Row]:
    if found is None:
        return []
    mean = f"{milliseconds(found.mean)} from request to kernel on average, of {found.counted} that it counts"
    return [
        Row(
            f"{figure} {CHURN} changes/s, CPU of the whole agent",
            "< 30 % of a core, none lost",
            f"{found.share * 100:.1f} %",
            f"{found.rate:.0f}/s came; {mean}",
        )
    ]


def _load_rows(folder: Path, services: int, ours: Found, listed: float, theirs: Found | None = None) -> list[Row]:
    """Show a load twice: from exec on, and without what an API and a start take."""
    received = measured(folder, services, 2)["load"]
    figure = f"{services:,} x 2, from the API:"
    beside = their_own = ""
    if theirs:
        beside = versus(theirs.loaded, ours.loaded)
        their_own = f"its own passes: {versus(theirs.written, received)}"
    return [
        Row(
            f"{figure} exec to last element",
            "",
            f"{ours.loaded:.2f} s",
            f"the API's own lists: {listed:.2f} s; without them {ours.loaded - listed:.2f} s",
            beside,
        ),
        Row(
            f"{figure} objects received to last element",
            f"{LOADED[services]}{', >= 20x' if theirs else ''}" if services in LOADED else "",
            f"{received:.2f} s",
            f"of that, the write {ours.written:.2f} s, as the agent says",
            their_own,
        ),
    ]


def versus(theirs: float, ours: float) -> str:
    """Say how much longer kube-proxy takes."""
    return f"kube-proxy {theirs:.2f} s: {_times(theirs / ours)}"


def versus_rows(figure: str, ours: Found, theirs: Found, wanted: str = ">= 200x") -> list[Row]:
    """Show changes and memory beside kube-proxy's."""
    rows = []
    for what, mine, others in (
        ("replaced", ours.replaced, theirs.replaced),
        ("added or removed", ours.resized, theirs.resized),
    ):
        p50, theirs_p50 = statistics.median(mine), statistics.median(others)
        rows.append(
            Row(
                f"{figure} one endpoint {what}, request to kernel, p50",
                wanted,
                milliseconds(p50),
                f"p99 {milliseconds(percentile(mine, 0.99))}; {len(mine)} changes",
                f"kube-proxy {milliseconds(theirs_p50)} ({len(others)} changes): {_times(theirs_p50 / p50)}",
            )
        )
    memory = f"kube-proxy {theirs.rss / 1024:.0f} MB, without the programs that it starts"
    ratio = _times(theirs.rss / ours.rss)
    rows.append(Row(f"{figure} memory, RSS", "", f"{ours.rss / 1024:.0f} MB", "", f"{memory}: {ratio}"))
    return rows


def _times(ratio: float) -> str:
    return f"{ratio:.1f}x" if ratio < 10 else f"{ratio:.0f}x"
