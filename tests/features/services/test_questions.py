"""Destinations as users call them; what is said of bad ones is in cases/explain.case."""

import pytest

from podgate.features.services.compile import Compiler
from podgate.features.services.questions import destinations_of
from podgate.features.services.settings import Settings
from podgate.model.table import Table
from tests.support.service_inputs import inputs_of

SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "9web"},
    "spec": {
        "type": "NodePort",
        "clusterIPs": ["10.96.0.7", "fd00:96::7"],
        "ports": [{"name": "http", "port": 80, "nodePort": 30080}, {"name": "dns", "port": 80, "protocol": "UDP"}],
    },
}
NODE = bytes((192, 168, 0, 2))


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("10.96.0.7:80", ["10.96.0.7:80/tcp"]),
        ("10.96.0.7:81/SCTP", ["10.96.0.7:81/sctp"]),
        ("[fd00:96::7]", ["[fd00:96::7]:80/tcp", "[fd00:96::7]:80/udp"]),
        ("192.168.0.2", ["192.168.0.2:30080/tcp"]),
        ("8.8.8.8", ["8.8.8.8"]),
        ("9web", [f"{at}:80/{kind}" for at in ("10.96.0.7", "[fd00:96::7]") for kind in ("tcp", "udp")]),
        ("default/9web:dns", ["10.96.0.7:80/udp", "[fd00:96::7]:80/udp"]),
        ("9web:80/tcp", ["10.96.0.7:80/tcp", "[fd00:96::7]:80/tcp"]),
    ],
)
def test_a_destination_is_read(text: str, read: list[str]) -> None:
    settings = Settings(node_name="node-1")
    inputs = inputs_of([SERVICE], settings)
    intent = Compiler(settings, lambda found: found)(inputs).states
    assert list(map(str, destinations_of(text, intent, inputs, frozenset({NODE}), Table()))) == read
