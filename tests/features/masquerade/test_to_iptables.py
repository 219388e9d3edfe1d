"""The intent in iptables: ip-masq-agent's text byte for byte, and the same verdict for each packet as in nftables."""

import asyncio
from ipaddress import ip_network
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podgate.commandline.options import settings_from
from podgate.features.masquerade.compile import Compiler
from podgate.features.masquerade.config import Config
from podgate.features.masquerade.intent import FamilyIntent, Intent, PolicyIntent, Spans, Translation
from podgate.features.masquerade.prefixes import Entry, Span, kept, resolve, span_of
from podgate.features.masquerade.settings import DEFAULT_CONFIG, Settings
from podgate.features.masquerade.to_iptables import (
    CHAIN,
    OWNERS,
    Style,
    Writer,
    jump_to,
    kept_spans,
    record_chains,
    recorded_chains,
    refusals,
)
from podgate.features.masquerade.to_nftables import TABLE
from podgate.features.masquerade.to_nftables import Writer as NftablesWriter
from podgate.joints import Inputs
from podgate.model.documents import parse
from podgate.model.files import Present
from podgate.model.frozen import ObjectRef
from podgate.model.machine import Family
from podgate.model.packet import Masquerade, Packet
from podgate.targets.iptables.diff import diff
from podgate.targets.iptables.fake import FakeIptables
from podgate.targets.iptables.listing import read_listing
from podgate.targets.iptables.render import render, transaction
from podgate.targets.iptables.state import Chain, State
from podgate.targets.iptables.words import knows_random_fully, rule_words
from podgate.targets.nftables.fake import FakeNftables
from podgate.targets.nftables.state import State as NftablesState
from tests.support.cases import Case, read_cases
from tests.support.iptables_states import chain_text
from tests.support.masquerade_intents import LOCALITY, intents, packets

TEXTS = read_cases(Path(__file__).parent / "cases" / "agent_text.case")
REF = ObjectRef("MasqueradePolicy", "p")


def intent_of(config: bytes | None = None, **chosen: object) -> Intent:
    files = {} if config is None else {DEFAULT_CONFIG: Present(config)}
    return Compiler(settings_from(Settings, chosen), lambda intent: intent)(Inputs(files=files)).states


def intent_of_case(case: Case) -> Intent:
    settings, config = case.one("settings"), case.one("config")
    chosen = parse(settings.data).documents[0] if settings else {}
    # An entry of IPv6 is only taken while IPv6 is on.
    return intent_of(config.data if config else None, enable_ipv6=True, **chosen)


def in_iptables(want: State) -> FakeIptables:
    async def load() -> FakeIptables:
        fake = FakeIptables(want.family, want.binary, OWNERS)
        await fake.apply(fake.diff(await fake.read(), want))
        return fake

    return asyncio.run(load())


def in_nftables(want: NftablesState) -> FakeNftables:
    async def load() -> FakeNftables:
        fake = FakeNftables(want.family, TABLE)
        await fake.apply(fake.diff(await fake.read(), want))
        return fake

    return asyncio.run(load())


@pytest.mark.parametrize("case", TEXTS, ids=str)
def test_the_agents_text(case: Case) -> None:
    """T21, T22."""
    family: Family = "ip6" if case.one("family") else "ip"
    text = case.one("text")
    assert text is not None
    state = Writer(family, "nft", style="agent")(intent_of_case(case))
    assert chain_text(state) == text.text
    before = msgspec.structs.replace(state, chains=(Chain(CHAIN),))
    assert transaction(diff(before, state)) == text.text
    fake = in_iptables(state)
    assert not fake.diff(read_listing(fake.save(), family, "nft", OWNERS), state)


def test_the_agents_jump() -> None:
    placed = jump_to("IP-MASQ")
    assert placed.chain == "POSTROUTING"
    assert rule_words(placed.rule) == (
        '-m comment --comment "ip-masq-agent: ensure nat POSTROUTING directs all non-LOCAL destination traffic to our '
        'custom IP-MASQ chain" -m addrtype ! --dst-type LOCAL -j IP-MASQ'
    )


