"""Tables whose rules are code, against the real kernel: written over netlink, read back, listed by nft."""

import asyncio
import json
from ipaddress import ip_network

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from podgate.joints import ApplyError
from podgate.linux.namespaces import inside_network
from podgate.linux.netlink import NETLINK_NETFILTER, Connection
from podgate.linux.nftables import generation
from podgate.model.machine import Family
from podgate.model.table import Table
from podgate.targets.nftables.apply import NftablesTarget
from podgate.targets.nftables.code import (
    AddressKind,
    Between,
    Bitwise,
    Code,
    Compare,
    Count,
    Ct,
    Dispatch,
    Go,
    Immediate,
    Lookup,
    Masquerading,
    Meta,
    Payload,
    Random,
    Rejecting,
    Remember,
    SetMark,
    Translate,
)
from podgate.targets.nftables.fake import as_read
from podgate.targets.nftables.state import (
    DSTNAT,
    MEMBER,
    SRCNAT,
    Chain,
    Data,
    Element,
    Hook,
    Rule,
    Set,
    State,
    interval,
    port,
)
from tests.support.netns import NetNamespace
from tests.support.nftables_code import balancing, coded_states, endpoint, number, service
from tests.support.nftables_states import TABLE
from tests.support.nftables_target import OpenTarget, keeping, load_state

pytestmark = pytest.mark.kernel

NO_NFT = "nft-that-is-missing"
FAMILIES: tuple[Family, ...] = ("ip", "ip6")

SETS = (
    Set("addresses", ("ipv4_addr",), comment="a set"),
    Set("names", ("ifname",)),
    Set("ranges", ("ipv4_addr", "inet_service"), ("interval",), comment="ranges of two fields"),
    Set("counts", ("ipv4_addr",), data=("mark",)),
    Set("chains", ("mark",), data=("verdict",)),
    Set("clients", ("ipv4_addr",), ("dynamic", "timeout"), ("ipv4_addr", "inet_service"), size=1000),
    Set("seen", ("ipv4_addr",), ("dynamic",), timeout=30),
)
OF, TO = Payload("network", 12, 4, 0), Payload("network", 16, 4, 0)
FORWARD = Hook("filter", "forward", 0)
PREROUTING, POSTROUTING = Hook("nat", "prerouting", DSTNAT), Hook("nat", "postrouting", SRCNAT)

