"""``podgate services run`` whose API is behind a Service: refused on a node without rules, with them never.

Here: the process and its rules while no API server answers. Not here: which addresses are a Service's
(tests/features/services/server/test_bootstrap.py); a start that does reach one (tests/deploy).
Invariant: nothing of what stands in the kernel changes while the API is away.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.support.agent import podgate, started
from tests.support.netns import NetNamespace, netns
from tests.support.poll import poll
from tests.support.service_inputs import service_range
from tests.support.services_agent import PAGES, Folder, service, slice_of

pytestmark = pytest.mark.kernel

IN_A_POD: Final = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
KUBECONFIG: Final = """\
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://10.96.0.1"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
users: [{name: u, user: {token: t}}]
"""


def words(directory: Path) -> Sequence[str]:
    """Give options that name the API server's Service, by a kubeconfig."""
    (directory / "kubeconfig").write_text(KUBECONFIG)
    return ("--kubeconfig", str(directory / "kubeconfig"), "--state-dir", str(directory / "state"), *PAGES)


def written_once(namespace: NetNamespace, directory: Path, backend: str) -> None:
    """Have rules for the API server's Service, of an agent that has ended."""
    folder = Folder(directory / "objects")
    port = {"port": 443, "targetPort": 6443}
    folder.write(
        [
            service("kubernetes", "10.96.0.1", port),
            slice_of("kubernetes", "192.0.2.10", port=6443),
            service_range("10.96.0.0/16"),
        ]
    )
    options = (
        "--source",
        folder.path,
        "--backend",
        backend,
        "--node-name",
        "node-1",
        "--state-dir",
        directory / "state",
    )
    done = podgate("services", "run", "--once", *options, namespace=namespace)
    assert done.code == 0, done.err


def rules(namespace: NetNamespace, backend: str) -> str:
    """Give what nft shows of both families, without what packets counted."""
    listing = ("iptables-nft-save", "-t", "nat") if backend == "iptables" else ("nft", "list", "ruleset")
    return "\n".join(line for line in namespace.run(*listing).splitlines() if not line.startswith("#"))


@pytest.mark.parametrize("backend", ["nftables", "iptables"])
def test_a_restart_while_the_api_is_away_goes_on_with_the_rules_that_stand(backend: str, tmp_path: Path) -> None:
    with netns() as namespace:
        written_once(namespace, tmp_path, backend)
        before = rules(namespace, backend)
        assert "10.96.0.1" in before
        options = ("--backend", backend, *words(tmp_path))
        with started(namespace, tmp_path, *options, environ=IN_A_POD, feature="services") as agent:
            poll(lambda: agent.get("/livez")[0] == 200)
            poll(lambda: "10.96.0.1" in agent.text())
            assert rules(namespace, backend) == before
            assert agent.is_alive()


def test_a_start_on_a_node_without_rules_is_refused(tmp_path: Path) -> None:
    with netns() as namespace:
        done = podgate("services", "run", *words(tmp_path), namespace=namespace, environ=IN_A_POD)
    assert done.code == 2
    assert "nobody leads there before there are rules: write the API server's own address" in done.err


def test_where_nobody_knows_whether_the_address_is_a_services_the_log_says_that_it_may_be(tmp_path: Path) -> None:
    nowhere = {"KUBERNETES_SERVICE_HOST": ""}
    with (
        netns() as namespace,
        started(namespace, tmp_path, *words(tmp_path), environ=nowhere, feature="services") as agent,
    ):
        poll(lambda: "and there are no rules for it: if that is a Service's address it never will, so" in agent.text())
        poll(lambda: agent.get("/livez")[0] == 200)
