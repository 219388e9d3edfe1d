"""What rules say: every rule of a table with everything in it can be sent to the kernel, and shown by nft."""

from ipaddress import ip_address

import pytest

from podgate.features.services.intent import FamilyIntent, LocalTraffic, NodeWide, ServicePort
from podgate.features.services.phrases import (
    MASQUERADE,
    NEW,
    TO_THIS_NODE,
    TRANSLATED,
    Phrase,
    Speaker,
    clear_mark,
    go,
    marked,
    not_through,
    set_mark,
)
from podgate.features.services.to_nftables import Writer
from podgate.model.frozen import ObjectRef
from podgate.model.machine import Family
from podgate.model.table import Table
from podgate.targets.nftables.assembly import assembled
from podgate.targets.nftables.code import Bitwise, Compare, Go
from podgate.targets.nftables.elements import host_words

ADDRESSES: dict[Family, tuple[str, str]] = {"ip": ("10.96.0.1", "10.1.0.1"), "ip6": ("fd00:96::1", "fd00:1::1")}
DETECTORS = [
    LocalTraffic(),
    LocalTraffic(("10.1.0.0/16",)),
    LocalTraffic(interface="cbr0"),
    LocalTraffic(interface="veth*"),
]


@pytest.mark.parametrize("family", ADDRESSES)
@pytest.mark.parametrize("local", DETECTORS, ids=str)
def test_every_rule_has_words_code_and_a_reason(family: Family, local: LocalTraffic) -> None:
    cluster_ip, pod = (ip_address(text).packed for text in ADDRESSES[family])
    endpoint = pod + b"\x1f\x90"
    port = ServicePort(
        "shop/web:http", "tcp", 80, cluster_ip, node_port=30080, cluster=(endpoint,), local=(endpoint,),
        external_local=True, anywhere=True, sticky=60,
    )  # fmt: skip
    intent = FamilyIntent(family, NodeWide(local), Table.of({ObjectRef("Service", "web", "shop"): (port,)}))
    rules = [rule for chain in Writer(family)(intent).chains for rule in chain.rules]
    assert len(rules) > 30
    for rule in rules:
        assert rule.text
        assert rule.comment
        assert assembled(rule.code)


def test_phrases_join_their_words_and_their_code() -> None:
    whole = NEW + set_mark(0x4000) + go("drop")
    assert whole.words == "ct state new meta mark set meta mark | 0x4000 drop"
    assert whole.code == (*NEW.code, *set_mark(0x4000).code, Go("drop"))
    assert whole.because("it is a test").code == whole.code
    assert Phrase("", ()) + MASQUERADE == MASQUERADE


NUMBERS: dict[str, tuple[Phrase, tuple[int, ...]]] = {
    "the first packet": (NEW, (8, 0, 0)),  # IP_CT_NEW
    "translated": (TRANSLATED, (32, 0, 0)),  # IPS_DST_NAT
    "to this node": (TO_THIS_NODE, (2,)),  # RTN_LOCAL
    "marked": (marked(0x4000), (0x4000, 0, 0)),
    "mark": (set_mark(0x4000), (0xFFFFBFFF, 0x4000)),
    "take the mark away": (clear_mark(0x4000), (0xFFFFBFFF, 0)),
}


@pytest.mark.parametrize(("phrase", "numbers"), NUMBERS.values(), ids=NUMBERS)
def test_numbers_are_in_the_order_in_which_the_kernel_calculates(phrase: Phrase, numbers: tuple[int, ...]) -> None:
    operands: list[bytes] = []
    for each in phrase.code:
        operands += [each.mask, each.xor] if isinstance(each, Bitwise) else []
        operands += [each.data] if isinstance(each, Compare) else []
    assert operands == [host_words(number) for number in numbers]


def test_a_prefix_of_names_is_compared_by_its_bytes_and_a_name_by_all_of_them() -> None:
    (_, prefix), (_, name) = not_through("veth*").code, not_through("cbr0").code
    assert getattr(prefix, "data", None) == b"veth"
    assert getattr(name, "data", None) == b"cbr0".ljust(16, b"\0")


@pytest.mark.parametrize(("family", "words"), [("ip", "ip daddr != 127.0.0.0/8"), ("ip6", "ip6 daddr != ::1")])
def test_loopback_is_a_network_of_ipv4_and_an_address_of_ipv6(family: Family, words: str) -> None:
    assert Speaker(family).loopback(negated=True).words == words
    assert Speaker(family).loopback().words == words.replace("!= ", "")
