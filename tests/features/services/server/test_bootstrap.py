"""Whether a start may go by an API server's address: its own, or that of a Service that rules must lead first."""

import socket
from typing import Final

import pytest

from podgate.features.services.server.bootstrap import obstacle
from tests.support.netns import NetNamespace, netns
from tests.support.service_rules import OURS

pytestmark = pytest.mark.kernel

IN_A_POD: Final = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
WITHOUT_ITS_RULES: Final = OURS.replace("10.96.0.1 . tcp", "10.96.0.1 . udp").replace("fd00:96::1 .", "fd00:96::2 .")

ACCOUNT: Final = "give --kubeconfig with the API server's own address"
KUBECONFIG: Final = "write the API server's own address into the kubeconfig"


def asked(
    namespace: NetNamespace, server: str, environ: dict[str, str], *, has_source: bool = False
) -> tuple[str, list[str]]:
    """Give what is refused, and what is said."""
    said: list[str] = []
    refused = namespace.call(lambda: obstacle(environ, said.append, has_source=has_source, server=server))
    return refused, said


@pytest.mark.parametrize(
    ("server", "environ", "rules"),
    [
        ("", IN_A_POD, ""),
        ("https://10.96.0.1:443", IN_A_POD, ""),
        ("https://10.96.0.1", IN_A_POD, ""),
        ("https://kubernetes.default.svc", IN_A_POD, ""),
        ("https://kubernetes.default.svc.cluster.local:443", {}, ""),
        ("https://10.96.0.7:6443", {"API_PROXY_SERVICE_HOST": "10.96.0.7"}, ""),
        ("", IN_A_POD, WITHOUT_ITS_RULES),
        # Outside of a Pod, and of the other family than the variable: our own tables remember both ranges.
        ("https://10.96.0.1", {}, WITHOUT_ITS_RULES),
        ("https://[fd00:96::1]", IN_A_POD, WITHOUT_ITS_RULES),
    ],
)
def test_a_services_address_without_rules_and_without_an_answer_is_refused(
    server: str, environ: dict[str, str], rules: str
) -> None:
    with netns() as namespace:
        namespace.run("nft", "-f", "-", text=rules)
        refused, said = asked(namespace, server, environ)
    where = (server or "https://10.96.0.1").removeprefix("https://")
    assert refused.startswith(f"the API server does not answer at {where}")
    assert ", a Service's address, and nobody leads there before there are rules: " in refused
    assert refused.endswith(KUBECONFIG if server else ACCOUNT)
    assert said == []


@pytest.mark.parametrize(
    ("server", "environ"),
    [
        ("", IN_A_POD),
        ("https://10.96.0.1", IN_A_POD),
        ("https://10.96.0.1:443", {}),
        ("https://kubernetes.default.svc", IN_A_POD),
        ("https://[fd00:96::1]", IN_A_POD),
        ("https://[fd00:96::1]:443", {}),
    ],
)
def test_where_there_are_rules_nobody_need_answer(server: str, environ: dict[str, str]) -> None:
    with netns() as namespace:
        namespace.run("nft", "-f", "-", text=OURS)
        assert asked(namespace, server, environ) == ("", [])


@pytest.mark.parametrize(
    ("server", "environ"),
    [
        ("https://192.168.0.10:6443", IN_A_POD),
        ("https://[fd00:96::1]:443", IN_A_POD),
        ("https://10.96.0.1:443", {}),
        ("https://kubernetes:6443", {}),  # as a machine may be called
    ],
)
def test_where_nothing_tells_whose_an_address_is_that_is_said_and_no_start_refused(
    server: str, environ: dict[str, str]
) -> None:
    with netns() as namespace:
        refused, (said,) = asked(namespace, server, environ)
    where = server.removeprefix("https://")
    assert refused == ""
    assert said == (
        f"the API server does not answer at {where}, and there are no rules for it: if that is a Service's address it "
        f"never will, so {KUBECONFIG}"
    )


@pytest.mark.parametrize("server", ["", "https://127.0.0.1:443"])
def test_whoever_answers_is_no_obstacle(server: str) -> None:
    environ = {**IN_A_POD, "KUBERNETES_SERVICE_HOST": "127.0.0.1"}
    with netns() as namespace:
        listening = namespace.call(lambda: socket.create_server(("127.0.0.1", 443)))
        with listening:
            assert asked(namespace, server, environ) == ("", [])


@pytest.mark.parametrize(
    ("server", "environ", "has_source"),
    [
        ("", IN_A_POD, True),
        ("", {}, False),
        ("", {**IN_A_POD, "PODGATE_SOURCE": "/objects"}, False),
        ("", {**IN_A_POD, "KUBERNETES_SERVICE_PORT": "tcp"}, False),
        ("https://kubernetes.example.net:6443", IN_A_POD, False),
    ],
)
def test_what_is_not_asked(server: str, environ: dict[str, str], has_source: bool) -> None:
    with netns() as namespace:
        assert asked(namespace, server, environ, has_source=has_source) == ("", [])
