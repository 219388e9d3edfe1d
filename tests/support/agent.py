"""The agent as users run it: a real process in a network namespace, its pages, its log, and the kernel's rules.

Here: starting, asking and ending one process; reading what nft says the kernel holds. Not here: the product's own
reading of the kernel, which tests of the agent must not trust.
Invariant: no agent outlives the body of its context manager, nor the thread that started it (PR_SET_PDEATHSIG).
"""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from podgate.linux.namespaces import inside_network
from tests.support.netns import NetNamespace
from tests.support.poll import happens, poll

TABLE: Final = "podgate-masquerade"
DEFAULTS: Final = frozenset({"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"})
"""What the kernel keeps while no list is given: the built-in list, and link-local."""

PODGATE: Final = (sys.executable, "-m", "podgate.cli")
_PORT: Final = 10350
_START_SECONDS: Final = 90.0
_ANSWER_SECONDS: Final = 30.0
"""How long a page may take on a busy machine; whoever does not listen refuses at once."""
_LONGEST_LINE: Final = 2_000


class Ended(NamedTuple):
    """A command that ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def podgate(
    *arguments: str | Path,
    namespace: NetNamespace | None = None,
    environ: Mapping[str, str] | None = None,
    under: Sequence[str] = (),
) -> Ended:
    """Run a command that ends by itself; ``under`` are the words of a program that starts it, as setpriv."""
    command = [*under, *PODGATE, *map(str, arguments)]
    entered = inside_network(namespace.descriptor) if namespace else contextlib.nullcontext()
    with entered:
        done = subprocess.run(
            command, env=_environ(environ), capture_output=True, text=True, check=False, timeout=120, cwd="/"
        )
    return Ended(done.returncode, done.stdout, done.stderr)


OF_SHELLS: Final = ("PODGATE_SOURCE", "KUBECONFIG", "NODE_NAME")
"""What a developer's shell may say of objects, which no test shall follow."""


def _environ(changes: Mapping[str, str] | None) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in OF_SHELLS}
    return {**inherited, **(changes or {})}


