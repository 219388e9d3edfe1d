"""``podgate services run`` and the kernel: heals, bad objects, sources that fail, restarts, and being killed.

Here: one agent in a network namespace, its objects in a folder. Not here: packets (test_services_connections.py,
test_services_flows.py).
Invariant: what is right is what a fresh agent writes, read back by nft; what is not written shows in the number of the
kernel's ruleset, which every transaction raises.
"""

import asyncio
import json
import random
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from podgate.lab.kinds import Object
from tests.support.agent import podgate, started
from tests.support.fake_apiserver import RESOURCES, FakeApiServer
from tests.support.netns import NetNamespace
from tests.support.poll import poll
from tests.support.services_agent import (
    PAGES,
    PROXY_NAME,
    TABLE,
    Folder,
    Held,
    counted,
    generation_of,
    held,
    service,
    serving,
    slice_of,
)

pytestmark = pytest.mark.kernel

WEB = [service("web", "10.96.0.1"), slice_of("web", "10.0.0.1", "10.0.0.2")]
STICKY = [service("sticky", "10.96.0.2", sessionAffinity="ClientIP"), slice_of("sticky", "10.0.0.3")]
NOBODY = [service("nobody", "10.96.0.3")]

DAMAGES = {
    "everything is flushed": "flush ruleset",
    "the table is deleted": f"delete table ip {TABLE}",
    "the table of the other family is deleted": f"delete table ip6 {TABLE}",
    "an element is deleted": f"delete element ip {TABLE} endpoints {{ 10.96.0.1 . tcp . 80 . 0 }}",
    "an element leads elsewhere": f"delete element ip {TABLE} endpoints {{ 10.96.0.1 . tcp . 80 . 0 }}\n"
    f"add element ip {TABLE} endpoints {{ 10.96.0.1 . tcp . 80 . 0 : 192.0.2.1 . 80 }}",
    "a map is flushed": f"flush map ip {TABLE} service-ips",
    "a verdict is deleted": f"delete element ip {TABLE} buckets {{ 0 . 2 }}",
    "a chain is flushed": f"flush chain ip {TABLE} services",
    "a rule is put first": f"insert rule ip {TABLE} services accept",
    "a chain is added": f"add chain ip {TABLE} foreign",
    "the table is put to sleep": f"add table ip {TABLE} {{ flags dormant; }}",
}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    found = Folder(tmp_path / "source")
    found.write([*WEB, *STICKY, *NOBODY])
    return found


def both(node: NetNamespace) -> tuple[Held, int]:
    """Give what IPv4 has, and how many chains there are that are awake."""
    listed = node.run("nft", "list", "ruleset")
    return held(node), listed.count("chain ") - 1000 * listed.count("dormant")


@pytest.mark.slow
def test_every_damage_is_noticed_and_put_right(node: NetNamespace, folder: Folder, tmp_path: Path) -> None:
    with serving(node, tmp_path, folder, "--sync-period", "3600") as agent:
        right = both(node)
        for what, damage in DAMAGES.items():
            node.run("nft", "-f", "-", text=damage + "\n")
            poll(lambda: agent.ready() and both(node) == right)
            assert both(node) == right, what
        assert agent.ready()


STICKY_V6 = [
    service("sticky-v6", "fd00:96::2", sessionAffinity="ClientIP", ipFamilies=["IPv6"]),
    slice_of("sticky-v6", "fd00::3"),
]


@pytest.mark.slow
def test_nft_lists_what_leads_clients_that_stay(node: NetNamespace, folder: Folder, tmp_path: Path) -> None:
    folder.write([*STICKY, *STICKY_V6])
    with serving(node, tmp_path, folder):
        for words in ((), ("-j",), ("-n",), ("-a",)):
            listed = node.run("nft", *words, "list", "ruleset")
            for part in ("10.96.0.2", "fd00:96::2", "the client's last endpoint, if it still is one"):
                assert part in listed, words


@pytest.mark.slow
def test_a_rule_that_took_the_place_of_ours_goes(node: NetNamespace, folder: Folder, tmp_path: Path) -> None:
    """It bears our comment, so that only what it does tells it apart."""
    with serving(node, tmp_path, folder):
        right = held(node)
        for chain in ("services", "leaving", "to-2"):
            listed = node.run("nft", "-a", "list", "chain", "ip", TABLE, chain).splitlines()
            line = next(line for line in listed if "comment" in line and "chain" not in line)
            comment, handle = line.split('"')[1], line.rpartition(" ")[2]
            command = f'replace rule ip {TABLE} {chain} handle {handle} ip daddr 192.0.2.1 accept comment "{comment}"'
            node.run("nft", "-f", "-", text=command + "\n")
            poll(lambda: held(node) == right)


