"""Credentials: what an Access names, read from files and programs, renewed when the server no longer takes it.

Here: token files, certificates, exec plugins, in-cluster credentials, the TLS context. Not here: sending
(connection.py).
Invariant: nothing secret is in a message, an argument or a file of ours: keys reach the TLS library through memory.
"""

import asyncio
import contextlib
import os
import shutil
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from podgate.kubeapi.access import Access, AccessError, Exec, InFile, Login, server_mistake
from podgate.kubeapi.kubeconfig import read_kubeconfig
from podgate.model.kinds.meta import ApiStruct
from podgate.model.secret import Secret

IN_CLUSTER: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where a Pod finds its account (kubernetes.io, "Accessing the Kubernetes API from a Pod")."""

PLUGIN_SECONDS: Final = 60.0
"""How long an exec plugin may take."""

_EARLY: Final = 10.0
"""Seconds before their end at which credentials of a plugin are renewed."""

_MOST: Final = 1 << 20


class _Given(ApiStruct, frozen=True, rename="camel"):
    token: str = ""
    expiration_timestamp: datetime | None = None
    client_certificate_data: str = ""
    client_key_data: str = ""


class _Credential(ApiStruct, frozen=True, rename="camel"):
    kind: str = ""
    api_version: str = ""
    status: _Given | None = None


def load_kubeconfig(path: str, context: str = "") -> Access:
    """Read a kubeconfig file; raises AccessError."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - a path is kept as the user wrote it
            data = file.read(_MOST)
    except OSError as error:
        raise AccessError(f"{path}: the kubeconfig cannot be read: {error.strerror}") from error
    return read_kubeconfig(path, data, context)


def in_cluster(environ: Mapping[str, str], folder: str = IN_CLUSTER) -> Access | None:
    """Give the access that a Pod has; None outside of a cluster, or where no account is mounted."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    token = os.path.join(folder, "token")  # noqa: PTH118
    if not host or not port or not os.path.exists(token):  # noqa: PTH110
        return None
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    mistake = server_mistake(server)
    if mistake:
        raise AccessError(f"$KUBERNETES_SERVICE_HOST and $KUBERNETES_SERVICE_PORT: {mistake}")
    authority = InFile(os.path.join(folder, "ca.crt"))  # noqa: PTH118
    access = Access(server, authority, login=Login(token=InFile(token)), origin=folder)
    return msgspec.structs.replace(access, namespace=own_namespace(access, folder))


def own_namespace(access: Access, folder: str = IN_CLUSTER) -> str:
    """Give where our own objects go: a Pod's own namespace, whatever leads it to the API; else the access's."""
    with contextlib.suppress(OSError, AccessError):
        text = _read(InFile(os.path.join(folder, "namespace")), "the namespace").decode().strip()  # noqa: PTH118
        return text or access.namespace
    return access.namespace


class Credentials:
    """The newest credentials for one Access."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self._context: ssl.SSLContext | None = None
        self._given: _Given | None = None
        self._renewing = asyncio.Lock()
        self.generation = 0

    async def headers(self) -> dict[str, str]:
        """Give the headers that log in; raises AccessError. A token file is read each time: kubelets rotate it."""
        await self._from_program()
        token = self._given.token.encode() if self._given else b""
        login = self.access.login
        if not token and login.token is not None:
            token = _read(login.token, "the token")
        text = token.decode("ascii", "replace").strip()
        if not text:
            return {}
        if not text.isprintable() or "\ufffd" in text or " " in text:
            raise AccessError(f"{self.access.origin}: the token holds characters that no token has")
        return {"Authorization": f"Bearer {text}"}

    async def tls(self) -> ssl.SSLContext:
        """Give the TLS context: verified, with our certificate where we have one; raises AccessError."""
        await self._from_program()
        if self._context is None:
            self._context = self._made()
        return self._context

    async def renew(self, generation: int) -> None:
        """Forget what was read: the server no longer takes it. Of several callers with one generation, one renews."""
        async with self._renewing:
            if generation == self.generation:
                self.generation += 1
                self._context = None
                self._given = None

    async def _from_program(self) -> None:
        program = self.access.login.program
        if program is None:
            return
        async with self._renewing:
            if self._given is None or _is_over(self._given):
                self._given = await _run(program, self.access)
                if self._given.client_certificate_data:
                    self._context = None

    def _made(self) -> ssl.SSLContext:
        authority = self.access.authority
        pem = _read(authority, "the certificate authority").decode("ascii", "replace") if authority else None
        try:
            context = ssl.create_default_context(cadata=pem)
        except (ssl.SSLError, ValueError) as error:
            raise AccessError(
                f"{self.access.origin}: the certificate authority is not a PEM certificate: {error}"
            ) from error
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        certificate, key = self._pair()
        if certificate:
            try:
                with _in_memory(certificate) as public, _in_memory(key) as private:
                    context.load_cert_chain(public, private, password=_no_password)
            except (ssl.SSLError, OSError, ValueError) as error:
                raise AccessError(
                    f"{self.access.origin}: the client certificate and its key cannot be used: "
                    f"{getattr(error, 'reason', None) or error}"
                ) from error
        return context

    def _pair(self) -> tuple[bytes, bytes]:
        if self._given and self._given.client_certificate_data:
            return self._given.client_certificate_data.encode(), self._given.client_key_data.encode()
        login = self.access.login
        if login.certificate is None or login.key is None:
            return b"", b""
        return _read(login.certificate, "the client certificate"), _read(login.key, "the client's key")


