"""The metadata proxy beside nginx as a plain reverse proxy: requests per second, latency, CPU, memory, start.

Here: the contestants, the load, the figures. Not here: the table (benchmarks/metadata.py), what a figure should be used
for (docs/benchmarks.md).
Invariant: contestants and load run inside one network namespace of their own, the contestant on one core, upstream and
load on the other; a run takes seconds.
"""

import contextlib
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.support import Row, cpus, installed, pinned, rest, say, spread
from podgate.linux.namespaces import inside_network
from podgate.linux.processes import die_with_parent
from tests.support.netns import NetNamespace
from tests.support.poll import happens

ZONE: Final = "/computeMetadata/v1/instance/zone"
_UPSTREAM: Final = 8080
_OURS: Final = 988
_NGINX: Final = 8081
_HEAD: Final = f"GET {ZONE} HTTP/1.1\r\nHost: 169.254.169.254\r\nMetadata-Flavor: Google\r\n\r\n".encode()
_LIMIT: Final = 25 << 20

_NGINX_CONF: Final = """
worker_processes 1; daemon off; pid {folder}/{name}.pid; error_log {folder}/{name}.err;
events {{ worker_connections 4096; }}
http {{ access_log off; keepalive_requests 100000000; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p;
fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s; {http} }}
"""
_SERVES: Final = (
    f"server {{ listen 127.0.0.1:{_UPSTREAM}; location / {{ add_header Metadata-Flavor Google;"
    ' return 200 "projects/123456/zones/us-central1-a"; } }'
)
_PROXIES: Final = (
    f"upstream u {{ server 127.0.0.1:{_UPSTREAM}; keepalive 256; keepalive_requests 100000000; }}"
    f" server {{ listen 127.0.0.1:{_NGINX}; location / {{ proxy_pass http://u; proxy_http_version 1.1;"
    ' proxy_set_header Connection ""; } }'
)


class Load(NamedTuple):
    """What wrk saw, and the CPU seconds that the contestant used per request."""

    rate: float
    half: str
    most: str
    cpu: float


class Bench:
    """The namespace with the upstream in it.

    Args:
        python: the interpreter of our proxy.
    """

    def __init__(self, node: NetNamespace, folder: Path, python: str) -> None:
        self.node = node
        self.folder = folder
        self.python = python
        self.far, self.near = cpus()

    @contextmanager
    def started(self, cpu: int, *command: str, log: str = "out") -> Iterator[subprocess.Popen[bytes]]:
        """Have a process on one core."""
        with pinned(cpu), inside_network(self.node.descriptor), (self.folder / log).open("wb") as output:
            process = subprocess.Popen(
                command,
                env=installed(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - one thread
            )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    @contextmanager
    def nginx(self, name: str, http: str, port: int, cpu: int) -> Iterator[int]:
        """Have an nginx; gives the process id of its worker."""
        conf = self.folder / f"{name}.conf"
        conf.write_text(_NGINX_CONF.format(folder=self.folder, name=name, http=http))
        with self.started(cpu, "nginx", "-c", str(conf), log=name) as process:
            self.until_answered(port)
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            yield int(children[0])

    @contextmanager
    def ours(self, *flags: str, wrap: tuple[str, ...] = ()) -> Iterator[int]:
        """Have our proxy; gives its process id."""
        words = ("metadata", "run", "--addr", f"127.0.0.1:{_OURS}", "--upstream", f"http://127.0.0.1:{_UPSTREAM}")
        command = (*wrap, self.python, "-m", "podgate.cli", *words, "--no-firewall", "--metrics-addr", "", *flags)
        with self.started(self.near, *command, log="ours") as process:
            self.until_answered(_OURS)
            yield process.pid

    def until_answered(self, port: int) -> None:
        """Wait for the first answer. Raises RuntimeError."""
        if not happens(lambda: self.answers(port), 20.0):
            raise RuntimeError(f"nobody answers on port {port}: {self.folder}")

    def answers(self, port: int) -> bool:
        """Say whether a request is answered."""
        with contextlib.suppress(OSError), self.connected(port) as asking:
            asking.sendall(_HEAD)
            return asking.recv(4096).startswith(b"HTTP/1.1 200")
        return False

    def connected(self, port: int) -> socket.socket:
        """Give a connection from inside."""
        with inside_network(self.node.descriptor):
            made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        made.settimeout(10)
        made.connect(("127.0.0.1", port))
        return made

    def load(self, port: int, pid: int, connections: int, seconds: int) -> Load:
        """Load a contestant with wrk."""
        command = ["wrk", "--latency", "-t1", f"-c{connections}", f"-d{seconds}", "-H", "Metadata-Flavor: Google"]
        before = _cpu(pid)
        with pinned(self.far), inside_network(self.node.descriptor):
            url = f"http://127.0.0.1:{port}{ZONE}"
            said = subprocess.run([*command, url], capture_output=True, text=True, check=True).stdout
        if "Non-2xx" in said or "Socket errors" in said:
            lines = (self.folder / "ours").read_text().splitlines()
            odd = "\n".join([line for line in lines if '"status": 200' not in line][:9])
            raise RuntimeError(f"wrk met errors on port {port}:\n{said}\n{odd}")
        count = int(_found(r"(\d+) requests in", said))
        spent = (_cpu(pid) - before) / count
        return Load(
            float(_found(r"Requests/sec:\s*([\d.]+)", said)),
            _found(r"50%\s+(\S+)", said),
            _found(r"99%\s+(\S+)", said),
            spent,
        )


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.MULTILINE)
    if match is None:
        raise RuntimeError(f"wrk did not say {pattern}:\n{text}")
    return match.group(1)


