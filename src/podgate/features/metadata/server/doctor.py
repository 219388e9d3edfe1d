"""doctor: is the metadata proxy of this node in the way of Pods, and does it work?

Here: what can be looked at from the node itself, a verdict per line. Not here: the node's rules (``podgate metadata
plan`` compares them), the DaemonSet and the node's label (an API would be needed).
Invariant: it only looks; what it cannot look at is ``unknown``, never ``ok``.
"""

import json
import os
import socket
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from podgate.features.metadata.settings import LOCAL_ADDRESS, Settings, address_and_port
from podgate.targets.listeners.holders import holders_of

SUMMARY: Final = "Say what is right and wrong with the metadata proxy of this node, a verdict per line."

ASKS: Final = ("addr", "metrics_addr", "profile", "firewall", "upstream")
"""The settings that say where to look."""

Verdict = Literal["ok", "bad", "unknown"]

KUBE_ENV: Final = "/computeMetadata/v1/instance/attributes/kube-env"
_SECRET_PATHS: Final = {
    "gce": KUBE_ENV,
    "v0.1.12": KUBE_ENV,
    "aws": "/latest/meta-data/iam/security-credentials/",
    "azure": "/metadata/identity/oauth2/token?api-version=2018-02-01",
    "openstack": "/openstack/latest/user_data",
}
_OTHERS: Final = frozenset({"metadata-proxy", "kube2iam", "kiam", "nmi", "eks-pod-identity", "gke-metadata-se"})
"""Names of processes (15 characters of them, proc(5)) that answer for a metadata server themselves."""

_SECONDS: Final = 3.0


class Finding(NamedTuple):
    """One line: what was looked at, the verdict, and what was seen."""

    name: str
    verdict: Verdict
    seen: str


def answer(settings: Settings, *, as_json: bool) -> tuple[str, int]:
    """Give what was found, as text or JSON, and the exit code: 1 when something is bad."""
    found = list(examine(settings))
    code = 1 if any(finding.verdict == "bad" for finding in found) else 0
    if as_json:
        return json.dumps([finding._asdict() for finding in found], indent=2), code
    return "\n".join(f"{finding.verdict:<8}{finding.name}: {finding.seen}" for finding in found), code


def examine(settings: Settings) -> Iterator[Finding]:
    """Look at everything in turn."""
    address, port = settings.listen
    local = LOCAL_ADDRESS if address.is_unspecified else str(address)
    here = _address(local)
    yield here
    ports = [(port, "the proxy")] + ([(port - 1, "what 8080 is redirected to")] if settings.firewall else [])
    for number, what in ports:
        yield _holder(number, what)
    if here.verdict == "ok":
        yield _secret(local, port, settings.cloud.name)
    else:
        yield Finding("a secret", "unknown", f"not asked for: {local} may be anybody's")
    host, upstream_port = settings.upstream_address
    yield _reachable(str(host), upstream_port)
    yield _others(holders_of(port))
    if settings.metrics_addr:
        yield _denials(settings.metrics_addr)


def _address(address: str) -> Finding:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return Finding("address", "bad", f"{address} is no address of this node: redirected packets go nowhere")
    return Finding("address", "ok", f"{address} is this node's")


def _holder(port: int, what: str) -> Finding:
    holders = holders_of(port)
    if not holders:
        return Finding(f"port {port}", "bad", f"no process that can be seen from here listens ({what})")
    return Finding(f"port {port}", "ok", f"{', '.join(holders)} ({what})")


def _secret(address: str, port: int, cloud: str) -> Finding:
    path = _SECRET_PATHS[cloud]
    answer = _ask(address, port, path)
    if answer.startswith(b"HTTP/1.1 403 "):
        return Finding("a secret", "ok", f"{path} is refused with 403")
    if not answer:
        return Finding("a secret", "bad", f"nobody answers on {address}:{port}: Pods get no metadata at all")
    return Finding("a secret", "bad", f"{path} was answered with {answer.split(b' ', 2)[1].decode('ascii', 'replace')}")


def _reachable(host: str, port: int) -> Finding:
    try:
        with socket.create_connection((host, port), _SECONDS):
            return Finding("upstream", "ok", f"{host}:{port} takes connections")
    except OSError as error:
        return Finding("upstream", "bad", f"{host}:{port} cannot be reached: {error.strerror or error}")


def _others(own: list[str]) -> Finding:
    """Look for other agents on this node's network; the drop-in may have an old agent's name itself."""
    named = sorted(f"process {pid} ({name})" for pid, name in _processes() if name in _OTHERS)
    found = [each for each in named if each not in own]
    if found:
        return Finding("other agents", "bad", f"{', '.join(found)} may answer in this one's place: stop one of them")
    return Finding("other agents", "ok", "none by the names that are known")


def _processes() -> Iterator[tuple[int, str]]:
    here = os.readlink("/proc/thread-self/ns/net")  # noqa: PTH115 - names of /proc
    for entry in os.listdir("/proc"):  # noqa: PTH208 - as above
        if entry.isdecimal():
            try:
                if os.readlink(f"/proc/{entry}/ns/net") != here:  # noqa: PTH115 - as above
                    continue
                with open(f"/proc/{entry}/comm", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - as above
                    yield int(entry), file.read().strip()
            except OSError:
                continue  # ended meanwhile


def _denials(metrics_addr: str) -> Finding:
    address, port = address_and_port(metrics_addr)
    lines = _ask(str(address), port, "/metrics").decode("utf-8", "replace").splitlines()
    counts = [line.rpartition(" ")[2] for line in lines if line.startswith("request_count{") and "blocked" in line]
    if not lines:
        return Finding("denials", "unknown", f"nobody serves metrics on {metrics_addr}")
    return Finding("denials", "ok", f"{sum(map(float, counts)):.0f} requests refused since the proxy started")


def _ask(address: str, port: int, path: str) -> bytes:
    """Give the answer to a GET as clients send it; empty when there is none."""
    head = f"GET {path} HTTP/1.1\r\nHost: 169.254.169.254\r\nMetadata-Flavor: Google\r\nMetadata: true\r\n"
    try:
        with socket.create_connection((address, port), _SECONDS) as asking:
            asking.sendall(f"{head}Connection: close\r\n\r\n".encode())
            return b"".join(iter(lambda: asking.recv(65536), b""))
    except OSError:
        return b""
