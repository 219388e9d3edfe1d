"""Flows to Services as data: reads flows/*.yaml, whose format flows/README.md describes.

Here: reading, variants, names replaced by the addresses of a world; the world of tests without packets. Not here: what
is done with a flow (test_flows.py, and the tests that trace or send packets).
Invariant: an unknown key or name fails when it is read, so no flow is skipped in silence.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from podgate.model.documents import parse
from podgate.model.machine import Family

FOLDER = Path(__file__).parent / "flows"
_NAME = re.compile(r"\$\{([a-z0-9-]+)\}")
_SCENARIO = {"scenario", "settings", "variants", "zone", "objects", "families", "flows"}
_FLOW = {"from", "to", "port", "protocol", "verdict", "endpoints", "masquerade", "hairpin"}
FAMILIES: tuple[Family, ...] = ("ip", "ip6")


class Flow(NamedTuple):
    """One flow with names, or after ``in_world`` with addresses; ``sender`` ``node`` stays a word."""

    sender: str
    to: str
    port: int
    protocol: str
    verdict: str
    endpoints: tuple[str, ...]
    masquerade: bool
    hairpin: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.sender} -> {self.to}:{self.port}/{self.protocol}"


class Scenario(NamedTuple):
    """What is there, and what should happen to packets."""

    name: str
    settings: Mapping[str, Any]
    objects: tuple[Mapping[str, Any], ...]
    flows: tuple[Flow, ...]
    families: tuple[Family, ...] = FAMILIES
    zone: str = ""

    def __str__(self) -> str:
        return self.name.replace(" ", "-")


World = Mapping[str, str]
"""Names, as in flows/README.md, to addresses of one family."""

FAKE: Mapping[Family, World] = {
    "ip": {
        "this": "node-1", "other": "node-2", "node": "192.168.0.2", "other-node": "192.168.0.3",
        "node-second": "192.168.99.2", "pod": "10.180.0.9", "other-pod": "10.180.1.9", "local-1": "10.180.0.1",
        "local-2": "10.180.0.2", "remote-1": "10.180.1.1", "remote-2": "10.180.1.2", "outside": "203.0.113.10",
        "blocked": "198.51.100.10", "cluster-ip-1": "172.30.0.41", "cluster-ip-2": "172.30.0.42",
        "cluster-ip-3": "172.30.0.43", "cluster-ip-4": "172.30.0.44", "unallocated": "172.30.9.9",
        "external-ip": "192.0.2.99", "balancer-1": "192.0.2.11", "balancer-2": "192.0.2.12", "loopback": "127.0.0.1",
        "cluster-cidr": "10.180.0.0/16", "service-cidr": "172.30.0.0/16", "outside-range": "203.0.113.0/24",
        "node-range": "192.168.0.0/24", "address-type": "IPv4", "pod-interface": "vethpod", "pod-interfaces": "veth",
        "pod-range": "10.180.0.0/24",
    },
    "ip6": {
        "this": "node-1", "other": "node-2", "node": "fd00:1::2", "other-node": "fd00:1::3",
        "node-second": "fd00:99::2", "pod": "fd00:180::9", "other-pod": "fd00:180:1::9", "local-1": "fd00:180::1",
        "local-2": "fd00:180::2", "remote-1": "fd00:180:1::1", "remote-2": "fd00:180:1::2",
        "outside": "2001:db8:1::10", "blocked": "2001:db8:2::10", "cluster-ip-1": "fd00:30::41",
        "cluster-ip-2": "fd00:30::42", "cluster-ip-3": "fd00:30::43", "cluster-ip-4": "fd00:30::44",
        "unallocated": "fd00:30::999", "external-ip": "2001:db8:9::99", "balancer-1": "2001:db8:9::11",
        "balancer-2": "2001:db8:9::12", "loopback": "::1", "cluster-cidr": "fd00:180::/32",
        "service-cidr": "fd00:30::/112", "outside-range": "2001:db8:1::/64", "node-range": "fd00:1::/64",
        "address-type": "IPv6", "pod-interface": "vethpod", "pod-interfaces": "veth",
        "pod-range": "fd00:180::/48",
    },
}  # fmt: skip
"""The world of tests without packets."""


def read_scenarios(*paths: Path) -> list[Scenario]:
    """Read files, all of the folder without any; each variant is a scenario."""
    found = [scenario for path in paths or sorted(FOLDER.glob("*.yaml")) for scenario in _read(path)]
    names = [scenario.name for scenario in found]
    assert len(set(names)) == len(names), "two scenarios have one name"
    return found


def in_world(scenario: Scenario, world: World) -> Scenario:
    """Replace names by addresses; endpoints become ``a.b.c.d:p`` or ``[v6]:p``, sorted as ``explain`` does."""
    return scenario._replace(
        settings=_replaced({"cluster_cidr": "${cluster-cidr}", **scenario.settings}, world),
        objects=tuple(_replaced(each, world) for each in scenario.objects),
        zone=_replaced(scenario.zone, world),
        flows=tuple(
            flow._replace(
                sender=flow.sender if flow.sender == "node" else world[flow.sender],
                to=world[flow.to],
                endpoints=tuple(sorted(_endpoint(each, world) for each in flow.endpoints)),
                hairpin=tuple(sorted(_endpoint(each, world) for each in flow.hairpin)),
            )
            for flow in scenario.flows
        ),
    )


def _read(path: Path) -> Iterator[Scenario]:
    parsed = parse(path.read_bytes())
    assert not parsed.faults, f"{path}: {parsed.faults}"
    for document in parsed.documents:
        assert set(document) <= _SCENARIO, f"{path}: {set(document) - _SCENARIO}"
        variants = document.get("variants") or {"": {}}
        for variant, settings in variants.items():
            yield Scenario(
                f"{path.stem}: {document['scenario']}{variant and f' ({variant})'}",
                {**document.get("settings", {}), **settings},
                tuple(document.get("objects", ())),
                tuple(_flow(path, flow, variant, set(variants)) for flow in document["flows"]),
                tuple(family for family in FAMILIES if family in document.get("families", FAMILIES)),
                document.get("zone", ""),
            )


def _flow(path: Path, flow: Mapping[str, Any], variant: str, variants: set[str]) -> Flow:
    assert set(flow) <= _FLOW, f"{path}: {set(flow) - _FLOW}"
    values = {}
    for key, value in flow.items():
        if isinstance(value, dict):
            assert set(value) <= variants | {"else"}, f"{path}: {flow}"
            value = value[variant if variant in value else "else"]  # noqa: PLW2901 - the variant's own
        values[key] = value
    endpoints = tuple(values.get("endpoints", ()))
    verdict = values.get("verdict", "forward")
    assert bool(endpoints) == (verdict == "forward"), f"{path}: {flow}: give endpoints or another verdict than forward"
    return Flow(
        values["from"],
        values["to"],
        values["port"],
        values.get("protocol", "tcp"),
        verdict,
        endpoints,
        values.get("masquerade", False),
        tuple(values.get("hairpin", ())),
    )


def _endpoint(text: str, world: World) -> str:
    name, _, port = text.rpartition(":")
    address = world[name]
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _replaced(value: Any, world: World) -> Any:
    if isinstance(value, str):
        return _NAME.sub(lambda found: world[found[1]], value)
    if isinstance(value, dict):
        return {key: _replaced(each, world) for key, each in value.items()}
    return [_replaced(each, world) for each in value] if isinstance(value, list) else value


_BY_RANGES = (
    "endpoints: one port number, several protocols",
    "no_endpoints: a port that no Service has, and an address that no Service has",
    "no_endpoints: Services that no proxy is for",
)
"""Scenarios in which packets are refused since their destination lies in a range of Services, or is a cluster IP."""


def for_iptables(scenario: Scenario) -> Scenario:
    """Give what iptables does: it knows no ranges, so nothing is done there; node ports are as with nftables."""
    settings = {"nodeport_addresses": "primary", **scenario.settings}
    if scenario.name not in _BY_RANGES:
        return scenario._replace(settings=settings)
    flows = tuple(flow if flow.endpoints else flow._replace(verdict="none") for flow in scenario.flows)
    return scenario._replace(settings=settings, flows=flows)
