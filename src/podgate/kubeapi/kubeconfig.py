"""kubeconfig: the text of such a file becomes an Access. Pure.

Here: contexts, clusters and users, and what is refused. Not here: reading the file, and the files that it names
(credentials.py).
Invariant: a field that would change who we are or whom we trust, and is not supported, is refused by name, with file
and line; it is never ignored.

Format: kubernetes.io, "kubeconfig (v1)".
"""

import base64
import binascii
import posixpath
from collections.abc import Mapping
from typing import Any, Final

from podgate.kubeapi.access import EXEC_VERSIONS, Access, AccessError, Exec, InFile, Login, server_mistake
from podgate.model.documents import locate, parse
from podgate.model.secret import Secret
from podgate.model.spelling import did_you_mean

_REFUSED_CLUSTER: Final = {
    "proxy-url": "a proxy towards the API is not supported: take it out, or reach the server directly",
}
_REFUSED_USER: Final = {
    "username": "a password is no login that an API server knows any more: use a token or a certificate",
    "password": "a password is no login that an API server knows any more: use a token or a certificate",
    "auth-provider": 'this way of login was removed in Kubernetes 1.26: use "exec"',
    "as": "acting as somebody else is not supported: log in as whom you mean",
    "as-uid": "acting as somebody else is not supported: log in as whom you mean",
    "as-groups": "acting as somebody else is not supported: log in as whom you mean",
    "as-user-extra": "acting as somebody else is not supported: log in as whom you mean",
}


def read_kubeconfig(path: str, data: bytes, context: str = "") -> Access:
    """Read a kubeconfig.

    Args:
        path: where it is; paths in it are relative to its folder.
        data: its text.
        context: which context to take; empty for ``current-context``.

    Raises:
        AccessError: with ``PATH:LINE: FIELD: …``.
    """
    return _Reader(path, data).access(context)


