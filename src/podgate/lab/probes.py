"""Probes: asking a container whether it lives, is ready, has started.

Here: one attempt by HTTP, TCP or a command, and counting attempts into verdicts.
Not here: what follows from a verdict (lab/workload.py).
Invariant: a socket is made inside the Pod's network namespace, so 127.0.0.1 is the Pod's own.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from podgate.lab.podspec import Container, HttpGet, Probe, TcpSocket
from podgate.linux.namespaces import inside_network
from podgate.model.frozen import Frozen


class ProbeSource(Frozen, frozen=True):
    """Where a probe works: the network namespace's descriptor, and the Pod's primary address."""

    network: int
    address: str


RunCommand = Callable[[tuple[str, ...]], Awaitable[int]]


def port_of(port: int | str, container: Container) -> int:
    """Give a probe's port; a name is looked up among the container's. Raises ValueError for a name it lacks."""
    if isinstance(port, int):
        return port
    if port.isdigit():
        return int(port)
    for named in container.ports or ():
        if named.name == port:
            return named.container_port
    raise ValueError(f"container {container.name} has no port named {port!r}")


async def connected(source: ProbeSource, host: str, port: int) -> socket.socket:
    """Connect inside the Pod's namespace. Raises OSError."""
    address = host or source.address or "127.0.0.1"
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with inside_network(source.network):
        made = socket.socket(family, socket.SOCK_STREAM)
    made.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(made, (address, port))
    except BaseException:
        made.close()
        raise
    return made


async def _http(source: ProbeSource, probe: HttpGet, container: Container) -> bool:
    made = await connected(source, probe.host, port_of(probe.port, container))
    context = None
    if probe.scheme == "HTTPS":
        context = ssl.create_default_context()
        context.check_hostname = False  # As a kubelet: a probe asks for life, not for identity.
        context.verify_mode = ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(
        sock=made, ssl=context, server_hostname=(probe.host or source.address) if context else None
    )
    try:
        headers = {header.name.lower(): header for header in probe.http_headers}
        lines = [f"GET {probe.path if probe.path.startswith('/') else '/' + probe.path} HTTP/1.1"]
        if "host" not in headers:
            lines.append(f"Host: {probe.host or source.address}:{port_of(probe.port, container)}")
        lines += [f"{header.name}: {header.value}" for header in probe.http_headers]
        lines += ["User-Agent: kube-probe/lab", "Accept: */*", "Connection: close", "", ""]
        writer.write("\r\n".join(lines).encode())
        words = (await reader.readline()).split()
        return len(words) > 1 and words[1].isdigit() and 200 <= int(words[1]) < 400
    finally:
        writer.close()


async def _tcp(source: ProbeSource, probe: TcpSocket, container: Container) -> bool:
    (await connected(source, probe.host, port_of(probe.port, container))).close()
    return True


async def attempt(probe: Probe, container: Container, source: ProbeSource, run: RunCommand) -> bool:
    """Ask once; no answer in time is a failure."""
    try:
        async with asyncio.timeout(max(probe.timeout_seconds, 1)):
            if probe.exec:
                return await run(probe.exec.command) == 0
            if probe.http_get:
                return await _http(source, probe.http_get, container)
            if probe.tcp_socket:
                return await _tcp(source, probe.tcp_socket, container)
            return True
    except (OSError, ValueError, TimeoutError, ssl.SSLError):
        return False


_EAGER: Final = 0.1
"""Seconds between attempts of a startup or readiness probe before its first success: people wait for it."""


async def verdicts(
    probe: Probe, container: Container, source: ProbeSource, run: RunCommand, *, eager: bool
) -> AsyncIterator[bool]:
    """Give True or False each time that enough attempts in a row agree, for as long as somebody listens.

    With ``eager`` (startup, readiness) attempts follow each other quickly before the first success, for at most one
    period, and those that fail do not count.
    """
    loop = asyncio.get_running_loop()
    await asyncio.sleep(probe.initial_delay_seconds)
    period = max(probe.period_seconds, 1)
    patience = loop.time() + period if eager else 0.0
    while loop.time() < patience:
        if await attempt(probe, container, source, run):
            break
        await asyncio.sleep(_EAGER)
    streak, last = 0, None
    while True:
        good = await attempt(probe, container, source, run)
        streak = streak + 1 if good == last else 1
        last = good
        if streak == max(probe.success_threshold if good else probe.failure_threshold, 1):
            yield good
        await asyncio.sleep(period)