@pytest.mark.parametrize("version", ["", "1.8.9", "1.6.2", "1.6.1", "1.4.21"])
@pytest.mark.parametrize("wanted", [True, False])
def test_fully_random_needs_a_program_that_knows_it(version: str, wanted: bool) -> None:
    """T25."""
    knows = version not in ("1.6.1", "1.4.21")
    assert knows_random_fully(version) is knows
    for style in ("agent", "podgate"):
        state = Writer("ip", "nft", style=style)(intent_of(random_fully=wanted), version=version)
        assert ("--random-fully" in render(state)) is (wanted and knows)


def test_podgate_puts_what_is_never_masqueraded_before_the_agents_lines() -> None:
    intent = intent_of()
    agent = chain_text(Writer("ip", "nft", style="agent")(intent)).splitlines()
    podgate = chain_text(Writer("ip", "nft")(intent)).splitlines()
    added = [line for line in podgate if line not in agent]
    assert [line for line in podgate if line in agent] == agent
    assert [podgate.index(line) for line in added] == [2, 3]
    assert all('--comment "podgate: ' in line for line in added)


def test_a_family_that_is_off_has_nothing() -> None:
    assert Writer("ip6", "nft")(intent_of()) == State("ip6", "nft")


@pytest.mark.slow
@pytest.mark.parametrize("family", ["ip", "ip6"])
@given(data=st.data())
def test_each_packet_gets_the_same_verdict_as_in_nftables(family: Family, data: st.DataObject) -> None:
    """T12."""
    intent = data.draw(intents(family))
    ours, theirs = in_iptables(Writer(family, "nft")(intent)), in_nftables(NftablesWriter(family)(intent))
    for packet in data.draw(st.lists(packets(family), min_size=20, max_size=40)):
        draws = [0.3, 0.7, 0.1]
        expected = theirs.trace(packet, LOCALITY, draws=draws).verdict
        assert ours.trace(packet, LOCALITY, draws).verdict == expected, packet


@pytest.mark.slow
@pytest.mark.parametrize("family", ["ip", "ip6"])
@given(data=st.data())
def test_every_state_is_what_is_read_of_it(family: Family, data: st.DataObject) -> None:
    state = Writer(family, "legacy")(data.draw(intents(family)))
    fake = in_iptables(state)
    left = fake.diff(read_listing(fake.save(), family, "legacy", OWNERS), state)
    assert not left, str(left)


def with_entries(*entries: tuple[str, str]) -> Intent:
    """Give an intent whose list has other actions than to keep, too."""
    listed = tuple(Entry(ip_network(network), action) for network, action in entries)  # type: ignore[arg-type]
    part = intent_of().families[0]
    intervals = resolve(listed)
    keep = Spans().updated(dict.fromkeys(kept(intervals), True))
    return Intent((msgspec.structs.replace(part, intervals=intervals, keep=keep),), config=Config(listed))


def test_the_longest_prefix_decides() -> None:
    intent = with_entries(("10.0.0.0/8", "keep"), ("10.20.20.0/24", "masquerade"), ("10.20.20.7/32", "keep"))
    fake = in_iptables(Writer("ip", "nft")(intent))

    def is_masqueraded(destination: str) -> bool:
        packet = Packet(ip_network("10.0.0.9/32")[0], ip_network(destination)[0])
        return isinstance(fake.trace(packet, LOCALITY).verdict, Masquerade)

    assert [is_masqueraded(each) for each in ("10.1.1.1", "10.20.20.8", "10.20.20.7", "11.0.0.1")] == [
        *(False, True, False, True)
    ]


def policy(translation: Translation, sources: int, destinations: int, *interfaces: str) -> PolicyIntent:
    def many(count: int, start: int) -> Spans:
        return Spans().updated({Span(start + 2 * n, start + 2 * n): True for n in range(count)})

    return PolicyIntent(
        REF, 0, translation, many(sources, 1 << 24), None, many(destinations, 1 << 25), tuple(interfaces)
    )


