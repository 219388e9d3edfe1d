"""A Pod's side of the case files: says what it is told over raw sockets, and prints what came back.

Here: a program for Pods of a lab, which have Python and nothing of this repository. Not here: what is right.
Invariant: it reads as many answers as it is told to expect, and then sees whether the connection goes on.

    python3 asking_pod.py FILE    the file and what is printed are JSON: see ``main``
"""

import base64
import json
import socket
import sys
from pathlib import Path
from typing import Any, BinaryIO, Final

SERVER: Final = ("169.254.169.254", 80)
SECONDS: Final = 30.0
ANOTHER: Final = b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n"
"""Without Host it is no request, so nothing of it is seen upstream, whatever the policy is."""
ISSUE: Final = (
    b"PUT /latest/api/token HTTP/1.1\r\nHost: 169.254.169.254\r\n"
    b"X-aws-ec2-metadata-token-ttl-seconds: 60\r\nConnection: close\r\n\r\n"
)


def main() -> None:
    """Say each of a list, on a connection of its own, and print what came back.

    It holds ``{"data": base64, "heads": [whether an answer has no body…], "token": what stands for one, or ""}``, and
    what is printed ``{"answers": [[status, body in base64]…], "closed": whether the connection was closed}``.
    """
    print(json.dumps([said(each) for each in json.loads(Path(sys.argv[1]).read_text())]))


def said(exchange: dict[str, Any]) -> dict[str, Any]:
    """Say one, and give what came back."""
    data = base64.b64decode(exchange["data"])
    if exchange["token"]:
        data = data.replace(exchange["token"].encode(), whole(ISSUE)[1])
    with socket.create_connection(SERVER, SECONDS) as connection, connection.makefile("rb") as reader:
        connection.sendall(data)
        answers = [answer(reader, head_only=each) for each in exchange["heads"]]
        whole(ANOTHER)  # when this is answered, all that the proxy does of itself is done
        connection.setblocking(False)
        try:
            closed = not connection.recv(1)
        except BlockingIOError:
            closed = False
        except ConnectionError:
            closed = True
    return {
        "answers": [[status, base64.b64encode(body).decode()] for status, body in answers],
        "closed": closed,
    }


def whole(data: bytes) -> tuple[int, bytes]:
    """Say something on a connection of its own, and give the one answer."""
    with socket.create_connection(SERVER, SECONDS) as connection, connection.makefile("rb") as reader:
        connection.sendall(data)
        return answer(reader, head_only=False)


def answer(reader: BinaryIO, *, head_only: bool) -> tuple[int, bytes]:
    """Read one answer."""
    first = reader.readline().split()
    headers = {}
    while line := reader.readline().strip():
        name, _, value = line.partition(b":")
        headers[name.strip().lower()] = value.strip()
    if head_only:
        return int(first[1]), b""
    if b"content-length" in headers:
        return int(first[1]), reader.read(int(headers[b"content-length"]))
    return int(first[1]), reader.read()


if __name__ == "__main__":
    main()
