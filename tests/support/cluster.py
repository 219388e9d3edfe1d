"""A Kubernetes control plane on loopback: etcd, kube-apiserver and kube-controller-manager, in a folder of their own.

Here: certificates, kubeconfigs, starting, waiting, stopping one part or all. Not here: building the programs
(controlplane.py), nodes: the lab joins as those (podgate lab up --kubeconfig).
Invariant: it listens on 127.0.0.1 alone; what it starts ends with the thread that started it (PR_SET_PDEATHSIG) unless
it was told to outlive that.
"""

import base64
import json
import os
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.support.controlplane import build
from tests.support.poll import poll
from tests.support.ports import own_ports

PARTS: Final = ("etcd", "kube-apiserver", "kube-controller-manager")
ADVERTISED: Final = "172.30.0.1"
"""Where Pods find the API server: no address of this machine; the lab's network has it and relays."""

SERVICES: Final = "10.96.0.0/16,fd00:10:96::/112"
_READY: Final = 90.0

_OPENSSL: Final = f"""\
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[client]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = DNS:localhost, DNS:kubernetes, DNS:kubernetes.default, DNS:kubernetes.default.svc, IP:127.0.0.1, \
IP:10.96.0.1, IP:{ADVERTISED}
"""


class Ports(msgspec.Struct, frozen=True):
    """The loopback ports of one control plane."""

    etcd: int
    peers: int
    api: int
    controllers: int