EXPRESSIONS: dict[str, tuple[Hook, Code, tuple[str, ...]]] = {
    "payload": (
        FORWARD,
        (Payload("network", 16, 4, 0), Payload("transport", 2, 2, 5)),
        ("payload load 4b @ network header + 16 => reg 1", "payload load 2b @ transport header + 2 => reg 13"),
    ),
    "meta": (
        FORWARD,
        (Meta("l4proto", 0), Meta("mark", 0), Meta("iifname", 4), Meta("oifname", 4)),
        (
            *("meta load l4proto => reg 1", "meta load mark => reg 1", "meta load iifname => reg 2"),
            "meta load oifname => reg 2",
        ),
    ),
    "mark": (FORWARD, (Meta("mark", 1), SetMark(1)), ("meta load mark => reg 9", "meta set mark with reg 9")),
    "ct": (
        FORWARD,
        (Ct("state", 0), Ct("status", 0), Ct("original ip daddr", 0), Ct("original proto-dst", 0)),
        (
            *("ct load state => reg 1", "ct load status => reg 1"),
            *("ct load dst_ip => reg 1 , dir original", "ct load proto_dst => reg 1 , dir original"),
        ),
    ),
    "fib": (
        FORWARD,
        (AddressKind("saddr", 0), AddressKind("daddr", 0)),
        ("fib saddr type => reg 1", "fib daddr type => reg 1"),
    ),
    "immediate": (FORWARD, (Immediate(b"\1\2\3\4\5", 2),), ("immediate reg 10 0x04030201 0x00000005",)),
    "numgen": (
        FORWARD,
        (Random(3, 0), Random(2, 0, 65536)),
        ("numgen reg 1 = random mod 3", "numgen reg 1 = random mod 2 offset 65536"),
    ),
    "bitwise": (
        FORWARD,
        (Meta("mark", 0), Bitwise(0, number(0x4000), number(1), 1)),
        ("meta load mark => reg 1", "bitwise reg 9 = ( reg 1 & 0x00004000 ) ^ 0x00000001"),
    ),
    "cmp": (
        FORWARD,
        (Meta("mark", 0), Compare(0, number(7)), Compare(0, number(8), negated=True)),
        ("meta load mark => reg 1", "cmp eq reg 1 0x00000007", "cmp neq reg 1 0x00000008"),
    ),
    "range": (
        FORWARD,
        (
            Payload("transport", 2, 2, 0),
            Between(0, port(80), port(90)),
            Between(0, port(85), port(86), negated=True),
        ),
        (
            "payload load 2b @ transport header + 2 => reg 1",
            *("range eq reg 1 0x00005000 0x00005a00", "range neq reg 1 0x00005500 0x00005600"),
        ),
    ),
    "lookup in a set": (
        FORWARD,
        (OF, Lookup("addresses", 0), Lookup("addresses", 0, negated=True)),
        (
            "payload load 4b @ network header + 12 => reg 1",
            *("lookup reg 1 set addresses 0x0", "lookup reg 1 set addresses 0x1"),
        ),
    ),
    "lookup in a map": (
        FORWARD,
        (OF, Lookup("counts", 0, to=7)),
        ("payload load 4b @ network header + 12 => reg 1", "lookup reg 1 set counts dreg 15 0x0"),
    ),
    "dispatch": (
        FORWARD,
        (Meta("mark", 0), Dispatch("chains", 0)),
        ("meta load mark => reg 1", "lookup reg 1 set chains dreg 0 0x0"),
    ),
    "dynset of a map": (
        FORWARD,
        (OF, Payload("network", 16, 4, 4), Payload("transport", 2, 2, 5), Remember("clients", "update", 0, 60, 4)),
        (
            "payload load 4b @ network header + 12 => reg 1",
            "payload load 4b @ network header + 16 => reg 2",
            "payload load 2b @ transport header + 2 => reg 13",
            "dynset update reg_key 1 set clients sreg_data 2 timeout 60000ms",
        ),
    ),
    "dynset of a set": (
        FORWARD,
        (OF, Remember("seen", "add", 0), Remember("seen", "delete", 0)),
        (
            "payload load 4b @ network header + 12 => reg 1",
            *("dynset add reg_key 1 set seen timeout 0ms", "dynset delete reg_key 1 set seen timeout 0ms"),
        ),
    ),
    "dnat": (
        PREROUTING,
        (Immediate(b"\x0a\0\0\1", 0), Immediate(port(80), 1), Translate("ip", 0, 1)),
        (
            *("immediate reg 1 0x0100000a", "immediate reg 9 0x00005000"),
            "nat dnat ip addr_min reg 1 addr_max reg 1 proto_min reg 9 proto_max reg 9 flags 0x3",
        ),
    ),
    "counter": (FORWARD, (Count(),), ("counter pkts 0 bytes 0",)),
    "masquerade": (POSTROUTING, (Masquerading(),), ("masq",)),
    "masquerade fully-random": (POSTROUTING, (Masquerading(fully_random=True),), ("masq flags 0x10",)),
    "reject": (FORWARD, (Rejecting("ip"),), ("reject type 0 code 3",)),
    "accept": (FORWARD, (Go("accept"),), ("immediate reg 0 accept",)),
    "jump": (FORWARD, (Go("jump extra"),), ("immediate reg 0 jump -> extra",)),
}


def with_rule(hook: Hook, code: Code) -> State:
    chains = (Chain("tried", (Rule("what is tried", "why", code),), hook), Chain("extra"))
    return State("ip", TABLE, chains=chains, sets=SETS)


