"""Which connections from before the rules go: what a Pod opened to the metadata server, but for the proxy's own."""

from ipaddress import ip_address

import pytest

from podgate.commandline.options import settings_from
from podgate.features.metadata.intent import NodeRules
from podgate.features.metadata.node_rules import node_rules
from podgate.features.metadata.settings import Settings
from podgate.features.metadata.to_conntrack import barred
from podgate.model.machine import Machine
from podgate.targets.conntrack.state import Flow

POD, NODE, CLOUD, OWN = "10.244.1.2", "192.0.2.1", "169.254.169.254", "169.254.169.252"

# profile, protocol, source, destination, port, who answers -> whether it is cut
FLOWS = [
    ("gce", "tcp", POD, CLOUD, 80, CLOUD, True),
    ("gce", "tcp", POD, CLOUD, 8080, CLOUD, True),
    ("gce", "tcp", POD, CLOUD, 443, CLOUD, True),
    ("gce", "tcp", POD, CLOUD, 80, NODE, True),  # another agent's redirect
    ("gce", "tcp", POD, CLOUD, 80, OWN, False),  # our own
    ("gce", "tcp", POD, CLOUD, 53, CLOUD, False),
    ("gce", "udp", POD, CLOUD, 80, CLOUD, False),
    ("gce", "tcp", NODE, CLOUD, 80, CLOUD, False),
    ("gce", "tcp", OWN, CLOUD, 80, CLOUD, False),
    ("gce", "tcp", POD, OWN, 988, OWN, False),
    ("gce", "tcp", "fd00::2", "fd20:ce::254", 80, "fd20:ce::254", True),
    ("gce", "tcp", "fd00::2", "fd00:ec2::254", 80, "fd00:ec2::254", False),
    ("gce", "tcp", POD, "168.63.129.16", 80, "168.63.129.16", False),
    ("aws", "tcp", "fd00::2", "fd00:ec2::254", 80, "fd00:ec2::254", True),
    ("azure", "tcp", POD, "168.63.129.16", 80, "168.63.129.16", True),
    ("azure", "tcp", POD, "168.63.129.16", 32526, "168.63.129.16", True),
    ("azure", "tcp", POD, "168.63.129.16", 53, "168.63.129.16", False),
]


@pytest.mark.parametrize("case", FLOWS, ids=str)
def test_flow(case: tuple[str, str, str, str, int, str, bool]) -> None:
    profile, protocol, source, destination, port, answerer, is_cut = case
    asker, asked = ip_address(source), ip_address(destination)
    flow = Flow(asker, asked, ip_address(answerer), asker, protocol, 40_000, port)
    own = frozenset(map(ip_address, (NODE, OWN)))
    rules = node_rules(settings_from(Settings, {"profile": profile}), Machine())
    assert any(each.bars(flow, own) for each in barred(rules)) == is_cut
    assert barred(NodeRules(why="a test")) == ()
