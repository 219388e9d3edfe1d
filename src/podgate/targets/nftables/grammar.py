"""grammar: reads the rule text that podgate's writers emit, for the fake and for tests.

Here: nft's language as far as our writers use it. Not here: what a rule does to a packet (model/packet.py).
Invariant: a word that is not known is an error that names it: the fake never guesses what the kernel would do.
"""

import re
from ipaddress import ip_address, ip_network
from typing import Final, cast

from podgate.model.packet import (
    Accept,
    AddressIn,
    AddressTypeIn,
    Chance,
    Dnat,
    Drop,
    Field,
    InterfaceIn,
    Jump,
    Masquerade,
    Match,
    PacketRule,
    PortField,
    PortIn,
    ProtocolIn,
    Ranges,
    Return,
    Snat,
    Verdict,
    VerdictMap,
    network_range,
)
from podgate.targets.nftables.elements import Element
from podgate.targets.nftables.state import Rule, Set, State

_TOKEN: Final = re.compile(r'"[^"]*"|[{},]|!=|[^\s{},"]+')
_TYPES: Final = frozenset({"local", "broadcast", "anycast", "multicast", "unicast"})
_WITH_PORTS: Final = frozenset({"tcp", "udp", "sctp"})
_PROTOCOLS: Final = frozenset({"tcp", "udp", "sctp", "icmp", "icmpv6", "ipv6-icmp"})


class GrammarError(ValueError):
    """A rule's text is not what the fake understands; the message names the word and the rule."""


