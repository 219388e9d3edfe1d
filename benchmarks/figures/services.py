"""Figures of the service proxy: loading, single changes, churn, restart, and an idle agent.

Here: rows from what a measuring process tells (service_child.py), and from an agent that is left alone. Not here:
kube-proxy (service_rival.py).
Invariant: each size is measured in a process of its own, so that memory is that of one.
"""

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.figures.service_objects import PODS, write_file
from benchmarks.support import (
    Row,
    counters,
    cpus,
    installed,
    memory_kb,
    milliseconds,
    percentile,
    pinned,
    rest,
    running,
    say,
)
from tests.support.netns import netns


def measured(services: int, endpoints: int, **asked: Any) -> dict[str, Any]:
    """Measure one size in a process of its own."""
    say(f"  {services:,} Services x {endpoints}")
    command = [sys.executable, "-m", "benchmarks.figures.service_child", str(services), str(endpoints)]
    with pinned(cpus()[1]):
        done = subprocess.run([*command, json.dumps(asked)], check=True, capture_output=True, env=installed())
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def loading(_folder: Path, quick: bool) -> list[Row]:
    """Measure the sizes of the table, with single changes at the largest."""
    sizes = (1_000,) if quick else (10_000, 30_000)
    wanted = {10_000: "<= 1.5 s", 30_000: "<= 3 s"}
    rows = []
    for size in sizes:
        last = size == sizes[-1]
        found = measured(size, 2, changes=20 if quick else 500 if last else 50, restart=last)
        rows.append(_load_row(f"{size:,} x 2:", wanted.get(size, ""), found))
        rows.append(_change_row(f"{size:,} x 2: one endpoint replaced", "p50 <= 5, p99 <= 20 ms", found["replaced"]))
        resized = found["resized"]
        rows.append(_change_row(f"{size:,} x 2: one endpoint added or removed", "p50 <= 8, p99 <= 30 ms", resized))
        if last:
            rows.append(_restart_row(size, found["restart"]))
    return rows


def large(_folder: Path, quick: bool) -> list[Row]:
    """Measure few Services with many endpoints, and Services whose clients stay with an endpoint."""
    services = 100 if quick else 5_000
    many = measured(services, 50)
    sticky = measured(services, 2, sticky=True)
    return [
        _load_row(f"{services:,} x 50:", "<= 6 s, <= 250 MB", many),
        _load_row(f"{services:,} x 2, ClientIP affinity:", "<= 10 s", sticky),
    ]


def churn(_folder: Path, quick: bool) -> list[Row]:
    """Measure 100 changes a second."""
    services, seconds = (1_000, 3) if quick else (30_000, 60)
    found = measured(services, 2, churn=seconds)["churn"]
    late = found["late"]
    what = f"{services:,} x 2: {found['changes']} changes in {seconds} s"
    return [
        Row(f"{what}: CPU", "< 30 % of a core", f"{found['cpu_share'] * 100:.1f} %", ""),
        Row(
            f"{what}: event to kernel, p99",
            "<= 100 ms, none lost",
            milliseconds(percentile(late, 0.99)),
            f"p50 {milliseconds(percentile(late, 0.5))}; {len(late)} written",
        ),
    ]


def agent(folder: Path, quick: bool) -> list[Row]:
    """Measure a whole agent: from exec to ready with a ``.jsonl`` file, again with nothing to do, and idle."""
    services = 1_000 if quick else 30_000
    path = folder / "objects.jsonl"
    write_file(path, services, 2)
    command = ["services", "run", "--source", str(path), "--cluster-cidr", PODS, "--node-name", "node-0"]
    command += ["--health-addr", "127.0.0.1:10350", "--state-dir", str(folder / "state"), "--conntrack-max-per-core=0"]
    seconds = 2 if quick else 20
    with netns() as namespace:
        with running(namespace, command, folder / "log", cpus()[1]) as first:
            started = first.until_ready()
        with running(namespace, command, folder / "log", cpus()[1]) as second:
            again = second.until_ready()
            rest(2)
            before, began = counters(second.pid), time.monotonic()
            rest(seconds)
            after = counters(second.pid).since(before)
            share = after.running / (time.monotonic() - began)
            rss, _ = memory_kb(second.pid)
    figure = f"{services:,} x 2, the whole agent:"
    return [
        Row(f"{figure} exec to ready, from a .jsonl file", "", f"{started:.2f} s", "JSON is parsed with its lines"),
        Row(f"{figure} the same, nothing to write", "", f"{again:.2f} s", ""),
        Row(f"{figure} idle for {seconds} s: CPU", "< 0.2 % of a core", f"{share * 100:.3f} %", f"{rss / 1024:.0f} MB"),
    ]


def _load_row(figure: str, wanted: str, found: Mapping[str, Any]) -> Row:
    what = f"decode {found['decode']:.2f} s; CPU {found['cpu']:.2f} s; {found['rss_mb']:.0f} MB, of which"
    return Row(
        f"{figure} objects received to last element",
        wanted,
        f"{found['load']:.2f} s",
        f"{what} {found['rss_before_mb']:.0f} before, with the objects as JSON",
    )


def _change_row(figure: str, wanted: str, taken: list[float]) -> Row:
    p50, p99 = percentile(taken, 0.5), percentile(taken, 0.99)
    return Row(figure, wanted, f"p50 {milliseconds(p50)}, p99 {milliseconds(p99)}", f"{len(taken)} changes")


def _restart_row(size: int, found: Mapping[str, Any]) -> Row:
    written = "no write" if found["generations"] <= 4 else f"{found['generations']} transactions"
    return Row(
        f"{size:,} x 2: a new process finds all as it should be",
        "<= 3 s, no write",
        f"{found['restart']:.2f} s",
        f"CPU {found['cpu']:.2f} s; {written}",
    )