def test_what_changes_nothing_writes_nothing(node: NetNamespace, folder: Folder, tmp_path: Path) -> None:
    with serving(node, tmp_path, folder) as agent:
        before = generation_of(node)
        web = service("web", "10.96.0.1", publishNotReadyAddresses=True, trafficDistribution="PreferClose")
        heartbeat = [web, slice_of("web", "10.0.0.2", "10.0.0.1"), *STICKY, *NOBODY]
        heartbeat[0]["metadata"]["annotations"] = {"somebody": "looked at it"}
        folder.write(heartbeat)
        poll(lambda: counted(agent, "config_generation") > 1)
        folder.write([*heartbeat, service("late", "10.96.0.9")])  # what comes later is seen later
        poll(lambda: "10.96.0.9" in str(held(node)["cluster-ips"]))
        assert generation_of(node) == before + 1


def test_a_bad_object_takes_nothing_from_others(node: NetNamespace, folder: Folder, tmp_path: Path) -> None:
    with serving(node, tmp_path, folder) as agent:
        right = held(node)
        bad = [
            service("zeros", "010.096.000.007"),
            service("family", "10.96.0.8", externalIPs=["2001:db8::1", "not an address"]),
            service("twice", "10.96.0.10", {"name": "a", "port": 80}, {"name": "b", "port": 80}),
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "shape"}, "spec": {"ports": "all"}},
            slice_of("web", "10.0.0.1", "10.0.0.2"),
            {**slice_of("family", "fd00::1"), "addressType": "IPv4"},
        ]
        folder.write([service("good", "10.96.0.11"), slice_of("good", "10.0.0.11"), *bad, WEB[0], *STICKY, *NOBODY])
        poll(lambda: "10.96.0.11" in str(held(node)["service-ips"]))
        now = held(node)
        assert all(right[name] <= now[name] for name in right)
        assert "10.96.0.7" in str(now["rejected"])  # as kube-proxy reads it, and as the API server did when it took it
        names = {"Service/default/zeros", "Service/default/family", "Service/default/twice", "Service/default/shape"}
        poll(lambda: names <= {word.rstrip(":") for line in agent.log() for word in line["message"].split()})
        assert "Service/default/good" not in agent.text()
        assert agent.ready()
        folder.write([*WEB, *STICKY, *NOBODY])
        poll(lambda: held(node) == right)


@pytest.mark.slow
def test_a_source_that_breaks_leaves_what_is_in_force(node: NetNamespace, folder: Folder, tmp_path: Path) -> None:
    with serving(node, tmp_path, folder) as agent:
        right, before = held(node), generation_of(node)
        folder.path.rename(tmp_path / "away")
        poll(lambda: agent.get("/readyz")[0] == 503)
        assert (held(node), generation_of(node)) == (right, before)
    with started(
        node, tmp_path, "--source", str(folder.path), *PAGES, feature="services"
    ) as again:  # a start without a source is no start without Services
        poll(lambda: again.get("/readyz")[0] == 503)
        assert (held(node), generation_of(node)) == (right, before)
        (tmp_path / "away").rename(folder.path)
        poll(again.ready)
        assert (held(node), generation_of(node)) == (right, before)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mistake", ["{", '{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": 1}']
)
def test_a_start_beside_a_broken_file_takes_nothing_away(
    node: NetNamespace, folder: Folder, tmp_path: Path, mistake: str
) -> None:
    with serving(node, tmp_path, folder):
        right, before = held(node), generation_of(node)
    file = folder.path / "objects.jsonl"
    good = file.read_text()
    file.write_text("\n".join([mistake, *good.splitlines()[1:]]))
    with started(node, tmp_path, "--source", str(folder.path), *PAGES, feature="services") as agent:
        poll(lambda: "objects.jsonl" in agent.text() and agent.get("/livez")[0] == 200)
        folder.write([service("new", "10.96.0.12")], "another")
        poll(lambda: "10.96.0.12" in str(held(node)["rejected"]))
        (folder.path / "another.jsonl").unlink()
        poll(lambda: held(node) == right)
        file.write_text(good)
        poll(agent.ready)
    with serving(node, tmp_path, folder):
        assert (held(node), generation_of(node)) == (right, before + 2)


@contextmanager
def api_server(node: NetNamespace, server: FakeApiServer) -> Iterator[None]:
    """Serve a fake API on the node's loopback for the body."""
    ready, stop = threading.Event(), threading.Event()

    async def serve() -> None:
        async with server.serving():
            ready.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: node.run_async(serve))
    thread.start()
    try:
        assert ready.wait(20)
        yield
    finally:
        stop.set()
        thread.join()


def test_a_placeholder_for_the_api_server_is_exit_2(node: NetNamespace, tmp_path: Path) -> None:
    manifest = (Path(__file__).parents[2] / "deploy" / "services" / "configmap.yaml").read_text()
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_load(manifest)["data"]["kubeconfig.conf"])
    words = ("services", "run", "--kubeconfig", str(path), "--state-dir", str(tmp_path / "state"))
    code, _, said = podgate(*words, namespace=node)
    assert (code, "still to be written" in said, str(path) in said) == (2, True, True)


