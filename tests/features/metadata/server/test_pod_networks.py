"""A request from inside a Pod's network: by which device it goes, and what comes of it."""

import pytest

from podgate.features.metadata.diagnosis import Attempt
from podgate.features.metadata.server.pod_networks import _ask_from_here
from podgate.features.metadata.server.probing import ask, status_of
from tests.support.metadata_node import CLOUD, metadata_node, serving
from tests.support.netns import NetNamespace, netns
from tests.support.packet_lab import POD

pytestmark = pytest.mark.kernel


def asked_in(namespace: NetNamespace) -> Attempt | None:
    return namespace.call(lambda: _ask_from_here(CLOUD, "/x", {POD[4]: "default/web"}, "process 1 (x)"))


def test_a_pod_asks_by_its_veth() -> None:
    with metadata_node(ports=()) as lab:
        assert asked_in(lab.pod) == Attempt("default/web", "refused", source=POD[4])
        with serving(lab.ext, CLOUD, 80, "HTTP/1.1 403 Forbidden\r\n\r\n"):
            assert asked_in(lab.pod) == Attempt("default/web", "403", source=POD[4])
        lab.pod.run("ip", "link", "add", "mv0", "link", "eth0", "type", "macvlan", "mode", "bridge")
        lab.pod.run("ip", "addr", "flush", "dev", "eth0")
        lab.pod.run("ip", "addr", "add", f"{POD[4]}/24", "dev", "mv0")
        lab.pod.run("ip", "link", "set", "mv0", "up")
        lab.pod.run("ip", "route", "replace", "default", "dev", "mv0")
        found = asked_in(lab.pod)
        assert found is not None
        assert found.device == "macvlan"


def test_a_network_without_a_way_there_is_none_of_a_pod() -> None:
    with netns() as alone:
        assert asked_in(alone) is None


def test_where_the_server_itself_is_nobody_asks() -> None:
    with metadata_node(ports=()) as lab:
        assert asked_in(lab.ext) is None


@pytest.mark.parametrize(
    ("answer", "status"),
    [(b"HTTP/1.1 403 Forbidden\r\n", "403"), (b"HTTP/1.1\r\n", ""), (b"", ""), (b"hello 200 x", "")],
)
def test_a_status_is_read_off_an_answer_of_http_alone(answer: bytes, status: str) -> None:
    assert status_of(answer) == status


def test_nobody_is_no_answer() -> None:
    with netns() as alone:
        assert alone.call(lambda: ask(("127.0.0.1", 1), "/")) == b""