class ControlPlane:
    """One control plane.

    Args:
        folder: everything of it; made when missing. Starting again in the same folder keeps objects and certificates.
        programs: where the programs are.
        outlives: whether its processes go on when the caller ends.
        audited: users whose requests the API server notes in ``audit_log``.
    """

    def __init__(self, folder: Path, programs: Path, *, outlives: bool = False, audited: Sequence[str] = ()) -> None:
        self.folder = folder
        self._programs = programs
        self._outlives = outlives
        self._audited = tuple(audited)
        self.audit_log = folder / "audit.log"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        (folder / "pki").mkdir(parents=True, exist_ok=True)
        kept = folder / "ports.json"
        if not kept.exists():
            kept.write_bytes(msgspec.json.encode(Ports(*own_ports(4))))
        self.ports = msgspec.json.decode(kept.read_bytes(), type=Ports)
        self._make_authority()

    # --- who may do what --------------------------------------------------------------------------------------

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.ports.api}"

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig that may do everything."""
        return self.login("admin", "system:masters")

    def login(self, user: str, *groups: str) -> Path:
        """Give a kubeconfig with a client certificate for a user in some groups."""
        path = self.folder / f"{user.replace(':', '-')}.kubeconfig"
        if not path.exists():
            certificate, key = self._certificate(user.replace(":", "-"), user, groups, "client")
            user_entry = {"client-certificate-data": _encoded(certificate), "client-key-data": _encoded(key)}
            path.write_text(json.dumps(self._kubeconfig(user_entry)))
            path.chmod(0o600)
        return path

    def _kubeconfig(self, user: Mapping[str, str]) -> dict[str, Any]:
        authority = _encoded(self.folder / "pki" / "ca.crt")
        cluster = {"server": self.server, "certificate-authority-data": authority}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "podgate",
            "clusters": [{"name": "podgate", "cluster": cluster}],
            "users": [{"name": "podgate", "user": user}],
            "contexts": [{"name": "podgate", "context": {"cluster": "podgate", "user": "podgate"}}],
        }

    def _make_authority(self) -> None:
        pki = self.folder / "pki"
        (pki / "openssl.cnf").write_text(_OPENSSL)
        if not (pki / "ca.crt").exists():
            self._request("ca", "/CN=podgate test cluster", "authority")
        if not (pki / "accounts.key").exists():
            curve = ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"]
            _openssl("genpkey", *curve, "-out", str(pki / "accounts.key"))
            _openssl("pkey", "-in", str(pki / "accounts.key"), "-pubout", "-out", str(pki / "accounts.pub"))
        self._certificate("server", "kube-apiserver", (), "server")
        self._certificate("kubelets", "kube-apiserver-kubelet-client", ("system:masters",), "client")

    def _certificate(self, file: str, user: str, groups: Sequence[str], kind: str) -> tuple[Path, Path]:
        pki = self.folder / "pki"
        if not (pki / f"{file}.crt").exists():
            subject = "".join(f"/O={group}" for group in groups) + f"/CN={user}"
            self._request(file, subject, kind, "-CA", str(pki / "ca.crt"), "-CAkey", str(pki / "ca.key"))
        return pki / f"{file}.crt", pki / f"{file}.key"

    def _request(self, file: str, subject: str, extensions: str, *more: str) -> None:
        pki = self.folder / "pki"
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", str(pki / f"{file}.key")]
        named = ["-subj", subject, "-extensions", extensions, "-config", str(pki / "openssl.cnf"), "-days", "3650"]
        _openssl("req", "-x509", "-sha256", *key, *named, *more, "-out", str(pki / f"{file}.crt"))

    # --- running ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all parts and wait until they work."""
        for part in PARTS:
            self.start_part(part)

    def start_part(self, part: str) -> None:
        """Start one part and wait until it works."""
        words = {"etcd": self._etcd, "kube-apiserver": self._apiserver, "kube-controller-manager": self._controllers}
        lead = ["setsid"] if self._outlives else ["setpriv", "--pdeathsig", "KILL"]
        log = self.folder / f"{part}.log"
        with log.open("ab") as stream:
            self.processes[part] = subprocess.Popen(
                [*lead, str(self._programs / part), *words[part]()],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                env={**os.environ, "GOMAXPROCS": "2"},
            )
        works = {"etcd": self._etcd_works, "kube-apiserver": self.ready, "kube-controller-manager": self._controls}[
            part
        ]
        process = self.processes[part]
        try:
            poll(lambda: works() or process.poll() is not None, timeout=_READY)
        except AssertionError as error:
            raise AssertionError(f"{part} did not become ready: {_tail(log)}") from error
        if process.poll() is not None:
            raise AssertionError(f"{part} ended with {process.returncode}: {_tail(log)}")

    def stop_part(self, part: str, number: int = signal.SIGKILL) -> None:
        """End one part by a signal and wait for its end."""
        process = self.processes.pop(part)
        process.send_signal(number)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def stop(self) -> None:
        """End all parts that run."""
        for part in reversed(PARTS):
            if part in self.processes:
                self.stop_part(part)

    def _etcd(self) -> list[str]:
        clients, peers = (f"http://127.0.0.1:{port}" for port in (self.ports.etcd, self.ports.peers))
        return [
            "--name=podgate", f"--data-dir={self.folder / 'etcd'}", "--log-level=warn", "--unsafe-no-fsync",
            f"--listen-client-urls={clients}", f"--advertise-client-urls={clients}",
            f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=podgate={peers}",
        ]  # fmt: skip

    def _apiserver(self) -> list[str]:
        pki = self.folder / "pki"
        return [
            f"--etcd-servers=http://127.0.0.1:{self.ports.etcd}", "--bind-address=127.0.0.1",
            f"--secure-port={self.ports.api}", f"--advertise-address={ADVERTISED}",
            f"--tls-cert-file={pki / 'server.crt'}", f"--tls-private-key-file={pki / 'server.key'}",
            f"--client-ca-file={pki / 'ca.crt'}", "--authorization-mode=Node,RBAC", "--allow-privileged=true",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={pki / 'accounts.pub'}",
            f"--service-account-signing-key-file={pki / 'accounts.key'}",
            f"--service-cluster-ip-range={SERVICES}", "--profiling=false",
            f"--kubelet-client-certificate={pki / 'kubelets.crt'}", f"--kubelet-client-key={pki / 'kubelets.key'}",
            # The lab's nodes serve their logs on this machine's loopback, which they register as InternalDNS.
            "--kubelet-preferred-address-types=InternalDNS,InternalIP",
            *self._audit(),
        ]  # fmt: skip

    def _audit(self) -> list[str]:
        if not self._audited:
            return []
        rules = [{"level": "Metadata", "users": self._audited, "omitStages": ["RequestReceived"]}, {"level": "None"}]
        policy = self.folder / "audit-policy.json"
        policy.write_text(json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules}))
        self.audit_log.touch()
        return [f"--audit-policy-file={policy}", f"--audit-log-path={self.audit_log}"]

    def _controllers(self) -> list[str]:
        pki = self.folder / "pki"
        return [
            f"--kubeconfig={self.login('system:kube-controller-manager')}", "--leader-elect=false",
            "--bind-address=127.0.0.1", f"--secure-port={self.ports.controllers}",
            f"--service-account-private-key-file={pki / 'accounts.key'}", f"--root-ca-file={pki / 'ca.crt'}",
            f"--cluster-signing-cert-file={pki / 'ca.crt'}", f"--cluster-signing-key-file={pki / 'ca.key'}",
            "--use-service-account-credentials=true", "--allocate-node-cidrs=false", "--profiling=false",
        ]  # fmt: skip

    def _etcd_works(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.ports.etcd), 1.0).close()
        except OSError:
            return False
        return True

    def ready(self) -> bool:
        """Whether the API server says that it is ready."""
        return self.get("/readyz")[0] == 200

    def _controls(self) -> bool:
        # Only a controller makes this account, and no Pod can be made without it.
        return self.get("/api/v1/namespaces/default/serviceaccounts/default")[0] == 200

    def get(self, path: str) -> tuple[int, bytes]:
        """Ask the API server as its administrator; (0, why) when it does not answer."""
        return self.request("GET", path)

    def table(self, path: str) -> list[dict[str, Any]]:
        """Give what kubectl would print of a list: the server makes it a table (KEP "server-side get")."""
        code, answer = self.request("GET", path, accept="application/json;as=Table;v=v1;g=meta.k8s.io")
        assert code == 200, answer
        table = json.loads(answer)
        names = [column["name"] for column in table["columnDefinitions"]]
        return [dict(zip(names, row["cells"], strict=True)) for row in table["rows"]]

    def request(
        self, method: str, path: str, body: Any = None, *, accept: str = "application/json"
    ) -> tuple[int, bytes]:
        """Send a request with a JSON body as the administrator: a second opinion, by none of podgate's code."""
        connection = self.connection()
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {"Content-Type": "application/json", "Accept": accept})
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, HTTPException) as error:
            return 0, str(error).encode()
        finally:
            connection.close()

    def connection(self) -> HTTPSConnection:
        """Give a connection to the API server as its administrator; whoever asked closes it."""
        context = ssl.create_default_context(cafile=str(self.folder / "pki" / "ca.crt"))
        certificate, key = self._certificate("admin", "admin", ("system:masters",), "client")
        context.load_cert_chain(certificate, key)
        return HTTPSConnection("127.0.0.1", self.ports.api, timeout=60, context=context)


@contextmanager
def control_plane(folder: Path, audited: Sequence[str] = ()) -> Iterator[ControlPlane]:
    """Run a control plane in a folder while the body runs; builds its programs first where they are missing."""
    plane = ControlPlane(folder, build(), audited=audited)
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()


def _openssl(*words: str) -> None:
    done = subprocess.run(["openssl", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"openssl {words[0]} failed: {done.stderr.strip()}")


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _tail(log: Path) -> str:
    return "\n".join([str(log), *log.read_text(errors="replace").splitlines()[-12:]])
