"""The lab's network as a value, and the way from one to the next, in text and in a real kernel."""

import asyncio
import re
import subprocess
from collections.abc import Iterator
from functools import partial
from ipaddress import ip_address, ip_interface, ip_network

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podgate.lab.netplan import Plan, plan, veth_line
from podgate.lab.network import (
    UPLINK,
    Address,
    HostNet,
    Network,
    NodeNet,
    PodNet,
    Route,
    Topology,
    device_name,
    mac_of,
    network,
    only_ipv4,
    router_addresses,
)
from podgate.lab.wire import Wire, explained
from podgate.linux.namespaces import inside_network
from tests.support.netns import NetNamespace


def node(number: int, *, pods: str = "") -> NodeNet:
    return NodeNet(
        f"node-{number}",
        (ip_interface(f"10.140.15.{number}/20"), ip_interface(f"fd00:140::{number}/64")),
        (ip_network(pods or f"10.16.{number}.0/24"), ip_network(f"fd00:16:{number}::/64")),
    )


WEB = PodNet("default", "web", "node-1", (ip_address("10.16.1.6"), ip_address("fd00:16:1::6")))
PEER = PodNet("default", "peer", "node-2", (ip_address("10.16.2.7"),))
PARTNER = HostNet("partner", (ip_address("10.70.0.2"),), (ip_address("10.70.0.1"),))
ALL = Topology((node(1), node(2)), (WEB, PEER), (PARTNER,))


def routes(made: Network, namespace: str) -> set[str]:
    """Give routes as ``DESTINATION [via GATEWAY] [from SOURCE]``."""
    return {
        f"{r.destination}{f' via {r.via}' if r.via else ''}{f' from {r.source}' if r.source else ''}"
        for r in made.namespaces[namespace].routes
    }


def test_the_router_takes_the_first_address_that_no_node_has() -> None:
    nodes = (NodeNet("a", (ip_interface("10.0.0.1/24"),)), NodeNet("b", (ip_interface("10.0.0.2/24"),)))
    assert router_addresses(nodes) == {ip_network("10.0.0.0/24"): ip_interface("10.0.0.3/24")}
    assert router_addresses((NodeNet("a", (ip_interface("10.0.0.1/32"),)),)) == {}


def test_a_node_routes_its_pods_to_their_links_and_others_to_their_nodes() -> None:
    assert routes(network(ALL), "node/node-1") == {
        "0.0.0.0/0 via 10.140.0.1 from 10.140.15.1",
        "::/0 via fd00:140::3 from fd00:140::1",
        "10.16.2.0/24 via 10.140.15.2 from 10.140.15.1",
        "fd00:16:2::/64 via fd00:140::2 from fd00:140::1",
        "10.16.1.6/32 from 10.140.15.1",
        "fd00:16:1::6/128 from fd00:140::1",
    }


def test_a_pod_has_one_way_out_per_family() -> None:
    made = network(ALL)
    assert routes(made, "pod/default/web") == {
        "169.254.1.1/32", "0.0.0.0/0 via 169.254.1.1", "fe80::1/128", "::/0 via fe80::1",
    }  # fmt: skip
    assert routes(made, "pod/default/peer") == {"169.254.1.1/32", "0.0.0.0/0 via 169.254.1.1"}
    assert made.namespaces["pod/default/web"].addresses == (
        Address(UPLINK, ip_interface("10.16.1.6/32")),
        Address(UPLINK, ip_interface("fd00:16:1::6/128")),
    )


def test_the_router_knows_pods_by_their_nodes_and_each_host_by_its_link() -> None:
    made = network(ALL)
    assert "10.16.1.0/24 via 10.140.15.1" in routes(made, "router")
    assert "10.70.0.2/32" in routes(made, "router")
    assert routes(made, "host/partner") == {"10.70.0.1/32", "0.0.0.0/0 via 10.70.0.1"}
    assert not {route for route in routes(made, "router") if route.startswith(("0.0.0.0/0", "::/0"))}


def test_nodes_in_different_subnets_reach_each_other_through_the_router() -> None:
    far = NodeNet("far", (ip_interface("10.200.0.9/24"),), (ip_network("10.16.9.0/24"),))
    made = network(Topology((node(1), far)))
    assert not any("10.16.9.0/24" in route for route in routes(made, "node/node-1"))
    assert "10.16.9.0/24 via 10.200.0.9" in routes(made, "router")


