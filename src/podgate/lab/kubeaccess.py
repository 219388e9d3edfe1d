"""The way from a lab to the API server of the cluster that it joins.

Here: reading the kubeconfig, the server's address, connections. Not here: who joined what (kubejoin.py), requests.
Invariant: a connection goes to the address that was found when the lab started, and its certificate is verified for the
name in the kubeconfig.
"""

import contextlib
import functools
import socket
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from podgate.kubeapi.access import Access, AccessError
from podgate.kubeapi.connection import Connection, Limits
from podgate.kubeapi.credentials import load_kubeconfig
from podgate.lab.kubejoin import Join
from podgate.linux.namespaces import inside_network


def join(kubeconfig: str, context: str) -> Join:
    """Read a kubeconfig and find its server's address; raises AccessError."""
    path = str(Path(kubeconfig).resolve())
    access = load_kubeconfig(path, context)
    host = urlsplit(access.server).hostname or ""
    try:
        found = socket.getaddrinfo(host, port_of(access), type=socket.SOCK_STREAM)
    except OSError as error:
        raise AccessError(f"{path}: the server {host} has no address: {error.strerror}") from error
    return Join(path, context, str(found[0][4][0]))


def port_of(access: Access) -> int:
    """Give the API server's port."""
    parts = urlsplit(access.server)
    return parts.port or (443 if parts.scheme == "https" else 80)


def access_of(joined: Join) -> Access:
    """Read the kubeconfig of a lab that has joined; raises AccessError."""
    access = load_kubeconfig(joined.kubeconfig, joined.context)
    parts = urlsplit(access.server)
    host = f"[{joined.address}]" if ":" in joined.address else joined.address
    server = f"{parts.scheme}://{host}:{port_of(access)}{parts.path}"
    return msgspec.structs.replace(access, server=server, server_name=access.server_name or parts.hostname or "")


def connection(joined: Join, limits: Limits = Limits(), *, machine: int | None = None) -> Connection:  # noqa: B008 - frozen
    """Give a connection; ``machine`` is the machine's network namespace, for whoever is not in it."""
    around = contextlib.nullcontext if machine is None else functools.partial(inside_network, machine)
    return Connection(access_of(joined), limits, around)
