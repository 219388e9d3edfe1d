"""What earlier programs left in the kernel is replaced in one transaction: old agents, boot scripts, renamed chains.

The texts are those that ip-masq-agent and GKE's boot script restore; both programs of iptables, both families.
"""

import asyncio
import threading
from contextlib import closing
from typing import Final

import pytest
from msgspec.structs import replace

from podgate.features.masquerade.compile import Compiler
from podgate.features.masquerade.intent import Intent
from podgate.features.masquerade.settings import Settings
from podgate.features.masquerade.to_iptables import OWNERS, Style, Writer, recorded_chains
from podgate.joints import Inputs
from podgate.model.machine import Family
from podgate.targets.iptables.apply import IptablesTarget
from podgate.targets.iptables.diff import Plan
from podgate.targets.iptables.render import render
from podgate.targets.iptables.state import Binary, State
from tests.support.iptables_programs import restored, saved
from tests.support.iptables_states import BINARIES, FAMILIES
from tests.support.netns import NetNamespace

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

JUMP: Final = (
    "-A POSTROUTING -m comment --comment {quote}{agent}: ensure nat POSTROUTING directs all non-LOCAL destination "
    "traffic to our custom {chain} chain{quote} -m addrtype ! --dst-type LOCAL -j {chain}"
)
QUOTED: Final = '"\\"'
KEPT: Final = {"ip": "10.0.0.0/8", "ip6": "fc00::/7"}
INTENT: Final = Compiler(Settings(enable_ipv6=True), lambda intent: intent)(Inputs()).states


def jump(chain: str, agent: str = "ip-masq-agent", *, quoted: bool = False) -> str:
    """Give the jump; versions 2.10.0 to 2.12.1 wrote quotes into the comment."""
    line = JUMP.format(quote="{quote}", agent=agent, chain=chain)
    return line.format(quote='"') if not quoted else line.replace("{quote}", QUOTED, 1).replace("{quote}", '\\""')


def agents(family: Family, chain: str, *jumps: str, agent: str = "ip-masq-agent") -> str:
    why = f'-m comment --comment "{agent}: '
    lines = (
        "*nat",
        f":{chain} - [0:0]",
        f'-A {chain} {why}local traffic is not subject to MASQUERADE" -d {KEPT[family]} -j RETURN',
        f'-A {chain} {why}outbound traffic is subject to MASQUERADE (must be last in chain)" -j MASQUERADE',
        *jumps,
        "COMMIT",
    )
    return "\n".join(lines) + "\n"


def history(family: Family) -> dict[str, list[str]]:
    return {
        "an agent of 2.12.2 or newer": [agents(family, "IP-MASQ-AGENT", jump("IP-MASQ-AGENT"))],
        "an upgrade from 2.12.1: two jumps": [
            agents(family, "IP-MASQ-AGENT", jump("IP-MASQ-AGENT", quoted=True), jump("IP-MASQ-AGENT"))
        ],
        "an agent that died before its jump": [agents(family, "IP-MASQ-AGENT")],
        "an agent that died before its rules": ["*nat\n:IP-MASQ-AGENT - [0:0]\nCOMMIT\n"],
        "GKE's boot script": [agents(family, "IP-MASQ", jump("IP-MASQ", "ip-masq"), agent="ip-masq")],
        "GKE's boot script and its addon in the same chain": [
            agents(family, "IP-MASQ", jump("IP-MASQ", "ip-masq"), agent="ip-masq"),
            agents(family, "IP-MASQ", jump("IP-MASQ")),
        ],
        "a renamed chain": [
            agents(family, "OLD-NAME", jump("OLD-NAME")),
            agents(family, "IP-MASQ-AGENT", jump("IP-MASQ-AGENT", quoted=True)),
        ],
        "podgate, in the style of the agent": [render(Writer(family, "nft", style="agent")(INTENT))],
    }


def written(namespace: NetNamespace, want: State) -> Plan:
    async def load() -> Plan:
        with closing(IptablesTarget(want.family, want.binary, OWNERS, namespace=namespace.descriptor)) as target:
            plan = target.diff(await target.read(), want)
            await target.apply(plan)
            left = target.diff(await target.read(), want)
            assert not left, str(left)
            return plan

    return asyncio.run(load())


