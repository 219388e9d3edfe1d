"""Which UDP flows a commit deletes, as a table: reports 1 to 7 of kube-proxy's conntrack history among the rows."""

from ipaddress import ip_address
from typing import Any

import pytest

from podgate.features.services.intent import FamilyIntent, NodeWide, ServicePort
from podgate.features.services.to_conntrack import judge_of
from podgate.model.frozen import ObjectRef
from podgate.model.table import Table

NODE = frozenset(ip_address(each).packed for each in ("192.0.2.1", "192.0.2.2", "127.0.0.1"))
RANGE = ("10.96.0.0/16",)
"""As with nftables: with iptables no ranges are known."""


def packed(text: str) -> tuple[bytes, int]:
    address, _, port = text.rpartition(":")
    return ip_address(address).packed, int(port)


def endpoint(text: str) -> bytes:
    address, port = packed(text)
    return address + port.to_bytes(2, "big")


def dns(*serving: str, protocol: str = "udp", node_port: int = 0, external: str = "") -> ServicePort:
    return ServicePort(
        "kube-system/dns:dns",
        "tcp" if protocol == "tcp" else "udp",
        53,
        ip_address("10.96.0.10").packed,
        external=(ip_address(external).packed,) if external else (),
        node_port=node_port,
        serving=tuple(sorted(map(endpoint, serving))),
    )


def intent(*ports: ServicePort, **node: Any) -> FamilyIntent:
    table = Table.of({ObjectRef("Service", "dns", "kube-system"): ports} if ports else {})
    return FamilyIntent("ip", NodeWide(**{"service_ranges": RANGE, **node}), table)


PRIMARY = {"node_port_ips": (ip_address("192.0.2.1").packed,)}
OTHER = {"node_port_ips": (ip_address("192.0.2.2").packed,)}
A, B = "10.1.0.1:5353", "10.1.0.2:5353"
SERVICE, UNUSED = "10.96.0.10:53", "10.96.7.7:53"

CASES = {
    # what changed: (before, after, first sent to, answered by, whether it goes)
    "an endpoint went": (intent(dns(A, B)), intent(dns(B)), SERVICE, A, True),
    "the other one stays": (intent(dns(A, B)), intent(dns(B)), SERVICE, B, False),
    "all endpoints went (139628)": (intent(dns(A)), intent(dns()), SERVICE, A, True),
    "the Service went (141371)": (intent(dns(A)), intent(), SERVICE, A, True),
    "the first endpoint came, the flow was never translated (48370)": (
        *(intent(dns()), intent(dns(A))),
        *(SERVICE, SERVICE, True),
    ),
    "no endpoint came, so it would gain nothing (105657)": (
        *(intent(dns()), intent(dns(external="203.0.113.9"))),
        *(SERVICE, SERVICE, False),
    ),
    "the port of the endpoint changed": (intent(dns(A)), intent(dns("10.1.0.1:53")), SERVICE, A, True),
    "by an external address": (
        *(intent(dns(A, external="203.0.113.9")), intent(dns(B, external="203.0.113.9"))),
        *("203.0.113.9:53", A, True),
    ),
    "an external address went": (
        *(intent(dns(A, external="203.0.113.9")), intent(dns(A))),
        *("203.0.113.9:53", A, True),
    ),
    "by the node's address and a node port": (
        *(intent(dns(A, node_port=30053)), intent(dns(B, node_port=30053))),
        *("192.0.2.1:30053", A, True),
    ),
    "a Pod that listens on the same number itself": (
        *(intent(dns(A, node_port=30053)), intent(dns(B, node_port=30053))),
        *("10.1.0.9:30053", "10.1.0.9:30053", False),
    ),
    "a program on an address that node ports are not open on": (
        *(intent(dns(A, node_port=30053), **PRIMARY), intent(dns(B, node_port=30053), **PRIMARY)),
        *("192.0.2.2:30053", "192.0.2.2:30053", False),
    ),
    "by the address that node ports are open on": (
        *(intent(dns(A, node_port=30053), **PRIMARY), intent(dns(B, node_port=30053), **PRIMARY)),
        *("192.0.2.1:30053", A, True),
    ),
    "by the address that node ports were open on": (
        *(intent(dns(A, node_port=30053), **PRIMARY), intent(dns(B, node_port=30053), **OTHER)),
        *("192.0.2.1:30053", A, True),
    ),
    "a program on a loopback address": (
        *(intent(dns(A, node_port=30053)), intent(dns(B, node_port=30053))),
        *("127.0.0.1:30053", "127.0.0.1:30053", False),
    ),
    "by a loopback address that rules lead elsewhere": (
        *(intent(dns(A, node_port=30053), localhost=True), intent(dns(B, node_port=30053), localhost=True)),
        *("127.0.0.1:30053", A, True),
    ),
    "another Service": (intent(dns(A)), intent(dns(B)), "10.96.0.11:53", A, False),
    "at a start: does not serve any more (125467)": (None, intent(dns(B)), SERVICE, A, True),
    "at a start: serves still (122740)": (None, intent(dns(B)), SERVICE, B, False),
    "at a start: of a Service that is gone": (None, intent(dns(B)), UNUSED, A, True),
    "at a start: to nobody's address outside the ranges": (None, intent(dns(B)), "10.1.0.9:53", "10.1.0.9:53", False),
    "later: an unknown address of the ranges": (intent(dns(A)), intent(dns(B)), UNUSED, A, False),
}

