"""pod_networks: what the metadata server answers to Pods of this node, asked from inside their networks.

Here: finding the networks by their processes, entering each for a moment, one request. Not here: what an answer means
(diagnosis.py).
Invariant: only the calling thread moves, and it is back at home afterwards; nothing is written anywhere.
"""

import contextlib
import os
import socket
from collections.abc import Iterator, Mapping
from typing import Final

from podgate.features.metadata.diagnosis import Attempt
from podgate.features.metadata.server.probing import asked, status_of
from podgate.linux import proc
from podgate.linux.namespaces import inside_network, open_namespace
from podgate.linux.netlink import Connection
from podgate.linux.rtnetlink import addresses, links

_PORT: Final = 80
_MOST: Final = 256
"""Networks that are asked from: a node has at most some 250 Pods."""
_SILENT: Final = 5
"""Networks without an answer after which no more are asked: each costs seconds."""


def ask_pods(server: str, path: str, names: Mapping[str, str]) -> tuple[list[Attempt], str]:
    """Ask for a path from every other network namespace of this node.

    Args:
        server: the metadata server's IPv4 address.
        path: what is asked for.
        names: Pods by address.

    Returns:
        what came of it, and why not all Pods could be asked from; empty where they could.
    """
    found: list[Attempt] = []
    silent = 0
    try:
        networks = _networks()
    except OSError as error:
        return found, f"the node's processes cannot be seen: {error.strerror}"
    for number, (pid, process) in enumerate(sorted(networks.items())):
        try:
            descriptor = open_namespace("net", pid)
        except OSError:
            continue  # ended meanwhile, or another user's
        try:
            with inside_network(descriptor):
                one = _ask_from_here(server, path, names, f"process {pid} ({process})")
        except OSError as error:
            return found, f"Pods' networks cannot be entered: {error.strerror}"
        finally:
            os.close(descriptor)
        if one is not None:
            found.append(one)
            silent += not one.is_reached
        left = len(networks) - number - 1
        if left and (silent == _SILENT or len(found) == _MOST):
            return found, f"{silent} of {len(found)} networks gave no answer, and {left} more were not asked"
    return found, ""


def _networks() -> dict[int, str]:
    """Give one process of each network that is neither this one nor that of process 1, which is the node's."""
    found: dict[str, tuple[int, str]] = {}
    nodes = {proc.network_of(process) for process in (proc.SELF, 1)}
    for pid, network, name in processes():
        if network not in nodes:
            found.setdefault(network, (pid, name))
    return dict(found.values())


def processes() -> Iterator[tuple[int, str, str]]:
    """Give the number, the network namespace and the name of each process that may be looked at."""
    for pid in proc.pids():
        with contextlib.suppress(OSError):  # It ended meanwhile, or is another user's.
            yield pid, proc.network_of(pid), proc.name_of(pid)


def _ask_from_here(server: str, path: str, names: Mapping[str, str], otherwise: str) -> Attempt | None:
    """Ask from the network that the thread is in; None where it has no way to the server."""
    source = _source(server)
    if source is None:
        return None
    who, device = names.get(source, otherwise), _kind_of_device(source)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
        connection.settimeout(1.0)
        try:
            connection.connect((server, _PORT))
            answer = asked(connection, path)
        except ConnectionRefusedError:
            return Attempt(who, "refused", device, source=source)
        except OSError as error:
            return Attempt(who, error.strerror or "no answer", device, is_reached=False, source=source)
    return Attempt(who, status_of(answer) or "no HTTP", device, source=source)


def _source(server: str) -> str | None:
    """Give the address that packets to the server would have; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((server, _PORT))
        except OSError:
            return None
        address: str = probe.getsockname()[0]
        return None if address == server else address


def _kind_of_device(address: str) -> str:
    """Give the kind of the device that has an address, as ``veth``; empty for hardware."""
    with Connection(socket.NETLINK_ROUTE) as connection:
        kinds = {link.device: link.kind for link in links(connection)}
        return next((kinds.get(each.device, "") for each in addresses(connection) if str(each.address) == address), "")