class _Reader:
    """Reads one rule, word by word."""

    def __init__(self, rule: Rule, state: State) -> None:
        self._rule = rule
        self._state = state
        self._sets = {declared.name: declared for declared in state.sets}
        self._words: list[str] = _TOKEN.findall(rule.text)
        self._next = 0

    def read(self) -> PacketRule:
        matches: list[Match] = []
        verdict: Verdict | VerdictMap | None = None
        while not self._at_end():
            if verdict is not None:
                raise self._unknown(self._peek(), " after the verdict")
            found = self._statement()
            if isinstance(found, AddressIn | AddressTypeIn | ProtocolIn | InterfaceIn | PortIn | Chance):
                matches.append(found)
            elif found is not None:
                verdict = found
        return PacketRule(self._rule.text, tuple(matches), verdict, self._rule.comment)

    def _statement(self) -> Match | Verdict | VerdictMap | None:
        word = self._take()
        match word:
            case "counter":
                return None
            case "accept":
                return Accept()
            case "drop":
                return Drop()
            case "return":
                return Return()
            case "jump" | "goto":
                return self._jump(word)
            case "masquerade":
                return self._masquerade()
            case "snat" | "dnat":
                return self._translation(word)
            case "fib":
                return self._fib()
            case "ip" | "ip6":
                return self._address(word)
            case "meta":
                return self._meta(self._take())
            case "iifname" | "oifname":
                return self._interface(word)
            case "tcp" | "udp" | "sctp" | "th":
                return self._port(word)
            case "numgen":
                return self._chance()
            case _:
                raise self._unknown(word)

    def _jump(self, word: str) -> Jump:
        chain = self._take()
        if chain not in {known.name for known in self._state.chains}:
            raise GrammarError(f"rule `{self._rule.text}` goes to chain {chain}, which the table does not have")
        return Jump(chain, comes_back=word == "jump")

    def _masquerade(self) -> Masquerade:
        ports, flags = None, set()
        while not self._at_end():
            word = self._take()
            if word == "to":
                ports = self._port_range(self._take().removeprefix(":"))
            elif word in ("random", "fully-random"):
                flags.add(word)
            else:
                raise self._unknown(word, " after masquerade")
        return Masquerade(ports, random="random" in flags, fully_random="fully-random" in flags)

    def _translation(self, word: str) -> Snat | Dnat:
        if self._peek() in ("ip", "ip6"):
            self._take()
        self._expect("to")
        target = self._take()
        address, ports = self._target(target)
        fully_random = self._peek() == "fully-random"
        if fully_random:
            self._take()
        if word == "snat":
            return Snat(ip_address(address), ports, fully_random)
        if fully_random or (ports and ports[0] != ports[1]):
            raise GrammarError(f"rule `{self._rule.text}`: the fake knows dnat to one address and port only")
        return Dnat(ip_address(address), ports[0] if ports else None)

    def _target(self, text: str) -> tuple[str, tuple[int, int] | None]:
        if text.startswith("["):
            address, _, ports = text[1:].partition("]")
            return address, self._port_range(ports.removeprefix(":")) if ports else None
        if text.count(":") > 1:
            return text, None
        address, _, ports = text.partition(":")
        return address, self._port_range(ports) if ports else None

    def _chance(self) -> Chance:
        """Read ``numgen random mod OF < BELOW``."""
        for word in ("random", "mod"):
            self._expect(word)
        of = self._number()
        self._expect("<")
        below = self._number()
        if not 0 < below < of:
            raise GrammarError(f"rule `{self._rule.text}`: {below} of {of} is no chance")
        return Chance(below / of)

    def _number(self) -> int:
        word = self._take()
        if not word.isdecimal():
            raise GrammarError(f"rule `{self._rule.text}`: `{word}` is not a number")
        return int(word)

    def _fib(self) -> AddressTypeIn:
        field = self._field()
        self._expect("type")
        negated = self._negated()
        types = frozenset(self._list())
        if not types <= _TYPES:
            raise GrammarError(f"rule `{self._rule.text}` has unknown address types {sorted(types - _TYPES)}")
        return AddressTypeIn(field, types, negated)

    def _address(self, family: str) -> AddressIn | ProtocolIn | VerdictMap:
        if family != self._state.family:
            raise GrammarError(f"rule `{self._rule.text}` looks at {family} in a table of family {self._state.family}")
        version = 4 if family == "ip" else 6
        if self._peek() == "protocol":
            self._take()
            return self._protocol()
        field = self._field()
        if self._peek() == "vmap":
            self._take()
            return self._verdict_map(field, version)
        negated = self._negated()
        if self._peek().startswith("@"):
            return AddressIn(field, version, self._set_ranges(self._take()), negated)
        return AddressIn(field, version, tuple(self._range(item) for item in self._list()), negated)

    def _range(self, text: str) -> tuple[int, int]:
        try:
            if "-" in text:
                first, _, last = text.partition("-")
                return int(ip_address(first)), int(ip_address(last))
            return network_range(ip_network(text))
        except ValueError as problem:
            raise GrammarError(f"rule `{self._rule.text}`: `{text}` is not an address or network: {problem}") from None

    def _set_ranges(self, word: str) -> Ranges:
        declared = self._declared(word)
        if declared.data:
            raise GrammarError(f"rule `{self._rule.text}` uses map {declared.name} as a set")
        return tuple(_bounds(declared, key) for key in self._state.elements_of(declared.name))

    def _verdict_map(self, field: Field, version: int) -> VerdictMap:
        declared = self._declared(self._take())
        if declared.data != ("verdict",):
            raise GrammarError(f"rule `{self._rule.text}` uses {declared.name}, which is not a verdict map, with vmap")
        elements = self._state.elements_of(declared.name)
        entries = [(*_bounds(declared, key), self._verdict(str(data))) for key, data in elements.items()]
        return VerdictMap(field, version, tuple(entries))

    def _verdict(self, text: str) -> Verdict:
        word, _, chain = text.partition(" ")
        simple: dict[str, Verdict] = {"accept": Accept(), "drop": Drop(), "return": Return()}
        if word in simple:
            return simple[word]
        if word in ("jump", "goto"):
            return Jump(chain, comes_back=word == "jump")
        raise GrammarError(f"rule `{self._rule.text}`: a map gives the unknown verdict `{text}`")

    def _declared(self, word: str) -> Set:
        name = word.removeprefix("@")
        if not word.startswith("@") or name not in self._sets:
            raise GrammarError(f"rule `{self._rule.text}` uses set {name}, which the table does not have")
        if self._sets[name].key not in (("ipv4_addr",), ("ipv6_addr",)):
            raise GrammarError(f"rule `{self._rule.text}`: the fake looks up single addresses only, not {name}")
        return self._sets[name]

    def _meta(self, word: str) -> Match:
        match word:
            case "l4proto":
                return self._protocol()
            case "iifname" | "oifname":
                return self._interface(word)
            case _:
                raise self._unknown(word)

    def _protocol(self) -> ProtocolIn:
        negated = self._negated()
        protocols = frozenset(self._list())
        if not protocols <= _PROTOCOLS:
            raise GrammarError(f"rule `{self._rule.text}` has unknown protocols {sorted(protocols - _PROTOCOLS)}")
        return ProtocolIn(protocols, negated)

    def _interface(self, word: str) -> InterfaceIn:
        negated = self._negated()
        names = frozenset(name.strip('"') for name in self._list())
        return InterfaceIn("iifname" if word == "iifname" else "oifname", names, negated)

    def _port(self, header: str) -> PortIn:
        word = self._take()
        if word not in ("sport", "dport"):
            raise self._unknown(word)
        negated = self._negated()
        ranges = tuple(self._port_range(item) for item in self._list())
        protocols = _WITH_PORTS if header == "th" else frozenset({header})
        return PortIn(cast("PortField", word), ranges, negated, protocols)

    def _port_range(self, text: str) -> tuple[int, int]:
        first, _, last = text.partition("-")
        try:
            return int(first), int(last or first)
        except ValueError:
            raise GrammarError(f"rule `{self._rule.text}`: `{text}` is not a port or range of ports") from None

    def _field(self) -> Field:
        word = self._take()
        if word not in ("saddr", "daddr"):
            raise self._unknown(word)
        return cast("Field", word)

    def _negated(self) -> bool:
        negated = self._peek() == "!="
        if negated:
            self._take()
        return negated

    def _list(self) -> list[str]:
        word = self._take()
        if word != "{":
            return [word]
        items = []
        while (word := self._take()) != "}":
            if word != ",":
                items.append(word)
        return items

    def _at_end(self) -> bool:
        return self._next >= len(self._words)

    def _peek(self) -> str:
        return "" if self._at_end() else self._words[self._next]

    def _take(self) -> str:
        if self._at_end():
            raise GrammarError(f"rule `{self._rule.text}` ends too early")
        self._next += 1
        return self._words[self._next - 1]

    def _expect(self, expected: str) -> None:
        word = self._take()
        if word != expected:
            raise self._unknown(word, f" where `{expected}` was expected")

    def _unknown(self, word: str, where: str = "") -> GrammarError:
        return GrammarError(f"rule `{self._rule.text}`: the fake does not know the word `{word}`{where}")


def _bounds(declared: Set, key: Element) -> tuple[int, int]:
    half = len(key) // 2 if declared.is_interval else len(key)
    return int.from_bytes(key[:half], "big"), int.from_bytes(key[-half:], "big")


def read_rule(rule: Rule, state: State) -> PacketRule:
    """Read one rule of a table; sets and maps are looked up in the state as they are now.

    Raises:
        GrammarError: a word is not known, or a set or chain that it names is not in the table.
    """
    return _Reader(rule, state).read()