def test_what_iptables_cannot_express_is_refused_by_name() -> None:
    keep, masquerade = Translation("keep"), Translation("masquerade")
    refused = {
        policy(keep, 100, 41): "needs 4100 rules in iptables",
        policy(masquerade, 1, 1, "eth+"): "iptables takes eth+ for every interface that begins with eth",
    }
    for each, message in refused.items():
        part = FamilyIntent("ip", policies=(each,))
        (problem,) = refusals(part)
        assert (problem.ref, problem.severity, problem.reason) == (REF, "error", "NotInIptables")
        assert message in problem.message
    fine = FamilyIntent("ip", policies=(policy(keep, 100, 40), policy(masquerade, 5000, 500, "eth*")))
    assert refusals(fine) == ()


def test_a_policy_that_translates_needs_no_rule_for_each_pair() -> None:
    part = FamilyIntent("ip", policies=(policy(Translation("masquerade"), 200, 50),))
    state = Writer("ip", "nft")(Intent((part,)))
    assert sum(len(chain.rules) for chain in state.chains) == 2 + 200 + 1 + 50


def test_chains_are_recorded_and_what_is_not_ours_records_nothing() -> None:
    states = [Writer(family, "nft", chain="IP-MASQ")(intent_of(enable_ipv6=True)) for family in ("ip", "ip6")]
    assert record_chains(states) == b'["IP-MASQ"]'
    assert recorded_chains(record_chains(states)) == {"IP-MASQ"}
    for other in (None, b"", b"{}", b"[1]", b"\xff"):
        assert recorded_chains(other) == frozenset()


@pytest.mark.parametrize("style", ["agent", "podgate"])
def test_the_list_is_recovered_from_the_chain(style: Style) -> None:
    networks = ("169.254.0.0/16", "10.0.0.0/8", "0.0.0.0/0")
    intent = intent_of(b"nonMasqueradeCIDRs: [10.0.0.0/8, 0.0.0.0/0]")
    fake = in_iptables(Writer("ip", "nft", style=style)(intent))
    read = read_listing(fake.save(), "ip", "nft", OWNERS)
    assert sorted(kept_spans(read) or ()) == sorted(span_of(ip_network(network)) for network in networks)
    assert kept_spans(read, "OTHER") is None


BOOT = """\
*nat
:POSTROUTING ACCEPT [0:0]
:IP-MASQ - [0:0]
-A POSTROUTING -m comment --comment "ip-masq: ensure nat POSTROUTING directs all non-LOCAL destination traffic to our \
custom IP-MASQ chain" -m addrtype ! --dst-type LOCAL -j IP-MASQ
-A IP-MASQ -d 169.254.0.0/16 -m comment --comment "ip-masq: local traffic is not subject to MASQUERADE" -j RETURN
-A IP-MASQ -d 10.0.0.0/8 -m comment --comment "ip-masq: RFC 1918 reserved range is not subject to MASQUERADE" -j RETURN
-A IP-MASQ -m comment --comment "ip-masq: outbound traffic is subject to MASQUERADE (must be last in chain)" \
-j MASQUERADE
COMMIT
"""


@pytest.mark.parametrize("chain", ["IP-MASQ", "IP-MASQ-AGENT"])
def test_the_boot_rules_of_gke_are_replaced(chain: str) -> None:
    """T26: one effective jump, and none of the boot script's rules."""

    async def run() -> str:
        fake = FakeIptables("ip", "nft", OWNERS)
        fake.restore(BOOT.replace(":POSTROUTING ACCEPT [0:0]\n", ""))
        await fake.apply(fake.diff(await fake.read(), Writer("ip", "nft", chain, "agent")(intent_of())))
        return fake.save()

    saved = asyncio.run(run())
    assert '"ip-masq: ' not in saved
    assert saved.count("-A POSTROUTING") == 1
    assert f"-j {chain}\n" in saved
    assert saved.count("MASQUERADE --random-fully") == 1