def test_what_lies_behind_a_node_or_host_is_known_to_the_router() -> None:
    ranges = (("10.9.0.0/16", "10.140.15.1"), ("10.8.0.0/16", "10.70.0.2"), ("10.7.0.0/16", "192.0.2.1"))
    behind = tuple((ip_network(to), ip_address(via)) for to, via in ranges)
    made = network(Topology(ALL.nodes, (), (PARTNER, HostNet("other", (ip_address("10.71.0.2"),), (), behind))))
    assert {"10.9.0.0/16 via 10.140.15.1", "10.8.0.0/16 via 10.70.0.2"} <= routes(made, "router")
    assert not any("192.0.2.1" in route for route in routes(made, "router"))


def test_a_machine_without_ipv6_gets_the_rest() -> None:
    made = network(only_ipv4(ALL))
    assert "10.16.1.6/32 from 10.140.15.1" in routes(made, "node/node-1")
    assert not any(":" in route for name in made.namespaces for route in routes(made, name))


def test_a_pod_without_its_node_is_left_out() -> None:
    assert "pod/default/web" not in network(Topology((), (WEB,))).namespaces


def test_names_and_link_layer_addresses_are_valid_and_stable() -> None:
    assert device_name("veth", "pod/default/web") == device_name("veth", "pod/default/web")
    assert len(device_name("veth", "x" * 300)) <= 15
    assert mac_of("x").startswith("02:")
    assert len(mac_of("x")) == 17


# --- plans ---


def test_nothing_to_do_is_falsy() -> None:
    assert not plan(network(ALL), network(ALL))
    assert not Plan()


def test_a_new_pod_touches_its_node_and_itself_only() -> None:
    before = network(Topology((node(1), node(2)), (PEER,), (PARTNER,)))
    todo = plan(before, network(ALL))
    assert set(todo.started) == {"pod/default/web"}
    assert set(todo.after) == {"node/node-1", "pod/default/web"}
    assert (todo.before, todo.stopped) == ({}, ())
    (veth,) = todo.veths
    assert veth_line(veth, {"node/node-1": 7, "pod/default/web": 9}) == (
        f"link add name {veth.one.device} address {veth.one.mac} netns 7 type veth "
        f"peer name eth0 address {veth.other.mac} netns 9"
    )
    assert todo.after["node/node-1"] == (
        f"link set dev {veth.one.device} up",
        f"route replace 10.16.1.6/32 dev {veth.one.device} src 10.140.15.1 scope link",
        f"route replace fd00:16:1::6/128 dev {veth.one.device} src fd00:140::1",
        f"neigh replace 10.16.1.6 lladdr {veth.other.mac} dev {veth.one.device} nud permanent",
        f"neigh replace fd00:16:1::6 lladdr {veth.other.mac} dev {veth.one.device} nud permanent",
    )


def test_a_pod_that_goes_takes_its_link_along() -> None:
    todo = plan(network(ALL), network(Topology(ALL.nodes, (PEER,), ALL.hosts)))
    assert todo.stopped == ("pod/default/web",)
    assert [line.split()[:2] for line in todo.before["node/node-1"]] == [["link", "del"]]
    assert todo.after == {}


def test_a_restarted_namespace_is_made_anew() -> None:
    todo = plan(network(ALL), network(ALL), frozenset({"pod/default/web"}))
    assert todo.stopped == tuple(todo.started) == ("pod/default/web",)
    assert [veth.other.namespace for veth in todo.veths] == ["pod/default/web"]


def test_when_an_address_goes_the_routes_are_said_again() -> None:
    moved = HostNet("partner", (ip_address("10.70.0.3"),), PARTNER.gateways)
    todo = plan(network(ALL), network(Topology(ALL.nodes, ALL.pods, (moved,))))
    assert todo.before["host/partner"] == ("addr del 10.70.0.2/32 dev eth0",)
    assert "route replace 0.0.0.0/0 via 10.70.0.1 dev eth0 onlink" in todo.after["host/partner"]


TOPOLOGIES = st.builds(
    Topology,
    st.sets(st.sampled_from((1, 2, 3))).map(lambda numbers: tuple(map(node, sorted(numbers)))),
    st.sets(st.sampled_from((WEB, PEER))).map(lambda pods: tuple(sorted(pods, key=lambda pod: pod.name))),
    st.sampled_from(((), (PARTNER,))),
)


