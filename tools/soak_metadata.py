"""``./dev soak metadata``: a crowd of good, slow, leaving and hostile clients in front of a fake cloud.

Here: the clients, and what must hold every few seconds. Not here: speed (benchmarks/).
Invariant: whatever the crowd does, a new request is answered and no answer holds a secret; the proxy does not grow.
"""

import asyncio
import contextlib
import json
import random
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from benchmarks.support import descriptors, installed, memory_kb
from podgate.linux.namespaces import inside_network
from podgate.linux.processes import die_with_parent
from tests.support.netns import NetNamespace, netns
from tests.support.poll import happens
from tools.soaking import CHECK_EVERY, Deeds

CROWD: Final = 150
"""Clients at a time; each does one thing after another."""

GROWTH_KB: Final = 3 * 1024
"""KiB by which the proxy may grow after the first minute, or after half of the time if that is shorter."""

ANSWER_SECONDS: Final = 20.0
"""Seconds in which a new request must be answered: for what never comes, since the machine may be busy with more."""

_LONGEST: Final = 10.0
"""Seconds that a client takes for one thing; nobody begins another one when so many are left."""

_PORT: Final = 988
_ROOT: Final = "/computeMetadata/v1"
_ACCOUNT: Final = "/instance/service-accounts/default/?recursive=true"
_GOOD: Final = ("/instance/zone", "/instance/id", "/project/project-id", _ACCOUNT)
_BAD: Final = (
    *("/instance/attributes/kube-env", "/instance/attributes//kube-env", "/instance/attributes/kube%2Denv"),
    *("/instance/?recursive=true", "/instance/?alt=text;recursive=true", "/instance/attributes/KUBE-ENV"),
    *("/instance/service-accounts/default/identity?audience=x", "/instance/attributes/kube-env/", "/../v2/"),
)
_JUNK: Final = (b"GET / HTTP/1.1\n\n", b"\x16\x03\x01\x02", b"GET " + b"a" * 9000, b"X: y\r\n\r\n", b"\0" * 100)


def _get(target: str, *headers: str) -> bytes:
    lines = [f"GET {_ROOT}{target} HTTP/1.1", "Host: 169.254.169.254", "Metadata-Flavor: Google", *headers, "", ""]
    return "\r\n".join(lines).encode()


