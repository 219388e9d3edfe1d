"""Options, machine and labels to the node's rules; what a compile and the proxy's own process both use."""

from ipaddress import ip_address, ip_network

import pytest

from podgate.commandline.options import SettingsError, settings_from
from podgate.features.metadata.intent import NodeRules, Redirect, RefusedPorts
from podgate.features.metadata.node_rules import READY_LABEL, node_rules
from podgate.features.metadata.settings import Settings
from podgate.model.machine import Machine, Route

READY = {READY_LABEL: "true"}
MACHINE = Machine()
CLOUD, LOCAL = "169.254.169.254", "169.254.169.252"


def rules(labels: dict[str, str] | None = None, machine: Machine = MACHINE, **options: object) -> NodeRules:
    return node_rules(settings_from(Settings, options), machine, labels)


def test_on_gce_80_and_8080_are_redirected_and_the_rest_is_refused() -> None:
    found = rules()
    assert found.redirects == (Redirect(CLOUD, 80, LOCAL, 988), Redirect(CLOUD, 8080, LOCAL, 987))
    assert found.refusals == (
        RefusedPorts(CLOUD, (443,)),
        RefusedPorts("fd20:ce::254", (80, 443, 8080)),
        RefusedPorts(LOCAL),
    )
    assert found.spoofed == (CLOUD,)


def test_the_ports_move_together() -> None:
    assert [each.to_port for each in rules(addr=f"{LOCAL}:1988").redirects] == [1988, 1987]


def test_on_azure_the_wire_server_is_closed() -> None:
    assert RefusedPorts("168.63.129.16", (80, 32526)) in rules(profile="azure").refusals


@pytest.mark.parametrize(
    ("labels", "options", "phase"),
    [
        (None, {}, "open"),
        (READY, {}, "open"),
        ({}, {}, "none"),
        ({READY_LABEL: "false"}, {}, "none"),
        ({}, {"profile": "aws"}, "open"),
        (READY, {"firewall": False}, "none"),
    ],
    ids=["no Node known", "label", "no label", "label says no", "another cloud", "no firewall"],
)
def test_which_nodes_get_rules(labels: dict[str, str] | None, options: dict[str, object], phase: str) -> None:
    found = rules(labels, MACHINE, **options)
    assert found.phase == phase
    assert bool(found.why) is (phase == "none")


def test_uplinks_are_the_devices_of_ipv4_default_routes_unless_one_is_named() -> None:
    gateway = ip_address("10.0.0.1")
    machine = Machine(
        routes=(
            Route(ip_network("0.0.0.0/0"), "ens4", gateway),
            Route(ip_network("0.0.0.0/0"), "ens5", gateway),
            Route(ip_network("10.0.0.0/8"), "ens6", gateway),
        )
    )
    assert rules(machine=machine).uplinks == ("ens4", "ens5")
    assert rules(machine=machine, uplink="ens7").uplinks == ("ens7",)
    assert rules(machine=machine, uplink="ens7,ens8").uplinks == ("ens7", "ens8")


def test_a_pod_that_advertises_itself_as_an_ipv6_router_is_no_uplink() -> None:
    advertised = Route(ip_network("::/0"), "cbr0", ip_address("fe80::8c63:43ff:fef8:eaa6"))
    own = Route(ip_network("0.0.0.0/0"), "ens4", ip_address("10.0.0.1"))
    assert rules(machine=Machine(routes=(own, advertised))).uplinks == ("ens4",)
    # Nor while the node's own route is away for a moment: nobody is left alone then.
    assert rules(machine=Machine(routes=(advertised,))).uplinks == ()


def test_users_of_the_node() -> None:
    assert rules().node_users is None
    assert rules(node_uids="0-2999").node_users == (0, 2999)


@pytest.mark.parametrize("text", ["0", "5-9", "0-", "0-x", "0-5000000000", "-1"])
def test_a_range_of_users_that_is_none(text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        rules(node_uids=text)
    assert "write FIRST-LAST" in caught.value.problems[0]


@pytest.mark.parametrize("name", ["", ",", "a b", "eth0,a b", 'eth0" } accept', "eth/0", "a" * 16, "eth*"])
def test_an_uplink_that_is_no_device(name: str) -> None:
    with pytest.raises(SettingsError) as caught:
        rules(uplink=name)
    assert "is no name of a network device" in caught.value.problems[0]


@pytest.mark.parametrize("name", ["eth0", "ens4.100", "br-lan", "wlan_0", "a" * 15])
def test_an_uplink(name: str) -> None:
    assert rules(uplink=name).uplinks == (name,)
