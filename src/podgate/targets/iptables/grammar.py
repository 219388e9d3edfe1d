"""grammar: rules from words, as iptables-save shows them and as render.py writes them. Pure.

Here: one rule's words. Not here: the lines around it (listing.py), writing (render.py).
Invariant: nothing is guessed: a match or target that is not known becomes text and stays distinct from all others.
"""

import re
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

from podgate.model.machine import Family, IPAddress
from podgate.model.packet import (
    Accept,
    AddressIn,
    AddressTypeIn,
    Chance,
    Direction,
    Drop,
    Field,
    InterfaceIn,
    Jump,
    Masquerade,
    PortField,
    PortIn,
    ProtocolIn,
    Return,
    Snat,
    network_range,
)
from podgate.targets.iptables.state import EXTENSION_TARGETS, Match, OtherMatch, OtherTarget, Rule, RuleTarget

_WORD: Final = re.compile(r'"(?:[^"\\]|\\.)*"|\S+')
_IPV4: Final = re.compile(r"(0|[1-9]\d{0,2})\.(0|[1-9]\d{0,2})\.(0|[1-9]\d{0,2})\.(0|[1-9]\d{0,2})(?:/(\d{1,2}))?")
_ESCAPED: Final = re.compile(r"\\(.)")

_HEADS: Final = frozenset(("-s", "-d", "-p", "-i", "-o", "-m", "-j", "-g"))
_ADDRESSES: Final[dict[str, Field]] = {"-s": "saddr", "-d": "daddr"}
_DIRECTIONS: Final[dict[str, Direction]] = {"-i": "iifname", "-o": "oifname"}
_TYPE_FIELDS: Final[dict[str, Field]] = {"--src-type": "saddr", "--dst-type": "daddr"}
_RANGE_FIELDS: Final[dict[str, Field]] = {"--src-range": "saddr", "--dst-range": "daddr"}
_PORT_FIELDS: Final[dict[str, PortField]] = {
    "--sport": "sport",
    "--sports": "sport",
    "--dport": "dport",
    "--dports": "dport",
}
_TYPES: Final = frozenset(("LOCAL", "BROADCAST", "ANYCAST", "MULTICAST", "UNICAST"))
_PROTOCOLS: Final = {"6": "tcp", "17": "udp", "132": "sctp", "1": "icmp", "58": "icmpv6", "ipv6-icmp": "icmpv6"}
_TRANSLATION_FLAGS: Final = frozenset(("--random", "--random-fully", "--persistent"))
_TRANSLATION_VALUES: Final = frozenset(("--to-ports", "--to-source"))


class GrammarError(ValueError):
    """Words that no iptables shows; the message names the word and the rule."""


class _UnknownError(Exception):
    """A segment that is kept as text."""


def words_of(text: str) -> list[str]:
    """Split a line into words; a quoted one keeps its quotes."""
    return _WORD.findall(text)


def unquoted(word: str) -> str:
    """Give what a quoted word stands for."""
    return _ESCAPED.sub(r"\1", word[1:-1]) if word.startswith('"') else word


def read_rule(text: str, family: Family) -> Rule:
    """Read the words after ``-A CHAIN``.

    Raises:
        GrammarError: an option lacks its value, or stands where none can be.
    """
    reader = _Reader(text, family)
    return reader.read()


