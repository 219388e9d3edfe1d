"""Addresses of servers: what is sent there is always protected."""

import pytest

from podgate.kubeapi.access import server_mistake


@pytest.mark.parametrize(
    "server",
    ["https://10.0.0.1:6443", "https://[fd00::1]:6443", "https://api/prefix", "http://127.0.0.1:1", "http://[::1]:1",
     "http://localhost:8080"],
)  # fmt: skip
def test_good_addresses(server: str) -> None:
    assert server_mistake(server) == ""


@pytest.mark.parametrize(
    "server",
    ["", "10.0.0.1", "ftp://a", "https://", "https://a:0", "https://a:99999", "https://[", "http://10.0.0.1", "http://a",
     "http://127.0.0.1.example", "https://me@a", "https://a?x=1", "https://a#x", "https://api-server.invalid:6443", "https://A.INVALID."],
)  # fmt: skip
def test_bad_addresses(server: str) -> None:
    assert server_mistake(server) != ""
