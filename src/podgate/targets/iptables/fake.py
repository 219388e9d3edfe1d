"""FakeIptables: the iptables target in memory.

Here: executing the text of iptables-restore as the kernel does, failing and drifting on demand, and following packets
through the chains. Not here: what rules mean to a packet (model/packet.py).
Invariant: a transaction is executed whole or not at all; what iptables would refuse is refused, and so is each match
and target whose meaning is not known here.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping

import msgspec

from podgate.joints import ApplyError, Drifted, Key, Signal
from podgate.model.machine import Family
from podgate.model.packet import (
    Accept,
    AddressTypeIn,
    Dnat,
    InterfaceIn,
    Jump,
    Locality,
    Masquerade,
    Packet,
    PacketChain,
    PacketRule,
    PortIn,
    ProtocolIn,
    Snat,
    Trace,
    trace,
)
from podgate.targets.iptables.diff import Plan, diff
from podgate.targets.iptables.grammar import GrammarError, read_rule
from podgate.targets.iptables.listing import NO_NAMES, read_listing
from podgate.targets.iptables.render import transaction
from podgate.targets.iptables.state import (
    BUILT_IN,
    CHAIN_NAME_BYTES,
    STANDARD_TARGETS,
    Binary,
    Names,
    OtherMatch,
    OtherTarget,
    Rule,
    State,
    TableName,
    built_in,
)
from podgate.targets.iptables.words import rule_words

_PORT_PROTOCOLS = frozenset(("tcp", "udp", "sctp"))


class FakeIptables:
    """One table of one family and program, in memory.

    Attributes:
        chains: rules of each chain, built-in ones first.
        restored: the texts that were executed, in order.
        reads: how often the table was read.
    """

    def __init__(
        self,
        family: Family,
        binary: Binary,
        owners: tuple[str, ...],
        table: TableName = "nat",
        *,
        names: Names = NO_NAMES,
    ) -> None:
        self.family: Family = family
        self.table: TableName = table
        self.binary: Binary = binary
        self._owners = owners
        self._names = names
        self.chains: dict[str, tuple[Rule, ...]] = dict.fromkeys(built_in(table), ())
        self.restored: list[str] = []
        self.reads = 0
        self._known: frozenset[str] = frozenset()
        self._failures: dict[int, str] = {}
        self._attempts = 0
        self._signals: asyncio.Queue[Signal] = asyncio.Queue()

    def fail_apply(self, number: int, message: str = "the fake was told to fail") -> None:
        """Have the ``number``-th apply from now on fail without any change; 1 is the next one."""
        self._failures[self._attempts + number] = message

    def drift(self, text: str, what: str = "the table was changed") -> None:
        """Have another program restore a text, and notify."""
        self.restore(text)
        self._signals.put_nowait(Drifted(what))

    def save(self) -> str:
        """Give what iptables-save would show: matches before the target, ``-d`` first, what always holds left out."""
        lines = [f"*{self.table}"]
        lines += [f":{name} {'ACCEPT' if name in BUILT_IN else '-'} [0:0]" for name in self.chains]
        lines += [f"-A {name} {_listed(rule)}".rstrip() for name, rules in self.chains.items() for rule in rules]
        return "\n".join((*lines, "COMMIT")) + "\n"

    async def read(self) -> State:
        """Read what ``save`` shows."""
        self.reads += 1
        state = read_listing(self.save(), self.family, self.binary, self._owners, self.table, names=self._names)
        state = msgspec.structs.replace(state, recorded=self._known)
        self._known |= {chain.name for chain in state.chains}
        return state

    def diff(self, have: State, want: State) -> Plan:
        """Give the plan from one state to another."""
        return diff(have, want)

    async def apply(self, plan: Plan) -> Mapping[Key, str]:
        """Execute a plan; raises ApplyError when told to, or when iptables would refuse it."""
        if plan.refusal:
            raise ApplyError(plan.refusal, "ForeignChain")
        self._attempts += 1
        message = self._failures.pop(self._attempts, None)
        if message is not None:
            raise ApplyError(message)
        if plan:
            self.restore(transaction(plan))
        self._known = frozenset(chain.name for chain in plan.want.chains)
        return {}

    async def signals(self) -> AsyncIterator[Signal]:
        """Give what ``drift`` put in."""
        while True:
            yield await self._signals.get()

    def restore(self, text: str) -> None:
        """Execute ``iptables-restore --noflush``.

        Raises:
            ApplyError: with the number of the line that iptables would refuse; nothing is changed then.
        """
        made = _Table(self.chains, self.family)
        lines = text.splitlines()
        if not lines or lines[0] != f"*{self.table}" or lines[-1] != "COMMIT":
            raise ApplyError(f"a transaction begins with *{self.table} and ends with COMMIT", "IptablesRejected")
        for number, line in enumerate(lines[1:-1], 2):
            try:
                made.execute(line)
            except (ValueError, GrammarError) as problem:
                raise ApplyError(f"line {number}: {problem}", "IptablesRejected") from problem
        self.chains = made.chains
        self.restored.append(text)

    def trace(self, packet: Packet, locality: Locality, draws: Iterable[float] = ()) -> Trace:
        """Follow a packet through POSTROUTING; ``draws`` is what rules of chance draw, in order.

        Raises:
            ValueError: a rule on the way has a match or target whose meaning is not known.
        """
        chains = {
            name: PacketChain(tuple(map(_packet_rule, rules)), Accept() if name in BUILT_IN else None)
            for name, rules in self.chains.items()
        }
        return trace(chains, "POSTROUTING", packet, locality, draws)


def _packet_rule(rule: Rule) -> PacketRule:
    text = rule_words(rule)
    if isinstance(rule.target, OtherTarget) or any(isinstance(match, OtherMatch) for match in rule.matches):
        raise ValueError(f"the fake does not know what `{text}` does to a packet")
    matches = tuple(match for match in rule.matches if not isinstance(match, OtherMatch))
    return PacketRule(text, matches, rule.target, rule.comment)


def _listed(rule: Rule) -> str:
    """Show a rule as iptables-save does: the target last, and what always holds left out."""
    parts = (Rule(None, rule.kept), Rule(None, (), rule.comment), Rule(rule.target))
    return " ".join(words for part in parts if (words := rule_words(part)))


class _Table:
    """The table while a transaction is executed; thrown away when a line is refused."""

    def __init__(self, chains: Mapping[str, tuple[Rule, ...]], family: Family) -> None:
        self.chains = dict(chains)
        self._family: Family = family

    def execute(self, line: str) -> None:
        if line.startswith(":"):
            self._declare(line[1:].partition(" ")[0])
            return
        command, _, rest = line.partition(" ")
        name, _, words = rest.partition(" ")
        match command:
            case "-A":
                rule = self._checked(words, name)
                self.chains[name] = (*self._rules(name), rule)
            case "-I":
                rule = self._checked(words, name)
                self.chains[name] = (rule, *self._rules(name))
            case "-D":
                self._delete(name, self._checked(words, name))
            case "-F":
                self._rules(name)
                self.chains[name] = ()
            case "-X":
                self._drop(name)
            case _:
                raise ValueError(f"the fake does not know the command `{command}`")

    def _declare(self, name: str) -> None:
        if name in BUILT_IN:
            raise ValueError(f"{name} is a built-in chain")
        if not name or len(name) > CHAIN_NAME_BYTES or name[0] in "-!" or name in STANDARD_TARGETS:
            raise ValueError(f"invalid chain name `{name}`")
        self.chains[name] = ()

    def _delete(self, name: str, rule: Rule) -> None:
        rules = self._rules(name)
        place = next((index for index, each in enumerate(rules) if each.form == rule.form), None)
        if place is None:
            raise ValueError("Bad rule (does a matching rule exist in that chain?)")
        self.chains[name] = (*rules[:place], *rules[place + 1 :])

    def _drop(self, name: str) -> None:
        if name in BUILT_IN or self._rules(name):
            raise ValueError(f"chain {name} is built in or not empty")
        for other, rules in self.chains.items():
            if any(isinstance(rule.target, Jump) and rule.target.chain == name for rule in rules):
                raise ValueError(f"chain {name} is deleted while a rule of {other} jumps to it")
        del self.chains[name]

    def _rules(self, name: str) -> tuple[Rule, ...]:
        if name not in self.chains:
            raise ValueError(f"chain {name} does not exist")
        return self.chains[name]

    def _checked(self, words: str, chain: str) -> Rule:
        rule = read_rule(words, self._family)
        for problem in _refused(rule, chain, self._family):
            raise ValueError(problem)
        if isinstance(rule.target, Jump):
            self._rules(rule.target.chain)
            if rule.target.chain in (*BUILT_IN, chain):
                raise ValueError(f"a jump to {rule.target.chain} makes a loop")
        return msgspec.structs.replace(rule, text="")


def _refused(rule: Rule, chain: str, family: Family) -> Iterator[str]:
    """Say what iptables, or the kernel, would refuse about a rule."""
    protocols = {
        name
        for match in rule.matches
        if isinstance(match, ProtocolIn) and not match.negated
        for name in match.protocols
    }
    ports = rule.target.ports if isinstance(rule.target, Masquerade | Snat) else None
    if isinstance(rule.target, Dnat):
        yield "the fake translates sources only"
    if ports and not protocols & _PORT_PROTOCOLS:
        yield "Need TCP, UDP, SCTP or DCCP with port specification"
    if ports and not 0 <= ports[0] <= ports[1] <= 65535:
        yield f"Port `{ports[0]}-{ports[1]}' not valid"
    for match in rule.matches:
        if isinstance(match, PortIn) and not protocols & _PORT_PROTOCOLS:
            yield "ports need a protocol"
        if isinstance(match, InterfaceIn) and chain == "POSTROUTING" and match.direction == "iifname":
            yield "Can't use -i with POSTROUTING"
        if isinstance(match, AddressTypeIn) and family == "ip6":
            if "broadcast" in match.types:
                yield "IPv6 has no broadcast"
            if len(match.types) > 1:
                yield "for IPv6 the kernel wants all types of a rule to hold at once"