class Agent:
    """One ``podgate FEATURE run``."""

    def __init__(self, namespace: NetNamespace, process: subprocess.Popen[bytes], log: Path) -> None:
        self.namespace = namespace
        self.process = process
        self.started = time.perf_counter()
        self._log = log

    @classmethod
    def start(cls, namespace: NetNamespace, command: Sequence[str], log: Path, environ: Mapping[str, str]) -> "Agent":
        """Start a command in the namespace, its output at the end of the log; whoever calls ends it."""
        with inside_network(namespace.descriptor), log.open("ab") as output:
            process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command],
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
            )
        return cls(namespace, process, log)

    @property
    def pid(self) -> int:
        return self.process.pid

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def get(self, page: str, port: int = _PORT) -> tuple[int, str]:
        """Ask for a page; (0, "") while nobody listens."""
        with inside_network(self.namespace.descriptor):
            asking = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_ANSWER_SECONDS)
        try:
            asking.settimeout(_ANSWER_SECONDS)
            asking.connect(("127.0.0.1", port))
            connection.sock = asking
            connection.request("GET", page, headers={"Connection": "close"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()
            asking.close()

    def ready(self) -> bool:
        """Say whether it is ready; a process that ended fails the test with its log."""
        assert self.is_alive(), f"the agent ended with {self.process.returncode}:\n{self.text()}"
        return self.get("/readyz")[0] == 200

    def until_ready(self) -> float:
        """Wait until it is ready, and give the seconds since it was started."""
        assert happens(self.ready, _START_SECONDS, pause=0.001), f"not ready; its log:\n{self.text()[-2000:]}"
        return time.perf_counter() - self.started

    def metrics(self, port: int = _PORT) -> dict[str, float]:
        """Give the metrics page as ``name{labels}`` to value."""
        lines = [line for line in self.get("/metrics", port)[1].splitlines() if line and not line.startswith("#")]
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}

    def metric(self, name: str) -> float:
        """Give one metric by its name without prefix, with labels as they are printed; 0 where it is not."""
        return self.metrics().get(f"podgate_masquerade_{name}", 0.0)

    def text(self) -> str:
        return self._log.read_text()

    def log(self, word: str = "") -> list[dict[str, Any]]:
        """Give the log lines whose message holds a word."""
        lines = self.text().split("\n")[:-1]  # what follows the last line break is still being written
        return [line for line in map(json.loads, lines) if word in line["message"]]

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def stop(self, number: int = signal.SIGTERM, seconds: float = 60.0) -> int:
        """Ask it to end, and give its exit code."""
        self.send(number)
        return self.process.wait(seconds)

    def end(self, number: int = signal.SIGTERM) -> None:
        """End it if it still runs, by force if it takes longer than 60 s."""
        if self.is_alive():
            self.send(number)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextmanager
def started(
    namespace: NetNamespace,
    directory: Path,
    *arguments: str | Path,
    environ: Mapping[str, str] | None = None,
    under: Sequence[str] = (),
    feature: str = "masquerade",
) -> Iterator[Agent]:
    """Start an agent and do not wait for anything.

    Its state directory is ``directory/state``, its log ``directory/agent.log``, unless the arguments say otherwise.
    """
    directory.mkdir(exist_ok=True)
    log = directory / "agent.log"
    given = [str(argument) for argument in arguments]
    if "--state-dir" not in given:
        given += ["--state-dir", str(directory / "state")]
    if "--node-name" not in given:
        given += ["--node-name", "node-1"]
    command = [*under, *PODGATE, feature, "run", *given]
    log.unlink(missing_ok=True)
    agent = Agent.start(namespace, command, log, _environ(environ))
    try:
        yield agent
    finally:
        agent.end(signal.SIGKILL)
    long = [line[:200] for line in agent.text().splitlines() if len(line) > _LONGEST_LINE]
    assert not long, "a line of the log says how much was done, and not all of it"


@contextmanager
def running(
    namespace: NetNamespace, directory: Path, *arguments: str | Path, environ: Mapping[str, str] | None = None
) -> Iterator[Agent]:
    """Start an agent and wait until it is ready."""
    with started(namespace, directory, *arguments, environ=environ) as agent:
        agent.until_ready()
        yield agent


class KernelRule(NamedTuple):
    """A rule's comment, without its digest, and its handle, which a rule that is written anew does not keep."""

    comment: str
    handle: int


def nft(namespace: NetNamespace, *words: str) -> list[dict[str, Any]]:
    """Give what ``nft -j list WORDS`` says; nothing when there is no such thing."""
    text = namespace.run("nft", "-j", "list", *words, check=False)
    found: list[dict[str, Any]] = json.loads(text)["nftables"] if text else []
    return [item for item in found if "metainfo" not in item]


def elements(namespace: NetNamespace, name: str = "keep") -> frozenset[str] | None:
    """Give the elements of a set as nft shows them; None when there is no such set."""
    for item in nft(namespace, "set", "ip", TABLE, name):
        if "set" in item:
            return frozenset(map(_shown, item["set"].get("elem", ())))
    return None


def _shown(element: Any) -> str:
    if isinstance(element, str):
        return element
    if "prefix" in element:
        return f"{element['prefix']['addr']}/{element['prefix']['len']}"
    first, last = element["range"]
    return f"{first}-{last}"


def rules(namespace: NetNamespace) -> list[KernelRule]:
    """Give the rules of our table in order."""
    found = [item["rule"] for item in nft(namespace, "table", "ip", TABLE) if "rule" in item]
    return [KernelRule(rule.get("comment", "").rpartition(" [")[0], rule["handle"]) for rule in found]


def is_whole(namespace: NetNamespace, keep: frozenset[str]) -> bool:
    """Say whether the kernel holds the whole table with exactly these destinations."""
    return len(rules(namespace)) == RULES and elements(namespace) == keep


RULES: Final = 5
"""How many rules the table has."""


def watch(condition: Callable[[], bool], during: Callable[[], bool], timeout: float = 60.0) -> None:
    """Poll until ``condition``, and fail as soon as ``during`` does not hold."""

    def both() -> bool:
        assert during(), "what must hold meanwhile did not"
        return condition()

    poll(both, timeout)