def _cpu(pid: int) -> float:
    """Give the seconds that a process spent on a CPU."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def rates(bench: Bench, *, quick: bool) -> list[Row]:
    """Measure rates in turns."""
    rows: list[Row] = []
    turns, seconds = (1, 1) if quick else (5, 3)
    with bench.nginx("nginx", _PROXIES, _NGINX, bench.near) as nginx:
        for connections in (16, 200):
            found: dict[str, list[Load]] = {"log off": [], "log on": [], "nginx": []}
            for _ in range(turns):
                found["nginx"].append(bench.load(_NGINX, nginx, connections, seconds))
                with bench.ours("--no-log-requests") as pid:
                    found["log off"].append(bench.load(_OURS, pid, connections, seconds))
                with bench.ours() as pid:
                    found["log on"].append(bench.load(_OURS, pid, connections, seconds))
            rows += _rate_rows(connections, found)
    return rows


def _rate_rows(connections: int, found: dict[str, list[Load]]) -> Iterator[Row]:
    theirs = statistics.median(load.rate for load in found["nginx"])
    cpu = statistics.median(load.cpu for load in found["nginx"])
    wanted = {("log off", 16): ">= 0.6 x", ("log on", 16): ">= 0.3 x"}
    for name in ("log off", "log on"):
        each = sorted(found[name])
        middle = each[len(each) // 2]
        ours = statistics.median(load.rate for load in each)
        yield Row(
            f"requests/s, {connections} connections, {name}",
            wanted.get((name, connections), ""),
            f"{ours:,.0f}: {ours / theirs:.2f} x",
            f"{each[0].rate:,.0f} - {each[-1].rate:,.0f}",
            f"nginx {theirs:,.0f}",
        )
        yield Row(f"  p50 / p99 of the middle run, {name}", "p99 <= 10 ms", f"{middle.half} / {middle.most}")
        spent = statistics.median(load.cpu for load in each)
        times = f"{spent * 1e6:.0f} us: {cpu / spent:.2f} x"
        yield Row(f"  CPU per request, {name}", "", times, "", f"nginx {cpu * 1e6:.0f} us")


def starts(bench: Bench, *, quick: bool) -> list[Row]:
    """Measure from exec to the first answer."""
    seconds, spent = [], []
    for _ in range(2 if quick else 9):
        began = time.perf_counter()
        with bench.ours() as pid:
            seconds.append(time.perf_counter() - began)
            spent.append(_cpu(pid))
    middle, cpu = statistics.median(seconds), statistics.median(spent)
    return [
        Row("start to first answer", "<= 300 ms", f"{middle * 1000:.0f} ms", spread(seconds)),
        Row("  CPU until then", "", f"{cpu * 1000:.0f} ms", spread(spent), f"at 30m CPU: {cpu / 0.03:.0f} s"),
    ]


def memories(bench: Bench, *, quick: bool) -> list[Row]:
    """Measure 1,000 idle and 200 busy connections inside a memory cgroup of 25 MiB, where one can be made."""
    with _cgroup() as group:
        wrap = () if group is None else ("sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh")
        with bench.ours("--no-log-requests", wrap=wrap) as pid:
            alone = _anonymous(pid)
            idle = [bench.connected(_OURS) for _ in range(1000)]
            try:
                busy = bench.load(_OURS, pid, 200, 1 if quick else 5)
                rest(0.6)
                still = sum(_is_open(each) for each in idle)
                full, alive = _anonymous(pid), bench.answers(_OURS)
            finally:
                for each in idle:
                    each.close()
        peak = _read(group, "memory.max_usage_in_bytes", "memory.peak")
        killed = _events(group)
    where = "no cgroup could be made" if group is None else f"peak of the cgroup {peak / 1048576:.1f} MiB of 25"
    return [
        Row("anonymous memory, idle", "", f"{alone / 1024:.1f} MiB"),
        Row("anonymous memory, 1,000 idle + 200 busy", "< 25 MiB", f"{full / 1024:.1f} MiB", where),
        Row("  idle ones left, killed, answers", "no kill", f"{still}, {killed}, {'yes' if alive else 'NO'}"),
        Row("  requests/s meanwhile", "", f"{busy.rate:,.0f}"),
    ]


def _is_open(connected: socket.socket) -> bool:
    connected.setblocking(False)
    try:
        return connected.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def _anonymous(pid: int) -> int:
    """Give a process's anonymous memory in KiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