def _no_password() -> bytes:
    raise ValueError("the key has a password, which nobody can be asked for")


def _read(source: Secret | InFile, what: str) -> bytes:
    if isinstance(source, Secret):
        return source.reveal()
    try:
        with open(source.path, "rb") as file:  # noqa: PTH123 - a path is kept as the user wrote it
            return file.read(_MOST)
    except OSError as error:
        raise AccessError(f"{source.path}: {what} cannot be read: {error.strerror}") from error


@contextlib.contextmanager
def _in_memory(data: bytes) -> Iterator[str]:
    """Give a path to bytes that are on no disk, since the TLS library reads keys from paths alone."""
    descriptor = os.memfd_create("podgate", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, data)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _is_over(given: _Given) -> bool:
    end = given.expiration_timestamp
    return end is not None and (end - datetime.now(UTC)).total_seconds() < _EARLY


async def _run(program: Exec, access: Access) -> _Given:
    """Run an exec plugin: its answer is on standard output (client.authentication.k8s.io, ExecCredential)."""
    found = shutil.which(program.command)
    if found is None:
        hint = f": {program.hint}" if program.hint else ": install it, or correct users[].user.exec.command"
        raise AccessError(f"{access.origin}: the program {program.command} is not there{hint}")
    with tempfile.TemporaryFile() as errors:
        process = await asyncio.create_subprocess_exec(
            found,
            *program.arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env={**os.environ, **dict(program.environment), "KUBERNETES_EXEC_INFO": _exec_info(program, access)},
        )
        try:
            async with asyncio.timeout(PLUGIN_SECONDS):
                output, _ = await process.communicate()
        except TimeoutError as error:
            raise AccessError(f"{access.origin}: {program.command} gave nothing in {PLUGIN_SECONDS:.0f} s") from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        errors.seek(0)
        said = errors.read(_MOST).decode("utf-8", "replace").strip().splitlines()
    if process.returncode:
        # Its last line only: what it prints is its own business, and may be long.
        why = f": {said[-1][:200]}" if said else ""
        raise AccessError(f"{access.origin}: {program.command} ended with code {process.returncode}{why}")
    return _answer(program, access, output)


def _answer(program: Exec, access: Access, output: bytes) -> _Given:
    try:
        answer = msgspec.json.decode(output, type=_Credential)
    except msgspec.DecodeError as error:
        raise AccessError(f"{access.origin}: {program.command} did not answer with an ExecCredential") from error
    given = answer.status
    if answer.kind != "ExecCredential" or answer.api_version != program.api_version or given is None:
        raise AccessError(
            f"{access.origin}: {program.command} answered {answer.api_version or 'no version'} "
            f"{answer.kind or 'of no kind'}: {program.api_version} ExecCredential with a status is wanted"
        )
    if not given.token and not (given.client_certificate_data and given.client_key_data):
        raise AccessError(f"{access.origin}: {program.command} gave neither a token nor a certificate with its key")
    return given


def _exec_info(program: Exec, access: Access) -> str:
    spec: dict[str, Any] = {"interactive": False}
    if program.cluster_info:
        cluster: dict[str, Any] = {"server": access.server}
        if access.server_name:
            cluster["tls-server-name"] = access.server_name
        if access.authority is not None:
            # Raw bytes are base64 in the API's JSON.
            cluster["certificate-authority-data"] = _read(access.authority, "the certificate authority")
        spec["cluster"] = cluster
    info = {"apiVersion": program.api_version, "kind": "ExecCredential", "spec": spec}
    return msgspec.json.encode(info).decode()
