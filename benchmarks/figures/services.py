"""Figures of the service proxy: loading, single changes, churn, restart, and a whole agent with a file.

Here: rows from what a measuring process tells (service_child.py), and from agents as users start them. Not here: other
back ends (service_iptables.py), heals (service_heals.py), an API and kube-proxy (service_rival.py).
Invariant: each size is measured in a process of its own, so that memory is that of one.
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.figures.service_objects import PODS, write_file
from benchmarks.support import (
    Row,
    counters,
    cpus,
    installed,
    memory_kb,
    milliseconds,
    peak_kb,
    percentile,
    pinned,
    rest,
    running,
    say,
    syscalls,
)
from tests.support.agent import Agent
from tests.support.netns import NetNamespace, netns
from tests.support.services_agent import generation_of

LOADED: Final[Mapping[int, str]] = {10_000: "<= 1.5 s", 30_000: "<= 3 s"}
"""What is wanted of a load, by size."""

_RATE: Final = 100
"""Changes per second of a churn."""


def measured(folder: Path, services: int, endpoints: int, *, sticky: bool = False, **asked: Any) -> dict[str, Any]:
    """Measure one size in a process of its own; ``asked`` is what service_child.measure takes."""
    say(f"  {services:,} Services x {endpoints}")
    path = folder / "measured.jsonl"
    write_file(path, services, endpoints, sticky=sticky)
    command = [sys.executable, "-m", "benchmarks.figures.service_child", str(path), str(services), str(endpoints)]
    with pinned(cpus()[1]):
        done = subprocess.run([*command, json.dumps(asked)], check=True, stdout=subprocess.PIPE, env=installed())
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def loading(folder: Path, quick: bool) -> list[Row]:
    """Measure the sizes of the table, with single changes, and a restart at the largest."""
    rows = []
    for size in (1_000,) if quick else (10_000, 30_000):
        found = measured(folder, size, 2, changes=20 if quick else 500, restart=True)
        rows.append(load_row(f"{size:,} x 2:", LOADED.get(size, ""), found))
        for what, key, wanted in (
            ("replaced", "replaced", "p50 <= 5, p99 <= 20 ms"),
            ("added or removed", "resized", "p50 <= 8, p99 <= 30 ms"),
        ):
            rows.append(change_row(f"{size:,} x 2: one endpoint {what}, event to kernel", wanted, found[key]))
        rows.append(restart_row(f"{size:,} x 2:", "<= 3 s, no write" if size == 30_000 else "", found["restart"]))
    return rows


def large(folder: Path, quick: bool) -> list[Row]:
    """Measure few Services with many endpoints, and Services whose clients stay with an endpoint."""
    services = 100 if quick else 5_000
    many = measured(folder, services, 50)
    sticky = measured(folder, services, 2, sticky=True)
    return [
        load_row(f"{services:,} x 50:", "<= 6 s, <= 250 MB", many),
        load_row(f"{services:,} x 2, ClientIP affinity:", "<= 10 s", sticky),
    ]


def churn(folder: Path, quick: bool) -> list[Row]:
    """Measure 100 changes a second."""
    services, seconds = (1_000, 3) if quick else (30_000, 60)
    found = measured(folder, services, 2, churn=seconds * _RATE, rate=_RATE)["churn"]
    late = found["late"]
    what = f"{services:,} x 2, {_RATE} changes/s for {seconds} s:"
    return [
        Row(f"{what} CPU", "< 30 % of a core", f"{found['cpu_share'] * 100:.1f} %", f"{found['writes']} writes"),
        Row(
            f"{what} event to kernel, p99",
            "<= 100 ms, none lost",
            milliseconds(percentile(late, 0.99)),
            f"p50 {milliseconds(percentile(late, 0.5))}; {len(late)} written",
        ),
    ]


# A whole agent, with a file.


def agent_command(source: Path, state: Path, *more: str) -> list[str]:
    """Give the words that start an agent with a file or folder of objects, its pages where tests look for them."""
    command = ["services", "run", "--source", str(source), "--cluster-cidr", PODS, "--node-name", "node-0"]
    command += ["--health-addr", "", "--metrics-addr", "127.0.0.1:10350", "--conntrack-max-per-core=0"]
    return [*command, "--state-dir", str(state), *more]


def agent(folder: Path, quick: bool) -> list[Row]:
    """Measure agents as users start them, with ``.jsonl`` files: from exec to ready, again, and idle."""
    sizes = (1_000,) if quick else (10_000, 30_000)
    paths = {size: folder / f"{size}.jsonl" for size in (0, *sizes)}
    for size, path in paths.items():
        write_file(path, size, 2)
    empty = statistics.median(_until_ready(folder, paths[0]) for _ in range(3))
    rows: list[Row] = []
    for size in sizes:
        say(f"  {size:,} Services x 2")
        rows += _with_file(folder, paths[size], f"{size:,} x 2, a whole agent with a .jsonl file:", size, empty)
    return rows


def _until_ready(folder: Path, path: Path) -> float:
    with netns() as namespace, _running(namespace, folder, path) as (_, ready):
        return ready


@contextmanager
def _running(namespace: NetNamespace, folder: Path, path: Path) -> Iterator[tuple[Agent, float]]:
    """Have an agent that is ready, and the seconds that this took."""
    with running(namespace, agent_command(path, folder / "state"), folder / "log", cpus()[1]) as started:
        yield started, started.until_ready()


def _with_file(folder: Path, path: Path, figure: str, size: int, empty: float) -> list[Row]:
    seconds = 20 if size >= 10_000 else 2
    with netns() as namespace:
        with _running(namespace, folder, path) as (first, loaded):
            load_cpu = counters(first.pid).running
        before = generation_of(namespace)
        with _running(namespace, folder, path) as (second, again):
            again_cpu = counters(second.pid).running
            idle, calls, memory = _idle(second.pid, seconds)
        transactions = generation_of(namespace) - before
    # Both families are read back, each between two empty transactions.
    written = "no write" if transactions <= 8 else f"{transactions} transactions"
    start = f"without {empty:.2f} s, what a start takes with an empty file; CPU, with it: {load_cpu:.2f} s"
    nothing = "<= 3 s, no write" if size == 30_000 else ""
    return [
        Row(f"{figure} file to last element", LOADED.get(size, ""), f"{loaded - empty:.2f} s", start),
        Row(
            f"{figure} restart, nothing to do",
            nothing,
            f"{again - empty:.2f} s",
            f"{written}; CPU, with its start: {again_cpu:.2f} s",
        ),
        Row(
            f"{figure} idle, CPU",
            "< 0.2 % of a core, no dump" if size == 30_000 else "",
            f"{idle * 100:.3f} %",
            f"{calls} system calls in {seconds} s; {memory}",
        ),
    ]


def _idle(pid: int, seconds: int) -> tuple[float, int, str]:
    """Give the share of a core, the system calls, and the memory of an agent that nobody asks anything."""
    rest(2)
    before, began = counters(pid), time.monotonic()
    rest(seconds)
    share = counters(pid).since(before).running / (time.monotonic() - began)
    rss, _ = memory_kb(pid)
    return share, sum(syscalls(pid, seconds).values()), f"{rss / 1024:.0f} MB, peak {peak_kb(pid) / 1024:.0f} MB"


# Rows.


def load_row(figure: str, wanted: str, found: Mapping[str, Any], noun: str = "element") -> Row:
    """Show a load of elements, or of rules."""
    memory = f"RSS {found['rss_mb']:.0f} MB, peak {found['rss_peak_mb']:.0f}, before {found['rss_before_mb']:.0f}"
    return Row(
        f"{figure} objects received to last {noun}",
        wanted,
        f"{found['load']:.2f} s",
        f"decode {found['decode']:.2f} s; CPU {found['cpu']:.2f} s; {memory}",
    )


def change_row(figure: str, wanted: str, taken: Sequence[float]) -> Row:
    """Show changes, each awaited."""
    p50, p99 = percentile(taken, 0.5), percentile(taken, 0.99)
    what = f"{len(taken)} changes"
    return Row(figure, wanted, f"p50 {milliseconds(p50)}, p99 {milliseconds(p99)}", what)


def restart_row(figure: str, wanted: str, found: Mapping[str, Any]) -> Row:
    """Show a new process that finds all as it should be."""
    what = f"CPU {found['cpu']:.2f} s; {'something was written' if found['wrote'] else 'no write'}"
    return Row(f"{figure} restart, nothing to do", wanted, f"{found['restart']:.2f} s", what)
