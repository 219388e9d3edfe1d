"""The contestants: our proxy, nginx and Go's reverse proxy, in front of one upstream; and the load on them.

Here: how each is started, asked and loaded, what it costs. Not here: the figures (proxying.py), limits (cgroups.py).
Invariant: contestants and load run inside network namespaces of their own, the contestant on one core, upstream and
load on the other; a run takes seconds.

    pod 10.244.1.2  --  node 10.244.1.1: the contestants, the upstream, the load
"""

import contextlib
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.figures.cgroups import Cgroup
from benchmarks.support import cpus, installed, pinned, say
from podgate.linux.namespaces import inside_network
from podgate.linux.processes import die_with_parent
from tests.support.netns import NetNamespace
from tests.support.poll import happens

ZONE: Final = "/computeMetadata/v1/instance/zone"
CLOUD: Final = ("169.254.169.254", 80)
"""Where a Pod asks: with the node's rules our proxy answers."""
OURS: Final = 988
NGINX: Final = 8081
GO: Final = 8082
PAGES: Final = 989
_UPSTREAM: Final = 8080
_HEAD: Final = f"GET {ZONE} HTTP/1.1\r\nHost: 169.254.169.254\r\nMetadata-Flavor: Google\r\n\r\n".encode()
_GO: Final = Path(__file__).resolve().parents[1] / "goproxy"
_PROGRAM: Final = "goproxy.bin"

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
    f" server {{ listen 127.0.0.1:{NGINX}; location / {{ proxy_pass http://u; proxy_http_version 1.1;"
    ' proxy_set_header Connection ""; } }'
)
_PAUSES: Final = """
function init(words) pause = tonumber(words[1]) end
function delay() return pause and math.random(0, 2 * pause) or 0 end
"""
"""For wrk: how long each connection waits before a request, in milliseconds."""


class Load(NamedTuple):
    """What wrk saw, and the CPU seconds that the contestant used per request; ``errors`` is empty without any."""

    rate: float
    half: str
    most: str
    cpu: float
    errors: str = ""


class Contestant(NamedTuple):
    """A proxy that runs.

    Attributes:
        port: where it listens.
        pids: its processes that serve.
    """

    port: int
    pids: tuple[int, ...]

    def seconds(self) -> float:
        """Give the seconds that it spent on a CPU."""
        return sum(_cpu(pid) for pid in self.pids)

    def anonymous(self) -> int:
        """Give its anonymous memory in bytes."""
        return sum(_anonymous(pid) for pid in self.pids)