class _Reader:
    def __init__(self, path: str, data: bytes) -> None:
        self._path = path
        self._data = data
        parsed = parse(data)
        if parsed.fatal is not None:
            raise AccessError(f"{path}:{parsed.fatal.line}: {parsed.fatal.message}")
        documents = [each for each in parsed.documents if each is not None]
        if len(documents) != 1 or not isinstance(documents[0], dict):
            raise AccessError(f"{path}: this is not a kubeconfig: it has no clusters, users and contexts")
        self._document: Mapping[str, Any] = documents[0]

    def access(self, wanted: str) -> Access:
        name = wanted or self._text(self._document, "current-context", "")
        if not name:
            raise self._wrong("current-context", "no context is chosen: set it, or give --context NAME")
        context, at = self._named("contexts", "context", name, "--context" if wanted else "current-context")
        cluster_name, user_name = (self._text(context, key, at) for key in ("cluster", "user"))
        if not cluster_name:
            raise self._wrong(f"{at}.cluster", f'the context "{name}" names no cluster')
        cluster, cluster_at = self._named("clusters", "cluster", cluster_name, f"{at}.cluster")
        self._refuse(cluster, cluster_at, _REFUSED_CLUSTER)
        if cluster.get("insecure-skip-tls-verify"):
            raise self._wrong(
                f"{cluster_at}.insecure-skip-tls-verify",
                "the server's certificate is always verified: take this out and give certificate-authority",
            )
        server = self._text(cluster, "server", cluster_at)
        mistake = server_mistake(server)
        if mistake:
            raise self._wrong(f"{cluster_at}.server", mistake)
        login = Login()
        if user_name:
            user, user_at = self._named("users", "user", user_name, f"{at}.user")
            login = self._login(user, user_at)
        return Access(
            server=server.rstrip("/"),
            authority=self._bytes(cluster, cluster_at, "certificate-authority"),
            server_name=self._text(cluster, "tls-server-name", cluster_at),
            namespace=self._text(context, "namespace", at) or "default",
            login=login,
            origin=self._path,
        )

    def _login(self, user: Mapping[str, Any], at: str) -> Login:
        self._refuse(user, at, _REFUSED_USER)
        token: Secret | InFile | None = None
        # A token file wins over a token, since it is read again and again.
        if file := self._text(user, "tokenFile", at):
            token = InFile(self._beside(file))
        elif text := self._text(user, "token", at):
            token = Secret(text.encode())
        certificate = self._bytes(user, at, "client-certificate")
        key = self._bytes(user, at, "client-key")
        if (certificate is None) != (key is None):
            missing = "client-key" if key is None else "client-certificate"
            raise self._wrong(at, f"{missing} is missing: a certificate and its key go together")
        return Login(token, certificate, key, self._exec(user, at))

    def _exec(self, user: Mapping[str, Any], above: str) -> Exec | None:
        given = user.get("exec")
        if given is None:
            return None
        at = f"{above}.exec"
        if not isinstance(given, dict):
            raise self._wrong(at, "this must be a map")
        version, command = self._text(given, "apiVersion", at), self._text(given, "command", at)
        if version not in EXEC_VERSIONS:
            raise self._wrong(f"{at}.apiVersion", f'"{version}" is not spoken: use {EXEC_VERSIONS[0]}')
        if not command:
            raise self._wrong(f"{at}.command", "the program is missing")
        if self._text(given, "interactiveMode", at) == "Always":
            raise self._wrong(f"{at}.interactiveMode", "nobody is there to answer it: use a login that asks nothing")
        arguments, environment = given.get("args") or [], given.get("env") or []
        if not isinstance(arguments, list) or not all(isinstance(each, str) for each in arguments):
            raise self._wrong(f"{at}.args", "this must be a list of texts")
        if not isinstance(environment, list) or not all(_is_variable(each) for each in environment):
            raise self._wrong(f"{at}.env", "this must be a list of maps with name and value")
        return Exec(
            api_version=version,
            command=self._beside(command) if "/" in command else command,
            arguments=tuple(arguments),
            environment=tuple((each["name"], each["value"]) for each in environment),
            cluster_info=given.get("provideClusterInfo") is True,
            hint=self._text(given, "installHint", at).strip(),
        )

    def _named(self, section: str, part: str, name: str, said_by: str) -> tuple[Mapping[str, Any], str]:
        """Find an entry by name; the first of several counts, as in kubectl."""
        entries = self._document.get(section) or []
        if not isinstance(entries, list):
            raise self._wrong(section, "this must be a list")
        names = [entry.get("name") for entry in entries if isinstance(entry, dict)]
        for index, entry in enumerate(entries):
            if isinstance(entry, dict) and entry.get("name") == name:
                found = entry.get(part) or {}
                at = f"{section}[{index}].{part}"
                if not isinstance(found, dict):
                    raise self._wrong(at, "this must be a map")
                return found, at
        near = did_you_mean(name, [each for each in names if isinstance(each, str)])
        raise self._wrong(section, f'there is no {part} "{name}", which {said_by} names{near}')

    def _bytes(self, entry: Mapping[str, Any], at: str, key: str) -> Secret | InFile | None:
        """Read ``KEY-data`` (base64), else ``KEY`` (a path)."""
        if inline := self._text(entry, f"{key}-data", at):
            try:
                return Secret(base64.b64decode(inline, validate=True))
            except binascii.Error as error:
                raise self._wrong(f"{at}.{key}-data", f"this is not base64: {error}") from error
        path = self._text(entry, key, at)
        return InFile(self._beside(path)) if path else None

    def _text(self, entry: Mapping[str, Any], key: str, at: str) -> str:
        value = entry.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self._wrong(f"{at}.{key}".lstrip("."), "this must be a text")
        return value

    def _refuse(self, entry: Mapping[str, Any], at: str, refused: Mapping[str, str]) -> None:
        for key, why in refused.items():
            if entry.get(key):
                raise self._wrong(f"{at}.{key}", why)

    def _beside(self, path: str) -> str:
        return posixpath.join(posixpath.dirname(self._path), path)

    def _wrong(self, field: str, message: str) -> AccessError:
        line = locate(self._data, 0, field)
        return AccessError(f"{self._path}:{line}: {field}: {message}" if line else f"{self._path}: {field}: {message}")


def _is_variable(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("name"), str) and isinstance(entry.get("value"), str)
