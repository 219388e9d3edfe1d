"""The metadata proxy beside nginx and Go's reverse proxy: requests per second, latency, CPU, memory, start.

Here: the figures. Not here: the contestants and the load (proxies.py), cgroups (cgroups.py), the table
(benchmarks/metadata.py), how to read it (docs/benchmarks.md).
Invariant: contestants run in turns, so that a slow moment of the machine hits all alike; a ratio is one of medians of
the same run.
"""

import socket
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Final

from benchmarks.figures.cgroups import MEMORY, MILLIS, Cgroup, cgroup
from benchmarks.figures.proxies import PAGES, Bench, Contestant, Load
from benchmarks.support import Row, installed, pinned, rest, spread

Opens = Callable[..., AbstractContextManager[Contestant]]
Taken = tuple[float, float]
"""Seconds on the clock, and on a CPU."""

_NO_PAGES: Final = ("--metrics-addr", "")
_NO_LOG: Final = (*_NO_PAGES, "--no-log-requests")
_WANTED: Final = {("log off", 16): ">= 0.6 x", ("log on", 16): ">= 0.3 x"}
_PACE: Final = 2000
"""Requests per second: more than twice what metadata-proxy's documentation promises with a whole CPU."""
_LONG: Final = 120.0
"""Seconds that a start may take with 30m of a CPU."""


def starts(bench: Bench, *, quick: bool) -> list[Row]:
    """Measure from exec to the first answer, with and without the node's rules."""
    turns = 3 if quick else 11
    bare: list[Taken] = []
    plain: list[Taken] = []
    ruled: list[Taken] = []
    for turn in range(turns):
        found = (_interpreter(bench), *(_start(bench, rules=rules) for rules in (False, True)))
        if turn:  # the first one compiles modules
            for seconds, each in zip(found, (bare, plain, ruled), strict=True):
                each.append(seconds)
    reference = f"python with uvloop {_ms(bare)}"
    rows = [
        Row("start to a Pod's first answer, rules included", "<= 300 ms", _ms(ruled), spread([s for s, _ in ruled])),
        Row("  ratio to loading uvloop alone", "", _ratio(ruled, bare), "", reference),
        Row("  CPU until then", "", _ms(ruled, 1), spread([cpu for _, cpu in ruled])),
        Row("start to the first answer, --no-firewall", "", _ms(plain), spread([s for s, _ in plain])),
        Row("  CPU until then", "", _ms(plain, 1), spread([cpu for _, cpu in plain])),
    ]
    with cgroup(memory=MEMORY, millis=MILLIS) as group:
        if group is None:
            return rows
        throttled = [_start(bench, rules=True, group=group)[0] for _ in range(1 if quick else 3)]
        used = group.used()
    shown = f"{statistics.median(throttled):.1f} s"
    text = f"memory peak {used.peak / 2**20:.1f} MiB of 25, {used.killed} killed"
    return [*rows, Row(f"start with {MILLIS}m of a CPU, in 25 MiB", "", shown, "", text)]


def _start(bench: Bench, *, rules: bool, group: Cgroup | None = None) -> Taken:
    began = time.perf_counter()
    with bench.ours(*_NO_PAGES, rules=rules, group=group, seconds=_LONG) as ours:
        found = time.perf_counter() - began, ours.seconds()
    if rules:
        bench.clean()
    return found


def _interpreter(bench: Bench) -> Taken:
    began = time.perf_counter()
    with pinned(bench.near):
        subprocess.run(
            (bench.python, "-c", "import uvloop, msgspec"), env=installed(), check=False, stderr=subprocess.DEVNULL
        )
    return time.perf_counter() - began, 0.0


def _ms(found: Sequence[Taken], which: int = 0) -> str:
    return f"{statistics.median(each[which] for each in found) * 1000:.0f} ms"


def _ratio(found: Sequence[Taken], other: Sequence[Taken]) -> str:
    return f"{statistics.median(each[0] for each in found) / statistics.median(each[0] for each in other):.2f} x"


def memories(bench: Bench, *, quick: bool) -> list[Row]:
    """Measure 1,000 idle and 200 busy connections inside 25 MiB."""
    rows: list[Row] = []
    contestants: dict[str, Opens] = {"podgate": partial(bench.ours, "--no-log-requests"), **_peers(bench)}
    for name, opens in contestants.items():
        with cgroup(memory=MEMORY) as group:
            rows += _memory(bench, name, partial(opens, group=group), group, quick=quick)
    return rows


def _memory(bench: Bench, name: str, opens: Opens, group: Cgroup | None, *, quick: bool) -> Iterator[Row]:
    with opens() as contestant:
        if name.startswith("podgate"):
            _scrape(bench)
        alone = contestant.anonymous()
        idle = [bench.connected(contestant.port) for _ in range(1000)]
        try:
            busy = bench.load(contestant, 200, 2 if quick else 5)
            used = group.used() if group else None
            rest(0.6)
            still = sum(map(_is_open, idle))
            alive = bench.answers(contestant.port)
        finally:
            for each in idle:
                each.close()
    yield Row(f"anonymous memory, idle: {name}", "", _mib(alone))
    if used is not None:
        parts = f"anonymous {_mib(used.anonymous)}, sockets {_mib(used.sockets)}, kernel {_mib(used.kernel)}"
        yield Row("  1,000 idle + 200 busy in 25 MiB: peak", "< 25 MiB", _mib(used.peak), "", parts)
        text = "answers afterwards" if alive else "does NOT ANSWER"
        yield Row("  killed; idle connections left", "0 killed", f"{used.killed} killed; {still}", "", text)
    yield Row("  requests/s meanwhile", "", f"{busy.rate:,.0f}", "", busy.errors)