LED_ON = frozenset({packed(SERVICE), packed("203.0.113.9:53"), (b"", 30053)})
"""What rules that were read back led on."""
NO_RANGES: dict[str, Any] = {"service_ranges": ()}

READ_BACK = {
    # As above, where rules were read back at a start, or after others changed them, that led on to these.
    "a Service that is gone: cluster IP": (None, intent(**NO_RANGES), SERVICE, A, True),
    "a Service that is gone: external address": (None, intent(**NO_RANGES), "203.0.113.9:53", A, True),
    "a Service that is gone: node port": (None, intent(**NO_RANGES), "192.0.2.1:30053", A, True),
    "a Service that is gone: what nobody led there": (None, intent(**NO_RANGES), "203.0.113.9:54", A, False),
    "a Service that is gone: a program of this node": (
        *(None, intent(**NO_RANGES)),
        *("192.0.2.1:30053", "192.0.2.1:30053", False),
    ),
    "a Service that is gone: a flow that was never translated": (
        *(None, intent(**NO_RANGES)),
        *("203.0.113.9:53", "203.0.113.9:53", False),
    ),
    "a Service that is gone: the number of its node port on another machine": (
        *(None, intent(**NO_RANGES)),
        *("10.1.0.9:30053", A, False),
    ),
    "what serves at a start": (None, intent(dns(B), **NO_RANGES), SERVICE, B, False),
    "what does not serve at a start": (None, intent(dns(B), **NO_RANGES), SERVICE, A, True),
    "a heal: a flow of the gap": (intent(dns(A)), intent(dns(A)), SERVICE, SERVICE, True),
    "a heal: a flow of the gap by a node port": (
        *(intent(dns(A, node_port=30053)), intent(dns(A, node_port=30053))),
        *("192.0.2.1:30053", "192.0.2.1:30053", True),
    ),
    "a heal: a flow of the gap that no endpoint waits for": (intent(dns()), intent(dns()), SERVICE, SERVICE, False),
    "a heal: what serves": (intent(dns(A)), intent(dns(A)), SERVICE, A, False),
    "a heal: what others led elsewhere": (intent(dns(A)), intent(dns(A)), SERVICE, B, True),
    "a heal: a cluster IP that others added": (intent(dns(A)), intent(dns(A)), UNUSED, B, True),
    "a heal: a program of the node": (intent(dns(A)), intent(dns(A)), "192.0.2.1:53", "192.0.2.1:53", False),
    "a heal as the Service goes, after its address had been taken away": (
        *(intent(dns(A, external="203.0.113.7"), **NO_RANGES), intent(**NO_RANGES)),
        *("203.0.113.7:53", A, True),
    ),
}

THEIRS = Table.of(
    {ObjectRef("Service", "mesh", "x"): frozenset([(packed(UNUSED)[0], 0), packed("203.0.113.9:53"), (b"", 30053)])}
)