class Bench:
    """The namespaces, with the upstream in one.

    Args:
        python: the interpreter of our proxy.
    """

    def __init__(self, node: NetNamespace, pod: NetNamespace, folder: Path, python: str) -> None:
        self.node = node
        self.pod = pod
        self.folder = folder
        self.python = python
        self.far, self.near = cpus()
        (folder / "pauses.lua").write_text(_PAUSES)

    @cached_property
    def has_go(self) -> bool:
        """Whether Go's contestant could be built."""
        return _built(self.folder)

    @contextmanager
    def started(
        self, cpu: int, command: Sequence[str], log: str, group: Cgroup | None = None
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Have a process on one core, in a cgroup if there is one."""
        with pinned(cpu), inside_network(self.node.descriptor), (self.folder / log).open("wb") as output:
            process = subprocess.Popen(
                command if group is None else group.wrapped(command),
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
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    @contextmanager
    def upstream(self) -> Iterator[None]:
        """Have the metadata server, on the core of the load."""
        with self._nginx("upstream", _SERVES, _UPSTREAM, self.far):
            yield

    @contextmanager
    def nginx(self, group: Cgroup | None = None) -> Iterator[Contestant]:
        """Have nginx as a plain reverse proxy, with one worker."""
        with self._nginx("nginx", _PROXIES, NGINX, self.near, group) as found:
            yield found

    @contextmanager
    def _nginx(self, name: str, http: str, port: int, cpu: int, group: Cgroup | None = None) -> Iterator[Contestant]:
        conf = self.folder / f"{name}.conf"
        conf.write_text(_NGINX_CONF.format(folder=self.folder, name=name, http=http))
        with self.started(cpu, ("nginx", "-c", str(conf)), name, group) as process:
            self.until_answered(port)
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            yield Contestant(port, (process.pid, *map(int, children)))

    @contextmanager
    def go(self, group: Cgroup | None = None) -> Iterator[Contestant]:
        """Have Go's reverse proxy."""
        words = ("-listen", f"127.0.0.1:{GO}", "-upstream", f"http://127.0.0.1:{_UPSTREAM}")
        with self.started(self.near, (str(self.folder / _PROGRAM), *words), "go", group) as process:
            self.until_answered(GO)
            yield Contestant(GO, (process.pid,))

    @contextmanager
    def ours(
        self, *flags: str, group: Cgroup | None = None, rules: bool = False, seconds: float = 20.0
    ) -> Iterator[Contestant]:
        """Have our proxy; with ``rules`` as on a node, from the moment on at which it answers a Pod."""
        words = ("metadata", "run", "--upstream", f"http://127.0.0.1:{_UPSTREAM}")
        place = () if rules else ("--addr", f"127.0.0.1:{OURS}", "--no-firewall")
        command = (self.python, "-m", "podgate.cli", *words, *place, *flags)
        with self.started(self.near, command, "ours", group) as process:
            if rules:
                # A packet from before the rules is lost here, and TCP would send it again after a second.
                patience = 0.05 if group is None else 0.5
                self.until(lambda: self._answers(self.pod, CLOUD, patience), "no Pod is answered", seconds)
            else:
                self.until_answered(OURS, seconds)
            yield Contestant(OURS, (process.pid,))

    def clean(self) -> None:
        """Take the node's rules away."""
        with inside_network(self.node.descriptor):
            subprocess.run(
                (self.python, "-m", "podgate.cli", "metadata", "clean"),
                env=installed(),
                check=True,
                stdout=subprocess.DEVNULL,
            )

    def until_answered(self, port: int, seconds: float = 20.0) -> None:
        """Wait for the first answer. Raises RuntimeError."""
        self.until(lambda: self.answers(port), f"nobody answers on port {port}", seconds)

    def until(self, condition: Callable[[], bool], otherwise: str, seconds: float) -> None:
        """Wait. Raises RuntimeError."""
        if not happens(condition, seconds):
            logs = "\n".join(
                path.read_text()[-400:] for path in (self.folder / "ours", self.folder / "go") if path.exists()
            )
            raise RuntimeError(f"{otherwise}: {logs}")

    def answers(self, port: int) -> bool:
        """Say whether a request is answered."""
        return self._answers(self.node, ("127.0.0.1", port), 1.0)

    def _answers(self, place: NetNamespace, address: tuple[str, int], seconds: float) -> bool:
        with contextlib.suppress(OSError), _connected(place, address, seconds) as asking:
            asking.sendall(_HEAD)
            return asking.recv(4096).startswith(b"HTTP/1.1 200")
        return False

    def connected(self, port: int) -> socket.socket:
        """Give a connection from inside."""
        return _connected(self.node, ("127.0.0.1", port), 10.0)

    def load(self, contestant: Contestant, connections: int, seconds: int, pause: int = 0) -> Load:
        """Load a contestant with wrk; ``pause`` is how long each connection rests between requests, in milliseconds."""
        command = ["wrk", "--latency", "-t1", f"-c{connections}", f"-d{seconds}", "-H", "Metadata-Flavor: Google"]
        url = f"http://127.0.0.1:{contestant.port}{ZONE}"
        paced = ["-s", str(self.folder / "pauses.lua"), url, str(pause)] if pause else [url]
        before = contestant.seconds()
        with pinned(self.far), inside_network(self.node.descriptor):
            said = subprocess.run([*command, *paced], capture_output=True, text=True, check=True).stdout
        count = int(_found(r"(\d+) requests in", said))
        return Load(
            float(_found(r"Requests/sec:\s*([\d.]+)", said)),
            _found(r"^\s+50%\s+(\S+)", said),
            _found(r"^\s+99%\s+(\S+)", said),
            (contestant.seconds() - before) / max(1, count),
            "; ".join(line.strip() for line in said.splitlines() if "Non-2xx" in line or "Socket errors" in line),
        )


def _built(folder: Path) -> bool:
    """Build Go's contestant, where Go is."""
    go = shutil.which("go")
    if go is None:
        say("no Go here: its reverse proxy is left out")
        return False
    subprocess.run((go, "build", "-o", str(folder / _PROGRAM), "."), cwd=_GO, check=True)
    return True


def _connected(place: NetNamespace, address: tuple[str, int], seconds: float) -> socket.socket:
    with inside_network(place.descriptor):
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.settimeout(seconds)
    try:
        made.connect(address)
    except OSError:
        made.close()
        raise
    return made


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.MULTILINE)
    if match is None:
        raise RuntimeError(f"wrk did not say {pattern}:\n{text}")
    return match.group(1)


def _cpu(pid: int) -> float:
    """Give the seconds that a process spent on a CPU, with all its threads; 0 when it is gone."""
    total = 0.0
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0]) / 1e9
    return total


def _anonymous(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


@contextmanager
def bench_in(folder: Path, python: str = sys.executable) -> Iterator[Bench]:
    """Have the namespaces and the upstream."""
    with contextlib.ExitStack() as stack:
        node, pod = NetNamespace(), NetNamespace()
        stack.callback(node.close)
        stack.callback(pod.close)
        node.sysctl("ipv4.ip_forward", "1")
        pod.connect("eth0", node, "pod0")
        node.run("ip", "addr", "add", "10.244.1.1/24", "dev", "pod0")
        pod.run("ip", "addr", "add", "10.244.1.2/24", "dev", "eth0")
        pod.run("ip", "route", "add", "default", "via", "10.244.1.1")
        bench = Bench(node, pod, folder, python)
        stack.enter_context(bench.upstream())
        yield bench
