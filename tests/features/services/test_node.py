"""This node's own addresses where its Node tells none; cases/node.case has all else."""

from ipaddress import ip_address, ip_interface, ip_network

from podgate.features.services.node import primary_addresses
from podgate.model.machine import Address, Machine, Route

ADDRESSES = tuple(
    Address(device, ip_interface(text))
    for device, text in (
        ("cbr0", "10.244.1.1/24"),
        ("cbr0", "fd00:244::1/64"),
        ("eth0", "192.168.0.2/24"),
        ("eth0", "fd00:1::2/64"),
    )
)
V4 = Route(ip_network("0.0.0.0/0"), "eth0", ip_address("192.168.0.1"))
V6 = Route(ip_network("::/0"), "eth0", ip_address("fe80::1"))
OF_A_POD = Route(ip_network("::/0"), "cbr0", ip_address("fe80::99"))
"""What the kernel makes of a Pod's router advertisement."""


def primary(*routes: Route) -> list[str]:
    machine = Machine(addresses=ADDRESSES, routes=routes)
    return [str(ip_address(address)) for address in primary_addresses(None, machine)]


def test_they_are_those_of_the_device_with_the_default_route() -> None:
    assert primary(V4) == primary(V4, V6) == ["192.168.0.2", "fd00:1::2"]


def test_an_ipv6_default_route_tells_no_ipv4_address() -> None:
    assert primary(V6) == ["fd00:1::2"]


def test_a_pod_that_advertises_itself_as_an_ipv6_router_changes_none() -> None:
    assert primary(OF_A_POD, V4) == primary(OF_A_POD, V6, V4) == ["192.168.0.2", "fd00:1::2"]
