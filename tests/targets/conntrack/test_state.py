"""A tracked connection as people read it; what is done with connections is tested in the features that judge them."""

from ipaddress import ip_address

from podgate.linux.conntrack import Entry, Tuple
from podgate.targets.conntrack.apply import flow_of
from podgate.targets.conntrack.state import Flow


def test_an_entry_tells_what_was_translated_from_what_was_asked_for() -> None:
    pod, service, server, node = (bytes((10, 0, 0, last)) for last in (1, 2, 3, 4))
    entry = Entry(Tuple(pod, service, 17, 5000, 53), Tuple(server, node, 17, 5353, 6000), b"")
    first, second, third, fourth = (ip_address(f"10.0.0.{last}") for last in (1, 2, 3, 4))
    assert flow_of(entry) == Flow(first, second, third, fourth, "udp", 5000, 53)
    assert str(flow_of(entry)) == "udp 10.0.0.1:5000 > 10.0.0.2:53"


def test_a_protocol_without_a_name_shows_its_number() -> None:
    ends = Tuple(bytes(16), bytes(16), 47)
    assert flow_of(Entry(ends, ends, b"")).protocol == "47"
