"""Doctor's own request: whatever the other side does, it ends."""

import socket
import threading

import pytest

from podgate.features.metadata.server import probing
from podgate.features.metadata.server.probing import ask


def test_who_sends_a_byte_now_and_then_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "_SECONDS", 0.5)
    over = threading.Event()

    def drip(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            try:
                for _ in range(100):
                    connection.sendall(b"x")
                    over.wait(0.1)
            except OSError:
                over.set()  # nobody reads any more

    with socket.create_server(("127.0.0.1", 0)) as server:
        dripping = threading.Thread(target=drip, args=(server,))
        dripping.start()
        assert ask(server.getsockname(), "/") == b""
        dripping.join()
    assert over.is_set()
