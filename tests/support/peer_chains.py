"""Chains of iptables, of whichever program, run on the first packet of a flow.

Here: what iptables-save shows as rules, what podgate writes as rules in force, a packet's way through either. Not here:
what a rule does (targets/iptables/flows.py).
Invariant: an answer has the form of peer_ruleset.py, but for who stays: chains do not tell that of a first packet.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Final

from podgate.features.services.intent import Intent
from podgate.features.services.iptables_names import NAMES, TABLES
from podgate.features.services.to_iptables import Writer
from podgate.model.machine import Family
from podgate.model.packet import Locality, Outcome, Packet
from podgate.targets.iptables.fake import FakeIptables
from podgate.targets.iptables.flows import Tables, flow
from podgate.targets.iptables.grammar import read_rule
from podgate.targets.iptables.state import Rule, TableName
from tests.support.peer_ruleset import Came, Sent

_COUNTED: Final = re.compile(r"-m nfacct --nfacct-name +\S+ ")
"""A match that only counts."""


def packet_of(sent: Sent) -> Packet:
    """Give a packet as podgate's interpreters of rules take it."""
    source, destination = ip_address(sent.source), ip_address(sent.destination)
    return Packet(source, destination, sent.protocol, 51234, sent.port, sent.interface)


def came_of(outcome: Outcome) -> Came:
    """Give what came of it, as one of them says; who stays is not told."""
    endpoint = outcome.endpoint and (str(outcome.endpoint[0]), outcome.endpoint[1])
    return Came(outcome.verdict, endpoint, outcome.masqueraded)


class Chains:
    """The tables of one family.

    Args:
        tables: their rules.
        local: the node's own addresses, but loopback ones.
    """

    def __init__(self, tables: Tables, local: Iterable[str]) -> None:
        self._tables = tables
        self._locality = Locality(frozenset(map(ip_address, local)))

    def came(self, sent: Sent) -> frozenset[Came]:
        """Give all that may come of a packet."""
        found = flow(self._tables, packet_of(sent), self._locality, "OUTPUT" if sent.is_own else "PREROUTING")
        return frozenset(map(came_of, found))


def read_saved(text: str, family: Family) -> Tables:
    """Read what iptables-save, or ip6tables-save, shows."""
    tables: dict[TableName, dict[str, list[Rule]]] = {name: {} for name in TABLES}
    chains: dict[str, list[Rule]] = {}
    for line in text.splitlines():
        if line.startswith("*"):
            chains = next((found for name, found in tables.items() if f"*{name}" == line), {})
        elif line.startswith("-A "):
            _, name, words = line.split(" ", 2)
            chains.setdefault(name, []).append(read_rule(_COUNTED.sub("", words), family))
    return {table: {name: tuple(rules) for name, rules in found.items()} for table, found in tables.items()}


class InForce:
    """The chains of podgate in one family, each change applied to those before it."""

    def __init__(self, family: Family) -> None:
        self._write = Writer(family, "nft")
        self._held: Mapping[TableName, FakeIptables] = {
            table: FakeIptables(family, "nft", (), table, names=NAMES[table]) for table in TABLES
        }

    def after(self, intent: Intent) -> Tables:
        """Give the rules in force once an intent is written."""

        async def apply() -> None:
            for table, wanted in self._write(intent).items():
                held = self._held[table]
                await held.apply(held.diff(await held.read(), wanted))

        asyncio.run(apply())
        return {table: dict(held.chains) for table, held in self._held.items()}