@given(TOPOLOGIES, TOPOLOGIES)
@settings(max_examples=50, deadline=None)
def test_a_plan_names_only_namespaces_that_are_there_at_its_time(one: Topology, other: Topology) -> None:
    have, want = network(one), network(other)
    todo = plan(have, want)
    assert set(todo.before) <= set(have.namespaces)
    assert set(todo.after) | set(todo.started) <= set(want.namespaces)
    assert bool(todo) == (have != want)
    ends = {end.namespace for veth in todo.veths for end in (veth.one, veth.other)}
    assert ends <= set(want.namespaces)


# --- in the kernel ---


def test_a_refused_line_is_shown_with_its_text() -> None:
    complaint = "Error: argument is wrong\nCommand failed -:2\n"
    assert explained(complaint, ("link set lo up", "addr add x")) == "Error: argument is wrong in `ip addr add x`"


def shown(wire: Wire, name: str) -> tuple[str, ...]:
    """Give all that a namespace holds, as ``ip`` shows it."""
    with inside_network(wire.sandboxes[name].network):
        outputs = [_ip(words) for words in ("-br addr", "-4 route", "-6 route", "neigh show nud permanent")]
    return tuple(line for output in outputs for line in sorted(output.splitlines()))


def _ip(words: str) -> str:
    return subprocess.run(["ip", *words.split()], capture_output=True, text=True, check=True).stdout


@pytest.fixture
def home() -> Iterator[NetNamespace]:
    namespace = NetNamespace()
    yield namespace
    namespace.close()


STEPS = (
    ALL,
    Topology((node(1),), (WEB,), ()),
    Topology((node(1), node(3)), (WEB,), (PARTNER,)),
    Topology((NodeNet("node-1", (ip_interface("10.140.15.9/20"),), node(1).pod_cidrs), node(2)), (PEER,), (PARTNER,)),
    ALL,
)


@pytest.mark.slow
@pytest.mark.kernel
def test_changing_the_network_gives_what_making_it_at_once_gives(home: NetNamespace) -> None:
    warnings: list[str] = []

    async def made(*topologies: Topology) -> dict[str, tuple[str, ...]]:
        wire = Wire(warnings.append)
        try:
            for topology in topologies:
                await wire.apply(network(topology))
            return {name: _settled(shown(wire, name)) for name in wire.sandboxes}
        finally:
            for sandbox in wire.sandboxes.values():
                await sandbox.stop()

    for count in range(1, len(STEPS) + 1):
        by_change = home.run_async(partial(made, *STEPS[:count]))
        at_once = home.run_async(partial(made, STEPS[count - 1]))
        assert by_change == at_once
    assert warnings == []


LATER = re.compile(r"@if\d+|\b(UP|DOWN|LOWERLAYERDOWN|UNKNOWN)\b|linkdown|fe80::\S+/64|^fe80::/64.*")


def _settled(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Drop interface numbers, which depend on history, and what the kernel works out by itself after a while."""
    return tuple(sorted(" ".join(LATER.sub("", line).split()) for line in lines))


@pytest.mark.kernel
def test_what_the_machine_refuses_is_a_warning(home: NetNamespace) -> None:
    warnings: list[str] = []

    async def main() -> None:
        wire = Wire(warnings.append)
        try:
            made = network(Topology((node(1),)))
            broken = made.namespaces["node/node-1"]
            route = Route(ip_network("10.9.0.0/16"), "eth9")
            namespaces = {
                **made.namespaces,
                "node/node-1": msgspec.structs.replace(broken, routes=(*broken.routes, route)),
            }
            await wire.apply(Network(namespaces, made.veths))
            assert any("10.140.15.1/20" in line for line in shown(wire, "node/node-1"))
        finally:
            for sandbox in wire.sandboxes.values():
                await sandbox.stop()

    home.run_async(main)
    (warning,) = warnings
    assert warning.startswith("network of node/node-1: ")
    assert "in `ip route replace 10.9.0.0/16 dev eth9 scope link`" in warning


@pytest.mark.kernel
def test_a_sandbox_that_is_stopped_leaves_no_process(home: NetNamespace) -> None:
    async def main() -> int:
        wire = Wire(pytest.fail)
        await wire.apply(network(ALL))
        await wire.apply(Network())
        assert wire.sandboxes == {}
        return len(asyncio.all_tasks())

    assert home.run_async(main) == 1
