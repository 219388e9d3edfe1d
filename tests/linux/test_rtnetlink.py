"""rtnetlink: what we decode is what ``ip`` and pyroute2 say of the same namespace.

Here: a namespace with devices, addresses and routes of every shape that the decoders know, read three ways.
Not here: following changes (tests/sources/test_machine.py). Invariant: the second opinions are other programs.
"""

import ipaddress
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from pyroute2 import IPRoute

from podgate.linux.netlink import Connection
from podgate.linux.rtnetlink import Link, LinkAddress, LinkRoute, addresses, delete_link, links, routes
from tests.support.netns import NetNamespace, netns

pytestmark = pytest.mark.kernel

COMMANDS = """
link add br0 type bridge
link add v0 type veth peer name v1
link set v1 master br0
link add p0 type veth peer name p1
link set br0 up
link set v0 up
link set v1 up
link set p0 up
addr add 10.1.0.1/24 broadcast 10.1.0.255 dev br0
addr add 10.1.0.2/24 dev br0
addr add 10.9.0.1 peer 10.9.0.2/32 dev v0
addr add 169.254.1.1/32 scope link dev v0
addr add fd00:1::1/64 dev br0 nodad
addr add fd00:9::1 peer fd00:9::2/128 dev v0 nodad
route add 10.20.0.0/16 via 10.1.0.9
route add 10.21.0.0/16 nexthop via 10.1.0.9 weight 1 nexthop via 10.9.0.2 weight 2
route add 10.22.0.0/16 dev v0 src 10.9.0.1
route add 10.23.0.0/16 via inet6 fd00:1::9 dev br0
route add default via 10.1.0.254
route add fd00:20::/48 via fd00:1::9
route add fd00:21::/48 nexthop via fd00:1::8 nexthop via fd00:1::9
route add blackhole 10.30.0.0/16
route add unreachable fd00:30::/48
route add 10.40.0.0/16 via 10.1.0.9 table 100
route add 10.41.0.0/16 via 10.1.0.9 table 1000
"""


@pytest.fixture(scope="module")
def namespace() -> Iterator[NetNamespace]:
    with netns() as made:
        made.run("ip", "-batch", "-", text=COMMANDS)
        yield made


def dumped(namespace: NetNamespace, what: Any) -> Any:
    def read() -> Any:
        with Connection(socket.NETLINK_ROUTE) as connection:
            return what(connection)

    return namespace.call(read)


def said_by_ip(namespace: NetNamespace, *arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(namespace.run("ip", "-d", "-j", *arguments))
    return found


def test_links_are_those_of_ip(namespace: NetNamespace) -> None:
    said = said_by_ip(namespace, "link")
    index = {one["ifname"]: one["ifindex"] for one in said}
    assert sorted(dumped(namespace, links)) == sorted(
        Link(
            device=one["ifindex"],
            name=one["ifname"],
            kind=one.get("linkinfo", {}).get("info_kind", ""),
            master=index.get(one.get("master", ""), 0),
            up="UP" in one["flags"],
        )
        for one in said
    )
    assert {"veth", "bridge", ""} <= {one.kind for one in dumped(namespace, links)}


def test_addresses_are_those_of_ip(namespace: NetNamespace) -> None:
    scopes = {"global": 0, "link": 253, "host": 254}
    found = dumped(namespace, addresses)
    expected = [
        LinkAddress(
            device=one["ifindex"],
            address=ipaddress.ip_address(entry["local"]),
            prefix=entry["prefixlen"],
            scope=scopes[entry["scope"]],
            broadcast=ipaddress.ip_address(entry["broadcast"]) if "broadcast" in entry else None,
        )
        for one in said_by_ip(namespace, "addr")
        for entry in one["addr_info"]
    ]
    assert sorted(map(str, found)) == sorted(map(str, expected))
    assert {str(one.address) for one in found} >= {"10.9.0.1", "10.1.0.2", "fd00:9::1", "169.254.1.1", "::1"}


def test_routes_are_those_of_ip(namespace: NetNamespace) -> None:
    index = {one["ifname"]: one["ifindex"] for one in said_by_ip(namespace, "link")}
    expected = [
        said_route(one, hop, index, version)
        for version in (4, 6)
        for one in said_by_ip(namespace, f"-{version}", "route", "show", "table", "main")
        if one.get("type", "unicast") == "unicast"
        for hop in one.get("nexthops", [one])
    ]
    found = dumped(namespace, routes)
    assert sorted(map(str, found)) == sorted(map(str, expected))
    shown = {f"{one.destination}/{one.prefix}" for one in found}
    assert {"10.20.0.0/16", "10.21.0.0/16", "10.23.0.0/16", "0.0.0.0/0", "fd00:21::/48"} <= shown
    assert not {"10.30.0.0/16", "10.40.0.0/16", "10.41.0.0/16", "fd00:30::/48"} & shown


def said_route(one: dict[str, Any], hop: dict[str, Any], index: dict[str, int], version: int) -> LinkRoute:
    everything = "0.0.0.0/0" if version == 4 else "::/0"
    network = ipaddress.ip_network(everything if one["dst"] == "default" else one["dst"])
    gateway = hop.get("gateway") or hop.get("via", {}).get("host")
    return LinkRoute(
        destination=network.network_address,
        prefix=network.prefixlen,
        device=index[hop["dev"]],
        gateway=ipaddress.ip_address(gateway) if gateway else None,
        source=ipaddress.ip_address(one["prefsrc"]) if "prefsrc" in one else None,
    )


def test_names_kinds_and_addresses_are_those_of_pyroute2(namespace: NetNamespace) -> None:
    def second_opinion() -> tuple[set[tuple[int, str, str | None]], set[tuple[int, str, int]]]:
        with IPRoute() as other:
            devices = {
                (one["index"], one.get("ifname"), one.get(("linkinfo", "kind")) or "") for one in other.get_links()
            }
            own = {(one["index"], one.get("local") or one.get("address"), one["prefixlen"]) for one in other.get_addr()}
            return devices, own

    devices, own = namespace.call(second_opinion)
    assert {(one.device, one.name, one.kind) for one in dumped(namespace, links)} == devices
    assert {(one.device, str(one.address), one.prefix) for one in dumped(namespace, addresses)} == own


def test_a_device_is_deleted_once_and_for_all() -> None:
    with netns() as own:
        own.run("ip", "link", "add", "gone", "type", "bridge")
        (number,) = [one.device for one in dumped(own, links) if one.name == "gone"]
        for _ in range(2):
            dumped(own, lambda connection: delete_link(connection, number))
        assert [one.name for one in dumped(own, links)] == ["lo"]