class _Reader:
    """Reads one rule, one segment after the other: a head with all words up to the next one."""

    def __init__(self, text: str, family: Family) -> None:
        self._text = text
        self._version = 4 if family == "ip" else 6
        self._matches: list[Match] = []
        self._comment = ""
        self._target = ""
        self._is_goto = False
        self._options: list[str] = []

    def read(self) -> Rule:
        for negated, head, words in self._segments():
            if head in ("-j", "-g"):
                if not words or negated:
                    raise self._error(head, "needs the name of a target")
                self._target, self._is_goto = words[0], head == "-g"
                self._options += words[1:]
            elif head == "-m":
                self._module(words)
            else:
                self._matches.append(self._basic(head, words, negated))
        return Rule(self._verdict(), tuple(self._matches), self._comment, self._text)

    def _segments(self) -> Iterator[tuple[bool, str, list[str]]]:
        """Give (negated, head, words). Options of a translation may stand behind any match: they go to the target."""
        found: tuple[bool, str, list[str]] | None = None
        words = words_of(self._text)
        at = 0
        while at < len(words):
            word = words[at]
            negated = word == "!" and at + 1 < len(words) and words[at + 1] in _HEADS
            if negated:
                at += 1
                word = words[at]
            if word in _HEADS:
                if found is not None:
                    yield found
                found = (negated, word, [])
            elif word in _TRANSLATION_FLAGS:
                self._options.append(word)
            elif word in _TRANSLATION_VALUES:
                self._options += words[at : at + 2]
                at += 1
            elif found is None:
                raise self._error(word, "is no option that can stand first")
            else:
                found[2].append(word)
            at += 1
        if found is not None:
            yield found

    def _basic(self, head: str, words: list[str], negated: bool) -> Match:
        if len(words) != 1:
            if head == "-p" and words:  # options without their module
                self._module(words)
                return ProtocolIn(frozenset((_PROTOCOLS.get(words[0], words[0]),)), negated)
            if len(words) < 3 or not self._protocol():
                raise self._error(head, "needs one value")
            self._module([self._protocol(), *words[1:]])
        value = words[0]
        if head in _ADDRESSES:
            try:
                version, bounds = _network(value)
            except ValueError:
                return OtherMatch(f"{'! ' if negated else ''}{head} {value}")
            if version != self._version:
                raise self._error(value, f"is not of IPv{self._version}")
            return AddressIn(_ADDRESSES[head], self._version, (bounds,), negated)
        if head in _DIRECTIONS:
            name = f"{value[:-1]}*" if value.endswith("+") else value
            return InterfaceIn(_DIRECTIONS[head], frozenset((name,)), negated)
        return ProtocolIn(frozenset((_PROTOCOLS.get(value, value),)), negated)

    def _protocol(self) -> str:
        """Give the protocol, whose options may stand anywhere behind it; empty where there is none."""
        return next((next(iter(each.protocols)) for each in self._matches if isinstance(each, ProtocolIn)), "")

    def _module(self, words: list[str]) -> None:
        """Read ``-m NAME OPTION…``; of a module that is not known, or with other options, keep the text."""
        if not words:
            raise self._error("-m", "needs the name of a module")
        name = words[0]
        if name == "comment" and len(words) == 3 and words[1] == "--comment":
            self._comment = unquoted(words[2])
            return
        try:
            self._matches += self._known(name, words[1:])
        except (_UnknownError, ValueError):
            self._matches.append(OtherMatch("-m " + " ".join(words)))

    def _known(self, name: str, options: list[str]) -> list[Match]:
        if name == "statistic" and len(options) == 4 and options[:3] == ["--mode", "random", "--probability"]:
            return [Chance(float(options[3]))]
        if name not in _MODULES:
            raise _UnknownError
        read = _MODULES[name]
        return [read(option, value, negated, self._version) for option, value, negated in _options(options)]

    def _verdict(self) -> RuleTarget | None:
        name, options = self._target, self._options
        match name:
            case "" if not options:
                return None
            case "ACCEPT":
                return Accept()
            case "DROP":
                return Drop()
            case "RETURN":
                return Return()
            case "MASQUERADE" | "SNAT":
                try:
                    return _masquerade(options) if name == "MASQUERADE" else _snat(options)
                except (_UnknownError, ValueError):
                    return OtherTarget(name, " ".join(options))
            case _:
                if options or name in EXTENSION_TARGETS or name == "QUEUE":
                    return OtherTarget(name, " ".join(options))
                return Jump(name, not self._is_goto)

    def _error(self, word: str, why: str) -> GrammarError:
        return GrammarError(f"rule `{self._text}`: `{word}` {why}")