OF_OTHERS = {
    # As above, where another proxy has the address 10.96.7.7, port 53 of 203.0.113.9, and the node port 30053.
    "at a start: to a cluster IP of theirs": (None, intent(dns(B)), UNUSED, A, False),
    "at a start: to another port of it": (None, intent(dns(B)), "10.96.7.7:54", A, False),
    "at a start: to nobody's address": (None, intent(dns(B)), "10.96.7.8:53", A, True),
    "at a start: to a Service of ours that the endpoint does not serve": (None, intent(dns(B)), SERVICE, A, True),
    "at a start: to a node port of theirs": (None, intent(dns(B)), "192.0.2.1:30053", A, False),
    "an external address that they have now": (
        *(intent(dns(A, external="203.0.113.9")), intent(dns(A))),
        *("203.0.113.9:53", A, False),
    ),
    "a node port that they have now": (
        *(intent(dns(A, node_port=30053)), intent(dns(A))),
        *("192.0.2.1:30053", A, False),
    ),
    "an external address that both have is ours to look after": (
        *(intent(dns(A, external="203.0.113.9")), intent(dns(B, external="203.0.113.9"))),
        *("203.0.113.9:53", A, True),
    ),
}


@pytest.mark.parametrize(
    ("before", "after", "sent_to", "answered_by", "goes"), CASES.values(), ids=[name.split(":")[0] for name in CASES]
)
def test_a_flow_goes_if_it_leads_to_what_does_not_serve(
    before: FamilyIntent | None, after: FamilyIntent, sent_to: str, answered_by: str, *, goes: bool
) -> None:
    judge = judge_of(before, after, lambda: NODE)
    assert judge is not None
    assert judge(*packed(sent_to), *packed(answered_by)) is goes


@pytest.mark.parametrize(
    ("before", "after", "sent_to", "answered_by", "goes"), READ_BACK.values(), ids=READ_BACK.keys()
)
def test_what_rules_led_on_that_were_not_as_they_should_be_is_looked_at_whatever_changed(
    before: FamilyIntent | None, after: FamilyIntent, sent_to: str, answered_by: str, *, goes: bool
) -> None:
    judge = judge_of(before, after, lambda: NODE, led_on=LED_ON)
    assert judge is not None
    assert judge(*packed(sent_to), *packed(answered_by)) is goes


@pytest.mark.parametrize("sent_to", [UNUSED, "203.0.113.9:53", "192.0.2.1:30053"])
def test_what_rules_led_on_and_another_proxy_has_now_is_left_to_it(sent_to: str) -> None:
    led_on = LED_ON | {packed(UNUSED)}
    judge = judge_of(None, intent(**NO_RANGES), lambda: NODE, THEIRS, led_on)
    assert judge is not None
    assert not judge(*packed(sent_to), *packed(A))
    assert judge(*packed(SERVICE), *packed(A))


def test_no_flow_is_looked_at_where_no_rules_led_on_and_nothing_is_known() -> None:
    assert judge_of(None, intent(**NO_RANGES), lambda: NODE, led_on=frozenset()) is None


@pytest.mark.parametrize(
    ("before", "after", "sent_to", "answered_by", "goes"), OF_OTHERS.values(), ids=OF_OTHERS.keys()
)
def test_a_flow_to_another_proxys_service_is_left_to_it(
    before: FamilyIntent | None, after: FamilyIntent, sent_to: str, answered_by: str, *, goes: bool
) -> None:
    judge = judge_of(before, after, lambda: NODE, THEIRS)
    assert judge is not None
    assert judge(*packed(sent_to), *packed(answered_by)) is goes


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (intent(dns(A)), intent(dns(A))),
        (intent(dns(A, protocol="tcp")), intent(dns(B, protocol="tcp"))),
    ],
    ids=["nothing changed", "TCP alone changed"],
)
def test_no_flow_is_looked_at_for_what_concerns_none(before: FamilyIntent, after: FamilyIntent) -> None:
    assert judge_of(before, after, lambda: NODE) is None


def test_an_address_that_moves_to_another_service_leads_to_the_endpoints_of_that() -> None:
    one, other = ObjectRef("Service", "one", "x"), ObjectRef("Service", "other", "x")
    before = FamilyIntent("ip", ports=Table.of({one: (dns(A),)}))
    after = FamilyIntent("ip", ports=Table.of({other: (dns(B),)}))
    judge = judge_of(before, after, lambda: NODE)
    assert judge is not None
    assert judge(*packed(SERVICE), *packed(A))
    assert not judge(*packed(SERVICE), *packed(B))