class Crowd:
    """Clients that do as chance has it.

    Attributes:
        deeds: what they do.
        failures: what did not hold.
        first: KiB of the proxy once it was warm; 0 before that.
    """

    def __init__(self, chance: random.Random, secrets: list[bytes]) -> None:
        self._chance = chance
        self._secrets = secrets
        self.failures: list[str] = []
        self.first = 0
        deeds: dict[str, tuple[int, Callable[[], Awaitable[None]]]] = {
            "kept connections": (30, self._kept),
            "denied": (20, self._denied),
            "pipelines": (8, self._pipeline),
            "leaving": (10, self._leaving),
            "long polls": (8, self._poll),
            "slow heads": (6, self._slow_head),
            "slow readers": (6, self._slow_reader),
            "silent": (6, self._silent),
            "junk": (10, self._junk),
        }
        self.deeds = Deeds(chance, deeds)

    async def run(self, until: float) -> None:
        """Do one thing after another, and be through by then."""
        while time.monotonic() < until - _LONGEST:
            _, deed = self.deeds.next()
            with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                async with asyncio.timeout(_LONGEST):
                    await deed()

    async def ask(self, data: bytes, seconds: float = 5.0) -> bytes:
        """Send, and give all until the end."""
        reader, writer = await asyncio.open_connection("127.0.0.1", _PORT)
        try:
            writer.write(data)
            async with asyncio.timeout(seconds):
                answer = await reader.read()
        finally:
            writer.transport.abort()
        self._look(answer, data)
        return answer

    def _look(self, answer: bytes, data: bytes) -> None:
        if any(secret in answer for secret in self._secrets):
            self.failures.append(f"a secret got out: {data[:200]!r}")

    async def _kept(self) -> None:
        requests = [_get(self._chance.choice(_GOOD)) for _ in range(self._chance.randrange(1, 30))]
        reader, writer = await asyncio.open_connection("127.0.0.1", _PORT)
        try:
            for request in requests:
                writer.write(request)
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
                self._look(head + await reader.readexactly(length), request)
        finally:
            writer.transport.abort()

    async def _denied(self) -> None:
        answer = await self.ask(_get(self._chance.choice(_BAD), "Connection: close"))
        if answer and not answer.startswith((b"HTTP/1.1 403", b"HTTP/1.1 503")):
            self.failures.append(f"not refused: {answer[:200]!r}")

    async def _pipeline(self) -> None:
        targets = self._chance.choices((*_GOOD, *_BAD), k=20)
        await self.ask(b"".join(map(_get, targets)) + _get("/instance/id", "Connection: close"))

    async def _leaving(self) -> None:
        with contextlib.suppress(TimeoutError):
            await self.ask(_get(self._chance.choice(_GOOD)), self._chance.uniform(0.0, 0.01))

    async def _poll(self) -> None:
        seconds = self._chance.randrange(1, 4)
        await self.ask(_get(f"/instance/tags?wait_for_change=true&timeout_sec={seconds}", "Connection: close"))

    async def _slow_head(self) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", _PORT)
        try:
            for byte in _get("/instance/id")[: self._chance.randrange(40)]:
                writer.write(bytes((byte,)))
                await asyncio.sleep(0.05)
        finally:
            writer.transport.abort()

    async def _slow_reader(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", _PORT, limit=256)
        try:
            writer.write(_get(_ACCOUNT) * 50)
            for _ in range(20):
                await reader.read(200)
                await asyncio.sleep(0.05)
        finally:
            writer.transport.abort()

    async def _silent(self) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", _PORT)
        await asyncio.sleep(self._chance.uniform(0.0, 5.0))
        writer.transport.abort()

    async def _junk(self) -> None:
        await self.ask(self._chance.choice(_JUNK), 0.2)

    async def check(self) -> None:
        """See that a new request is answered, and soon."""
        began = time.monotonic()
        try:
            answer = await self.ask(_get("/instance/id", "Connection: close"), ANSWER_SECONDS)
        except (OSError, TimeoutError) as error:
            self.failures.append(f"a new request was not answered in {ANSWER_SECONDS} s: {error!r}")
            return
        if not answer.startswith(b"HTTP/1.1 200"):
            self.failures.append(f"a new request got {answer[:60]!r} after {time.monotonic() - began:.1f} s")


def _started(node: NetNamespace, log: Path, *words: str) -> subprocess.Popen[bytes]:
    with inside_network(node.descriptor), log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", *words],
            env=installed(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - one thread; nothing outlives a killed soak
        )


def soak(folder: Path, seconds: float, chance: random.Random) -> list[str]:
    """Let the crowd at it for some seconds; give what did not hold."""
    with netns() as node, contextlib.ExitStack() as stack:
        processes = []
        for name, words in (
            ("cloud", ("podgate.lab.peers.clouds", "gce", "--listen", "127.0.0.1:80")),
            ("proxy", ("podgate.cli", "metadata", "run", "--addr", f"127.0.0.1:{_PORT}", "--no-firewall")),
        ):
            more = ("--upstream", "http://127.0.0.1:80") if name == "proxy" else ()
            process = _started(node, folder / name, *words, *more)
            stack.callback(process.wait, 10)
            stack.callback(process.terminate)
            processes.append(process)
        if not happens(lambda: '"listeners"' in (folder / "proxy").read_text(), 60.0):
            return [f"the proxy did not start:\n{(folder / 'proxy').read_text()[-2000:]}"]
        if not happens(lambda: "\n" in (folder / "cloud").read_text(), 60.0):
            return ["the cloud did not start"]
        said = json.loads((folder / "cloud").read_text().splitlines()[0])["secrets"]
        concealed = [word.encode() for name, word in said.items() if name != "token"]
        crowd = Crowd(chance, concealed)
        node.run_async(lambda: _run(crowd, processes[1], seconds))
        if not crowd.failures:
            crowd.failures += _grown(crowd, processes[1].pid)
        log = (folder / "proxy").read_text()
        return crowd.failures + ["a traceback is in the proxy's log"] * ("Traceback" in log)


async def _run(crowd: Crowd, proxy: subprocess.Popen[bytes], seconds: float) -> None:
    began = time.monotonic()
    warm = min(60.0, seconds / 2)
    async with asyncio.TaskGroup() as group:
        for _ in range(CROWD):
            group.create_task(crowd.run(began + seconds))
        while time.monotonic() < began + seconds and not crowd.failures:
            await asyncio.sleep(min(CHECK_EVERY, seconds / 4))
            await crowd.check()
            if proxy.poll() is not None:
                crowd.failures.append(f"the proxy ended with {proxy.returncode}")
                break
            size = memory_kb(proxy.pid)[0], descriptors(proxy.pid)
            spent = time.monotonic() - began
            if not crowd.first and spent > warm:
                crowd.first = size[0]
            print(f"{spent:6.0f} s  answered; {crowd.deeds}; {size[0]} KiB, {size[1]} descriptors", flush=True)


def _grown(crowd: Crowd, pid: int) -> list[str]:
    """Say what the crowd left behind and should not have."""
    found = []
    if not happens(lambda: descriptors(pid) <= 20, 60.0, pause=0.2):
        found.append(f"{descriptors(pid)} descriptors are open although the crowd has gone")
    memory = memory_kb(pid)[0]
    if crowd.first and memory > crowd.first + GROWTH_KB:
        found.append(f"its memory grew from {crowd.first} to {memory} KiB")
    return found