def _network(text: str) -> tuple[int, tuple[int, int]]:
    """Give the version of a network, and its first and last address."""
    plain = _IPV4.fullmatch(text)
    if plain is not None:
        # ip_network costs ten times as much, felt at 10,000 rules.
        octets = [int(part) for part in plain.groups("32")]
        if max(octets[:4]) <= 255 and octets[4] <= 32:
            size = 1 << (32 - octets[4])
            first = (octets[0] << 24 | octets[1] << 16 | octets[2] << 8 | octets[3]) // size * size
            return 4, (first, first + size - 1)
    network = ip_network(text, strict=False)
    return network.version, network_range(network)


def _options(words: list[str]) -> Iterator[tuple[str, str, bool]]:
    """Give (option, value, negated)."""
    at, negated = 0, False
    while at < len(words):
        if words[at] == "!":
            negated = True
            at += 1
            continue
        if at + 1 >= len(words):
            raise _UnknownError
        yield words[at], words[at + 1], negated
        negated = False
        at += 2


def _addrtype(option: str, value: str, negated: bool, _version: int) -> Match:
    types = frozenset(value.split(","))
    if option not in _TYPE_FIELDS or not types <= _TYPES:
        raise _UnknownError
    return AddressTypeIn(_TYPE_FIELDS[option], frozenset(each.lower() for each in types), negated)


def _iprange(option: str, value: str, negated: bool, version: int) -> Match:
    first, dash, last = value.partition("-")
    if option not in _RANGE_FIELDS:
        raise _UnknownError
    bounds = int(ip_address(first)), int(ip_address(last if dash else first))
    return AddressIn(_RANGE_FIELDS[option], version, (bounds,), negated)


def _ports(option: str, value: str, negated: bool, _version: int) -> Match:
    if option not in _PORT_FIELDS:
        raise _UnknownError
    ranges = []
    for part in value.split(","):
        first, colon, last = part.partition(":")
        ranges.append((int(first or 0), int(last or 65535) if colon else int(first)))
    return PortIn(_PORT_FIELDS[option], tuple(sorted(ranges)), negated)


_MODULES: Final[dict[str, Callable[[str, str, bool, int], Match]]] = {
    "addrtype": _addrtype,
    "iprange": _iprange,
    "multiport": _ports,
    **dict.fromkeys(("tcp", "udp", "sctp"), _ports),
}


def _masquerade(options: list[str]) -> Masquerade:
    flags = {word for word in options if word in _TRANSLATION_FLAGS}
    rest = [word for word in options if word not in flags]
    ports = None
    if rest:
        if rest[0] != "--to-ports" or len(rest) != 2:
            raise _UnknownError
        ports = _port_range(rest[1])
    if not flags <= {"--random", "--random-fully"}:
        raise _UnknownError
    return Masquerade(ports, "--random" in flags, "--random-fully" in flags)


def _snat(options: list[str]) -> Snat:
    flags = {word for word in options if word in _TRANSLATION_FLAGS}
    rest = [word for word in options if word not in flags]
    if not flags <= {"--random-fully"} or len(rest) != 2 or rest[0] != "--to-source":
        raise _UnknownError
    address, ports = _address_and_ports(rest[1])
    return Snat(address, ports, "--random-fully" in flags)


def _address_and_ports(text: str) -> tuple[IPAddress, tuple[int, int] | None]:
    if text.startswith("["):
        inside, _, behind = text[1:].partition("]")
        return IPv6Address(inside), _port_range(behind[1:]) if behind else None
    if text.count(":") > 1:
        return IPv6Address(text), None
    address, colon, ports = text.partition(":")
    return IPv4Address(address), _port_range(ports) if colon else None


def _port_range(text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    return int(first), int(last if dash else first)