@pytest.mark.parametrize(("hook", "code", "expected"), EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_the_kernel_reads_each_expression_as_it_was_meant(
    hook: Hook, code: Code, expected: tuple[str, ...], namespace: NetNamespace, open_target: OpenTarget
) -> None:
    want = with_rule(hook, code)
    asyncio.run(load_state(open_target(namespace, program=NO_NFT), want))
    listed = namespace.run("nft", "--debug=netlink", "list", "chain", "ip", TABLE, "tried")
    found = (line.strip()[2:-2] for line in listed.splitlines() if line.startswith("  [ "))
    assert tuple(line.strip() for line in found) == expected


def test_nft_lists_a_table_with_names_comments_and_elements(namespace: NetNamespace, open_target: OpenTarget) -> None:
    want = balancing({service("10.96.0.1"): (endpoint("10.0.0.1"), endpoint("10.0.0.2"))})
    asyncio.run(load_state(open_target(namespace, program=NO_NFT), want))
    listed = namespace.run("nft", "list", "table", "ip", TABLE)
    for text in (
        'comment "a legend"',
        'comment "how many endpoints"',
        "type ipv4_addr . inet_proto . inet_service . mark : ipv4_addr . inet_service",
        "10.96.0.1 . tcp . 80 . 0x00000001 : 10.0.0.2 . 8080",
        "0x00000000 . 0x00000002 : goto to-2",
        "dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 2 map @slots",
    ):
        assert text in listed
    assert json.loads(namespace.run("nft", "-j", "list", "table", "ip", TABLE))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_plans_lead_from_any_state_to_any_other(
    family: Family, data: st.DataObject, shared: NetNamespace, open_target: OpenTarget
) -> None:
    """Without nft, also where a table of text is replaced by one of code."""

    async def walk() -> None:
        target = open_target(shared, family, program=NO_NFT)
        for want in data.draw(st.lists(coded_states(family), min_size=2, max_size=4)):
            if want.present and not want.has_code:
                continue
            await load_state(target, want)
            found = await target.read()
            assert not target.diff(found, want), str(target.diff(found, want))
            assert found.elements == as_read(want).elements
            assert set(found.sets) == set(as_read(want).sets)
        shared.run("nft", "list", "ruleset")

    asyncio.run(walk())


def test_a_table_of_text_becomes_one_of_code_and_again_one_of_text(
    namespace: NetNamespace, open_target: OpenTarget
) -> None:
    async def run() -> None:
        target = open_target(namespace)
        for want in (keeping("10.0.0.0/8"), balancing({service("10.96.0.1"): (endpoint("10.0.0.1"),)}), keeping()):
            await load_state(target, want)
            assert not target.diff(await target.read(), want)

    asyncio.run(run())


def test_a_set_that_is_declared_anew_has_other_keys(namespace: NetNamespace, open_target: OpenTarget) -> None:
    """It goes and comes in one transaction, with the rule that refers to it; in the end it is gone."""

    def having(declared: tuple[Set, ...], code: Code, key: Element) -> State:
        chain = Chain("tried", (Rule("what is tried", "why", code),), FORWARD)
        elements = {each.name: Table.of({key: MEMBER}) for each in declared}
        return State("ip", TABLE, chains=(chain,), sets=declared, elements=elements)

    async def run() -> None:
        target = open_target(namespace, program=NO_NFT)
        for want in (
            having((Set("keys", ("ipv4_addr",)),), (OF, Lookup("keys", 0)), bytes(4)),
            having((Set("keys", ("ipv4_addr", "mark")),), (OF, Meta("mark", 1), Lookup("keys", 0)), bytes(8)),
            having((Set("keys", ("ipv4_addr",), ("interval",)),), (OF, Lookup("keys", 0)), bytes(8)),
            having((), (Go("accept"),), b""),
        ):
            await load_state(target, want)
            found = await target.read()
            assert not target.diff(found, want), str(target.diff(found, want))
            assert found.elements == want.elements

    asyncio.run(run())


def test_a_table_of_text_is_taken_away_without_nft(namespace: NetNamespace, open_target: OpenTarget) -> None:
    async def run() -> None:
        await load_state(open_target(namespace), keeping("10.0.0.0/8"))
        target = open_target(namespace, program=NO_NFT)
        for _ in range(2):
            await load_state(target, State.absent("ip", TABLE))
            assert not (await target.read()).present

    asyncio.run(run())


BALANCED = balancing({service("10.96.0.1"): (endpoint("10.0.0.1"),)})


def _with(
    elements: dict[str, Table[Element, Data]] | None = None, sets: tuple[Set, ...] = (), chains: tuple[Chain, ...] = ()
) -> State:
    """Give the balanced table with other elements, and more sets and chains."""
    return msgspec.structs.replace(
        BALANCED,
        elements={**BALANCED.elements, **(elements or {})},
        sets=(*BALANCED.sets, *sets),
        chains=(*BALANCED.chains, *chains),
    )


REFUSED: dict[str, tuple[State, str]] = {
    "an element that is too short": (
        _with({"services": Table.of({b"\x0a\x60\0\1": number(1)})}),
        "EINVAL.*elements of map services, one of 4 bytes instead of 12",
    ),
    "a verdict to a chain that is not there": (
        _with({"counts": Table.of({number(0) + number(1): "goto nowhere"})}),
        "ENOENT.*elements of map counts, 0x00000000 . 0x00000001",
    ),
    "intervals that overlap": (
        _with(
            {"keep": Table.of({interval(ip_network(text)): MEMBER for text in ("10.0.0.0/8", "10.1.0.0/24")})},
            sets=(Set("keep", ("ipv4_addr",), ("interval",)),),
        ),
        "EEXIST.*elements of set keep, 10.",
    ),
    "a rule in the wrong hook": (
        _with(
            chains=(Chain("guard", (Rule("all", "", (Go("accept"),)), Rule("masq", "", (Masquerading(),))), FORWARD),)
        ),
        r"ENOTSUP.*rule 2 of chain guard \(masq\)",
    ),
    "a chain of the wrong type": (_with(chains=(Chain("odd", (), Hook("route", "forward", 0)),)), "chain odd"),
    "a loop": (
        _with(
            chains=(
                Chain("one", (Rule("to two", "loop", (Go("jump two"),)),)),
                Chain("two", (Rule("to one", "loop", (Go("jump one"),)),)),
                Chain("start", (Rule("to one", "loop", (Go("jump one"),)),), FORWARD),
            )
        ),
        r"EMLINK.*rule 1 of chain start \(to one\)",
    ),
}


@pytest.mark.parametrize(("refused", "message"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("start", [State.absent("ip", TABLE), BALANCED], ids=["nothing", "a table"])
def test_what_is_refused_is_named_and_changes_nothing(
    start: State, refused: State, message: str, namespace: NetNamespace, open_target: OpenTarget
) -> None:
    async def run() -> None:
        target = open_target(namespace, program=NO_NFT)
        if start.present:
            await load_state(target, start)
        before = namespace.run("nft", "list", "ruleset")
        with pytest.raises(ApplyError, match=message):
            await load_state(target, refused)
        assert namespace.run("nft", "list", "ruleset") == before
        await load_state(target, BALANCED)

    asyncio.run(run())


def _many(count: int, slots: int = 1) -> State:
    services = (
        (
            service(f"10.96.{n >> 8}.{n & 255}"),
            tuple(endpoint(f"10.{slot}.{n >> 8}.{n & 255}") for slot in range(slots)),
        )
        for n in range(count)
    )
    return balancing(dict(services), (1, 2))


def _transactions(namespace: NetNamespace) -> int:
    with inside_network(namespace.descriptor), Connection(NETLINK_NETFILTER) as connection:
        return generation(connection)


def test_only_large_changes_are_split(namespace: NetNamespace, open_target: OpenTarget) -> None:
    """A load of 11,000 Services with two endpoints each is one of 33,000 elements."""

    async def steps(target: NftablesTarget, want: State) -> int:
        before = _transactions(namespace)
        await load_state(target, want)
        assert not target.diff(await target.read(), want)
        # Reading sends empty transactions, which count for nothing.
        return _transactions(namespace) - before

    async def run() -> None:
        target = open_target(namespace, program=NO_NFT)
        small, large = _many(1000, 2), _many(11_000, 2)
        assert await steps(target, small) == 1
        assert await steps(target, _many(1000, 1)) == 1
        assert await steps(target, large) > 2
        assert await steps(target, _many(11_000, 1)) == 2
        # Rules go first, then their table: while it goes its maps are empty and its sets are not.
        assert await steps(target, State.absent("ip", TABLE)) == 2
        assert await steps(target, large) > 2

    asyncio.run(run())