@pytest.mark.slow
def test_what_it_may_not_list_leaves_what_is_in_force(node: NetNamespace, folder: Folder, tmp_path: Path) -> None:
    with serving(node, tmp_path, folder):
        right, before = held(node), generation_of(node)
    server = FakeApiServer(*RESOURCES)
    for obj in (*WEB, *STICKY, *NOBODY):
        server.put("services" if obj["kind"] == "Service" else "endpointslices", obj)
    server.forbidden = {(verb, "endpointslices") for verb in ("list", "watch")}
    with api_server(node, server):
        kubeconfig = tmp_path / "kubeconfig"
        config = {
            "clusters": [{"name": "a", "cluster": {"server": server.url}}],
            "users": [{"name": "a", "user": {"token": "t"}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "current-context": "a",
        }
        kubeconfig.write_text(json.dumps(config))
        with started(node, tmp_path, "--kubeconfig", str(kubeconfig), *PAGES, feature="services") as agent:
            poll(lambda: "endpointslices are not known (forbidden)" in agent.get("/readyz")[1])
            assert (held(node), generation_of(node)) == (right, before)
            assert agent.get("/livez")[0] == 200


@pytest.mark.slow
def test_a_restart_writes_the_difference(node: NetNamespace, folder: Folder, tmp_path: Path) -> None:
    with serving(node, tmp_path, folder) as agent:
        right, before = held(node), generation_of(node)
        assert agent.stop() == 0
    with serving(node, tmp_path, folder) as agent:
        assert (held(node), generation_of(node)) == (right, before)
        assert not [line for line in agent.log("applied") if "nftables" in line["step"]]
    folder.write([*WEB, *STICKY, *NOBODY, service("new", "10.96.0.12")])
    with serving(node, tmp_path, folder) as agent:
        assert generation_of(node) == before + 1
        assert "10.96.0.12" in str(held(node)["rejected"])


@pytest.mark.slow
def test_a_proxy_with_a_name_stands_beside_the_default_one(node: NetNamespace, folder: Folder, tmp_path: Path) -> None:
    named = {PROXY_NAME: "mesh"}
    folder.write([service("meshed", "10.96.0.1", labels=named), slice_of("meshed", "10.0.0.9", labels=named)], "mesh")
    words = ("--service-proxy-name", "mesh", "--metrics-addr", "127.0.0.1:10351", "--health-addr", "")
    state = tmp_path / "mesh"
    with serving(node, tmp_path, folder) as agent:
        right = held(node)
        assert "10.0.0.9" not in str(right["endpoints"])
        with started(node, state, "--source", str(folder.path), *words, feature="services") as other:
            poll(lambda: "10.0.0.9" in str(held(node, f"{TABLE}-mesh").get("endpoints")))
            assert "10.0.0.1" not in str(held(node, f"{TABLE}-mesh")["endpoints"])
            assert other.stop() == 0
        cleaned = podgate("services", "clean", *words[:2], "--state-dir", str(state / "state"), namespace=node)
        assert cleaned.code == 0, cleaned
        assert held(node, f"{TABLE}-mesh") == {}
        assert held(node) == right
        assert agent.ready()


MANY = 7000
"""So many that a load is split into several transactions (more than 20,000 elements)."""


def addresses(last: int) -> Iterator[tuple[str, str]]:
    """Give addresses of Services with those of their endpoints; every second endpoint changes with a number."""
    for number in range(MANY):
        high, low = divmod(number, 250)
        yield f"10.100.{high}.{low}", f"10.{101 + (last if number % 2 else 0)}.{high}.{low}"


def many(last: int) -> Iterator[Object]:
    """Give the objects of these."""
    for number, (address, end) in enumerate(addresses(last)):
        yield service(f"s{number}", address)
        yield slice_of(f"s{number}", end)


@pytest.mark.slow
def test_wherever_it_is_killed_the_next_start_makes_it_right(node: NetNamespace, tmp_path: Path) -> None:
    folder, chance, written = Folder(tmp_path / "source"), random.Random(7), 0
    for number in range(2):
        folder.write(many(number))
        with started(node, tmp_path, "--source", folder.path, *PAGES, feature="services") as agent:
            poll(lambda: generation_of(node) > written)  # noqa: B023 - called at once; the first transaction is in
            try:
                agent.process.wait(chance.uniform(0.0, 0.5))
            except subprocess.TimeoutExpired:
                agent.end(signal.SIGKILL)
            assert agent.process.returncode == -signal.SIGKILL, agent.text()[-2000:]
            written = generation_of(node)
    folder.write(many(3))
    with serving(node, tmp_path, folder):
        found = held(node)
    assert found["endpoints"] == {
        json.dumps([{"concat": [address, "tcp", 80, 0]}, {"concat": [end, 80]}]) for address, end in addresses(3)
    }
    assert found["service-ips"] == {json.dumps([{"concat": [address, "tcp", 80]}, 1]) for address, _ in addresses(3)}
