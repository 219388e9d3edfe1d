"""Access: where an API server is and how to log in there, as values. Pure.

Here: the values, and the rule that what is sent is always protected. Not here: kubeconfig files (kubeconfig.py), and
reading what the values name (credentials.py).
Invariant: TLS is verified: there is no value that says otherwise, and plain HTTP leads to this machine alone.
"""

import ipaddress
import re
from typing import Final

from podgate.model.frozen import Frozen
from podgate.model.secret import Secret

EXEC_VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
"""The protocols of exec plugins that are spoken; they differ only in their name here."""


_ADDRESS: Final = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s/:@?#\[\]]+)(?::(?P<port>[0-9]{1,5}))?(?P<path>/[^\s?#]*)?"
)
"""Scheme, host, port and path of RFC 3986, without anything else that an address may hold."""


_NOBODY: Final = ".invalid"
"""How names end that nobody has (RFC 2606), so that manifests hold them where an address is to be filled in."""


class AccessError(Exception):
    """The API cannot be reached as configured; the message says where that is written and what to change."""


class InFile(Frozen, frozen=True):
    """Bytes that are in a file, and are read again whenever credentials are renewed."""

    path: str


class Exec(Frozen, frozen=True):
    """A program that gives credentials (KEP-541).

    Attributes:
        command: its path or name.
        environment: variables in addition to ours.
        cluster_info: hand it the cluster's address and authority.
        hint: what to tell when it is not installed.
    """

    api_version: str
    command: str
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    cluster_info: bool = False
    hint: str = ""


class Login(Frozen, frozen=True):
    """Who we are: any of a token, a client certificate with its key, and a program that gives either; or nobody."""

    token: Secret | InFile | None = None
    certificate: Secret | InFile | None = None
    key: Secret | InFile | None = None
    program: Exec | None = None


class Access(Frozen, frozen=True):
    """One API server and our login there.

    Attributes:
        server: as ``https://10.0.0.1:6443``, without a trailing slash.
        authority: the certificates that sign the server's, in PEM; None for those of the system.
        server_name: the name that its certificate has, where that is not the host's; empty for the host's.
        namespace: where our own objects go by default.
        login: who we are.
        origin: what said so, for messages: as ``~/.kube/config``.
    """

    server: str
    authority: Secret | InFile | None = None
    server_name: str = ""
    namespace: str = "default"
    login: Login = Login()
    origin: str = ""


def server_mistake(server: str) -> str:
    """Say what is wrong with a server's address; empty when nothing is."""
    found = _ADDRESS.fullmatch(server)
    if found is None:
        if re.match("https?://[^/]*@", server) or re.search("[?#]", server):
            return "the address holds more than a host, a port and a path: take it out"
        return f'"{server}" is no address: write https://HOST:PORT'
    if found["port"] and not 0 < int(found["port"]) <= 65535:
        return f'"{server}" is no address: its port must be from 1 to 65535'
    if found["host"].lower().rstrip(".").endswith(_NOBODY):
        return f'"{server}" stands for an address that is still to be written: the API server\'s own, as https://10.0.0.1:6443'
    if found["scheme"] == "http" and not _is_loopback(found["host"].strip("[]")):
        return f'"{server}" is plain HTTP to another machine, which shows the credentials to everybody: use https'
    return ""


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
