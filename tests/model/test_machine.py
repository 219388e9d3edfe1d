"""Which devices lead off the node."""

from ipaddress import ip_address, ip_network

from podgate.model.machine import Machine, Route

V4 = Route(ip_network("0.0.0.0/0"), "eth0", ip_address("10.0.0.1"))
OTHER = Route(ip_network("10.0.0.0/8"), "eth1", ip_address("10.0.0.1"))
V6 = Route(ip_network("::/0"), "eth2", ip_address("fe80::1"))


def test_an_ipv6_default_route_counts_for_ipv6_alone_and_last() -> None:
    machine = Machine(routes=(V6, OTHER, V4))
    assert machine.uplinks("ip") == ("eth0",)
    assert machine.uplinks("ip6") == ("eth0", "eth2")
    assert Machine(routes=(V6,)).uplinks("ip") == ()