@contextmanager
def _cgroup() -> Iterator[Path | None]:
    """Make a memory cgroup below our own, v1 or v2; None where that is not allowed."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    paths = {line.split(":")[1]: line.split(":", 2)[2] for line in lines}
    one = Path("/sys/fs/cgroup/memory" + paths.get("memory", "/"))
    two = Path("/sys/fs/cgroup" + paths.get("", "/"))
    name = f"podgate-bench-{os.getpid()}"
    parent, limit = (one, "memory.limit_in_bytes") if "memory" in paths else (two, "memory.max")
    try:
        (parent / name).mkdir()
        (parent / name / limit).write_text(str(_LIMIT))
    except OSError as error:
        say(f"no memory cgroup: {error}")
        yield None
        return
    try:
        yield parent / name
    finally:
        happens(lambda: not (parent / name / "cgroup.procs").read_text(), 5.0)
        (parent / name).rmdir()


def _read(group: Path | None, *names: str) -> int:
    for name in names:
        if group is not None and (group / name).exists():
            return int((group / name).read_text())
    return 0


def _events(group: Path | None) -> str:
    for name in ("memory.oom_control", "memory.events"):
        if group is not None and (group / name).exists():
            values = dict(line.split() for line in (group / name).read_text().splitlines())
            return f"{values.get('oom_kill', '?')} killed"
    return "not known"


PARTS: Final[dict[str, Callable[..., list[Row]]]] = {"start": starts, "memory": memories, "rates": rates}


@contextmanager
def bench_in(folder: Path, python: str = sys.executable) -> Iterator[Bench]:
    """Have the namespace and the upstream."""
    node = NetNamespace()
    try:
        bench = Bench(node, folder, python)
        with bench.nginx("upstream", _SERVES, _UPSTREAM, bench.far):
            yield bench
    finally:
        node.close()
