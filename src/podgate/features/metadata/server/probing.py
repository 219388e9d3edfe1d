"""probing: one request as a Pod's client sends it, for doctor.

Here: asking, in this network namespace or in another's. Not here: who is asked for what, and what the answer means.
Invariant: it ends after some seconds, whatever the other side does, and never raises.
"""

import socket
import time
from typing import Final

_SECONDS: Final = 3.0
"""For a connection, and for all of an answer: whoever sends a byte now and then is not waited for."""
_LONGEST: Final = 1 << 20
HEAD: Final = "Host: 169.254.169.254\r\nMetadata-Flavor: Google\r\nMetadata: true\r\nConnection: close\r\n"


def ask(to: tuple[str, int], path: str, *, whole: bool = False) -> bytes:
    """Give the answer to a GET as clients send it, ``whole`` or its head at least; empty when there is none."""
    try:
        with socket.create_connection(to, _SECONDS) as asking:
            return asked(asking, path, whole=whole)
    except OSError:
        return b""


def asked(connection: socket.socket, path: str, *, whole: bool = False) -> bytes:
    """Give the answer on a connection, as ``ask``. Raises OSError."""
    until = time.monotonic() + _SECONDS
    connection.settimeout(_SECONDS)
    connection.sendall(f"GET {path} HTTP/1.1\r\n{HEAD}\r\n".encode())
    answer = b""
    while len(answer) < _LONGEST and (whole or b"\r\n\r\n" not in answer):
        connection.settimeout(max(0.001, until - time.monotonic()))
        more = connection.recv(65536)
        if not more:
            break
        answer += more
    return answer


def status_of(answer: bytes) -> str:
    """Give the status of an answer; empty for what is none."""
    words = answer[:64].split(b" ", 2)
    return words[1].decode("ascii", "replace") if words[0].startswith(b"HTTP/") and len(words) > 1 else ""