def _scrape(bench: Bench) -> None:
    """Ask for the metrics once, as a scraper does: their server is loaded then."""
    with bench.connected(PAGES) as asking:
        asking.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        while asking.recv(65536):
            pass


def _is_open(connected: socket.socket) -> bool:
    connected.setblocking(False)
    try:
        return connected.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def _mib(count: int) -> str:
    return f"{count / 2**20:.1f} MiB"


def rates(bench: Bench, *, quick: bool) -> list[Row]:
    """Measure at full load."""
    turns, seconds = (1, 2) if quick else (5, 3)
    rows: list[Row] = []
    for connections in (16, 200):
        found = _turns(bench, turns, connections, seconds)
        wanted = {name: _WANTED.get((name, connections), "") for name in found}
        rows += _rate_rows(f"{connections} connections", found, wanted)
    return rows


def latencies(bench: Bench, *, quick: bool) -> list[Row]:
    """Measure latency at a rate that leaves room: at full load it is what the number of connections makes it."""
    turns, seconds = (1, 3) if quick else (5, 5)
    rows: list[Row] = []
    for connections in (16, 200):
        for name, loads in _turns(bench, turns, connections, seconds, connections * 1000 // _PACE).items():
            middle = sorted(loads, key=_tail)[len(loads) // 2]
            spans = f"p99 {min(loads, key=_tail).most} - {max(loads, key=_tail).most}"
            rate = f"{statistics.median(load.rate for load in loads):,.0f} requests/s"
            wanted = "p99 <= 10 ms" if name.startswith("log") else ""
            figure = f"p50 / p99, {connections} connections, about {_PACE:,}/s: {name}"
            rows.append(Row(figure, wanted, f"{middle.half} / {middle.most}", spans, rate))
    return rows


def smalls(bench: Bench, *, quick: bool) -> list[Row]:
    """Measure inside the limits of metadata-proxy's manifest: 25 MiB and 30m of a CPU."""
    turns, seconds = (1, 3) if quick else (3, 10)
    found: dict[str, list[Load]] = {}
    for _ in range(turns):
        for name, opens in _both(bench).items():
            with cgroup(memory=MEMORY, millis=MILLIS) as group:
                if group is None:
                    return []
                with opens(group=group) as contestant:
                    found.setdefault(name, []).append(bench.load(contestant, 16, seconds))
    return _rate_rows(f"16 connections, {MILLIS}m of a CPU, 25 MiB", found, {})


def _both(bench: Bench) -> dict[str, Opens]:
    """Give nginx, Go, and our proxy without and with its log."""
    ours = {"log off": partial(bench.ours, *_NO_LOG), "log on": partial(bench.ours, *_NO_PAGES)}
    return {**_peers(bench), **ours}


def _peers(bench: Bench) -> dict[str, Opens]:
    return {"nginx": bench.nginx, **({"Go": bench.go} if bench.has_go else {})}


def _turns(bench: Bench, turns: int, connections: int, seconds: int, pause: int = 0) -> dict[str, list[Load]]:
    found: dict[str, list[Load]] = {}
    for _ in range(turns):
        for name, opens in _both(bench).items():
            with opens() as contestant:
                load = bench.load(contestant, connections, seconds, pause)
            if load.errors and name.startswith("log"):
                raise RuntimeError(f"wrk met errors: {load.errors}\n{(bench.folder / 'ours').read_text()[-2000:]}")
            found.setdefault(name, []).append(load)
    return found


def _rate_rows(where: str, found: dict[str, list[Load]], wanted: dict[str, str]) -> list[Row]:
    """Give the rows of each contestant, as ratios to nginx."""
    theirs = statistics.median(load.rate for load in found["nginx"])
    cpu = statistics.median(load.cpu for load in found["nginx"])
    rows: list[Row] = []
    for name, loads in found.items():
        each = sorted(loads)
        rate, spent = statistics.median(load.rate for load in each), statistics.median(load.cpu for load in each)
        spans = f"{each[0].rate:,.0f} - {each[-1].rate:,.0f}"
        rows.append(
            Row(f"requests/s, {where}: {name}", wanted.get(name, ""), f"{rate:,.0f}: {rate / theirs:.2f} x", spans)
        )
        middle = each[len(each) // 2]
        rows.append(Row("  p50 / p99 of the middle run", "", f"{middle.half} / {middle.most}", "", middle.errors))
        rows.append(Row("  CPU per request", "", f"{spent * 1e6:.0f} us: {spent / cpu:.2f} x"))
    return rows


def _tail(load: Load) -> float:
    """Give the seconds of p99, which wrk shows with a unit."""
    shown = load.most
    for unit, factor in (("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0)):
        if shown.endswith(unit):
            return float(shown.removesuffix(unit)) * factor
    raise ValueError(shown)


PARTS: Final[dict[str, Callable[..., list[Row]]]] = {
    "start": starts,
    "memory": memories,
    "rates": rates,
    "latency": latencies,
    "small": smalls,
}