@pytest.mark.parametrize("style", ["agent", "podgate"])
@pytest.mark.parametrize("binary", BINARIES)
@pytest.mark.parametrize("family", FAMILIES)
def test_afterwards_the_table_is_as_if_nobody_had_been_there(
    family: Family, binary: Binary, style: Style, namespace: NetNamespace
) -> None:
    for chain in ("IP-MASQ-AGENT", "IP-MASQ"):
        want = Writer(family, binary, chain, style)(INTENT)
        written(namespace, want)
        fresh = saved(namespace, family, binary)
        assert fresh.count("-A POSTROUTING") == 1
        for name, texts in history(family).items():
            written(namespace, State(family, binary))
            assert "MASQ" not in saved(namespace, family, binary), name
            for text in texts:
                restored(namespace, text, family, binary)
            written(namespace, want)
            # An empty chain carries no comment that says whose it is, so it stays where it is not the wanted one.
            found = saved(namespace, family, binary)
            if "before its rules" in name and chain != "IP-MASQ-AGENT":
                found = found.replace(":IP-MASQ-AGENT - [0:0]\n", "")
                restored(namespace, "*nat\n-X IP-MASQ-AGENT\nCOMMIT\n", family, binary)
            assert sorted(found.splitlines()) == sorted(fresh.splitlines()), name
        written(namespace, State(family, binary))


@pytest.mark.parametrize("binary", BINARIES)
def test_all_traces_go_when_another_back_end_is_used(binary: Binary, namespace: NetNamespace) -> None:
    for texts in history("ip").values():
        for text in texts:
            restored(namespace, text, "ip", binary)
    plan = written(namespace, State("ip", binary))
    assert set(plan.dropped) == {"IP-MASQ", "IP-MASQ-AGENT", "OLD-NAME"}
    assert [
        line for line in saved(namespace, "ip", binary).splitlines() if line.startswith(("-A", ":IP", ":OLD"))
    ] == []


@pytest.mark.parametrize("binary", BINARIES)
def test_a_recorded_chain_goes_when_the_name_changes_whatever_it_holds_then(
    binary: Binary, namespace: NetNamespace
) -> None:
    """T28."""
    written(namespace, Writer("ip", binary, "OLD-NAME")(INTENT))
    restored(namespace, "*nat\n-A OLD-NAME -d 10.9.9.9/32 -j ACCEPT\nCOMMIT\n", "ip", binary)
    recorded = recorded_chains(b'["OLD-NAME"]')
    written(namespace, replace(Writer("ip", binary, "NEW-NAME")(INTENT), recorded=recorded))
    assert "OLD-NAME" not in saved(namespace, "ip", binary)


@pytest.mark.parametrize("binary", BINARIES)
def test_at_no_time_is_nothing_masqueraded(binary: Binary, namespace: NetNamespace) -> None:
    """While our chain changes its name again and again, each listing has a jump and the rules that it leads to."""
    old = agents("ip", "IP-MASQ", jump("IP-MASQ"))
    restored(namespace, old, "ip", binary)
    stop = threading.Event()
    gaps: list[str] = []
    count = 0

    def observe() -> None:
        nonlocal count
        while not stop.is_set():
            listing = saved(namespace, "ip", binary)
            whole = any(
                f"-j {name}\n" in listing and f"-A {name} -m" in listing for name in ("IP-MASQ", "IP-MASQ-AGENT")
            )
            count += 1
            if not whole or "-j MASQUERADE" not in listing:
                gaps.append(listing)

    def replace(intent: Intent) -> None:
        for chain in ("IP-MASQ-AGENT", "IP-MASQ") * 15:
            written(namespace, Writer("ip", binary, chain)(intent))

    thread = threading.Thread(target=observe)
    thread.start()
    try:
        replace(INTENT)
    finally:
        stop.set()
        thread.join()
    assert gaps == []
    assert count > 10
