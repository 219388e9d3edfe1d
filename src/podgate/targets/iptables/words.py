"""words: one rule as the words that iptables-restore takes. Pure.

Here: matches and targets as words. Not here: reading them (grammar.py), the lines around a rule (render.py).
Invariant: the words stand in the order in which ip-masq-agent writes them, so that its rules are its text, byte for
byte; what iptables cannot say is an error that names it.
"""

from collections.abc import Collection, Iterable, Iterator
from ipaddress import IPv6Address
from typing import Final, assert_never

from podgate.model.machine import IPAddress
from podgate.model.packet import (
    Accept,
    AddressIn,
    AddressTypeIn,
    Chance,
    Dnat,
    Drop,
    InterfaceIn,
    Jump,
    Masquerade,
    PortIn,
    ProtocolIn,
    Ranges,
    Return,
    Snat,
)
from podgate.targets.iptables.state import (
    Match,
    OtherMatch,
    OtherTarget,
    Rule,
    chain_name_mistake,
    comment_text,
    is_interface,
)

MOST_PORTS: Final = 15
"""What one multiport match takes (XT_MULTI_PORTS); a range counts as two."""

_RANDOM_FULLY_SINCE: Final = (1, 6, 2)
_TYPE_ORDER: Final = ("unicast", "local", "broadcast", "anycast", "multicast")


def knows_random_fully(version: str) -> bool:
    """Say whether iptables of this version knows ``--random-fully``; one whose version is not known (empty) does."""
    numbers = tuple(int(part) for part in version.split(".") if part.isdecimal())
    return not numbers or numbers >= _RANDOM_FULLY_SINCE


def rule_words(rule: Rule) -> str:
    """Give the words after ``-A CHAIN``; of a rule that has its text, that.

    Raises:
        ValueError: iptables cannot say it in one rule; the message says what.
    """
    if rule.text:
        return rule.text
    words = [f"-m comment --comment {quoted(rule.comment)}"] if rule.comment else []
    matches = list(_match_words(rule.matches))
    match rule.target:
        case Masquerade(ports, random, fully_random):
            flags = ["--random"] * random + ["--random-fully"] * fully_random
            if ports:
                # ip-masq-agent puts the protocol behind the target, where only --to-ports needs it.
                words += ["-j MASQUERADE", *flags, *matches, f"--to-ports {_dashed(ports)}"]
            else:
                words += [*matches, "-j MASQUERADE", *flags]
        case target:
            words += [*matches, *_target_words(target)]
    return " ".join(words)


def _target_words(target: Accept | Drop | Return | Jump | Snat | Dnat | OtherTarget | None) -> Iterator[str]:
    match target:
        case None:
            return
        case Accept() | Drop() | Return():
            yield f"-j {type(target).__name__.upper()}"
        case Jump(chain, comes_back):
            if mistake := chain_name_mistake(chain):
                raise ValueError(mistake)
            yield f"{'-j' if comes_back else '-g'} {chain}"
        case Snat(address, ports, fully_random):
            yield f"-j SNAT --to-source {_source(address, ports)}"
            if fully_random:
                yield "--random-fully"
        case Dnat():
            raise ValueError("a change of the destination is not written by podgate in iptables")
        case OtherTarget(name, options):
            yield f"-j {name} {options}".rstrip()
        case _:
            assert_never(target)


def _source(address: IPAddress, ports: tuple[int, int] | None) -> str:
    if ports is None:
        return str(address)
    return f"{address}:{_dashed(ports)}" if address.version == 4 else f"[{address}]:{_dashed(ports)}"


def _dashed(ports: tuple[int, int]) -> str:
    return str(ports[0]) if ports[0] == ports[1] else f"{ports[0]}-{ports[1]}"


def quoted(comment: str) -> str:
    """Give a comment as one word of iptables-restore."""
    clean = comment_text(comment)
    if "\\" in clean or '"' in clean:
        clean = clean.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{clean}"'


def _match_words(matches: Iterable[Match]) -> Iterator[str]:
    protocol = next((match for match in matches if isinstance(match, ProtocolIn)), None)
    if protocol is not None:
        if len(protocol.protocols) != 1:
            raise ValueError(f"one rule has one protocol, not {', '.join(sorted(protocol.protocols))}")
        yield f"{_not(protocol.negated)}-p {next(iter(protocol.protocols))}"
    for match in matches:
        match match:
            case ProtocolIn():
                continue
            case AddressIn(field, version, ranges, negated):
                yield _address_words(field, version, ranges, negated)
            case AddressTypeIn(field, types, negated):
                shown = ",".join(each.upper() for each in _TYPE_ORDER if each in types)
                yield f"-m addrtype {_not(negated)}--{'src' if field == 'saddr' else 'dst'}-type {shown}"
            case InterfaceIn(direction, names, negated):
                yield f"{_not(negated)}{'-i' if direction == 'iifname' else '-o'} {_interface(names)}"
            case PortIn(field, ranges, negated):
                yield _port_words(field, ranges, negated)
            case Chance(probability):
                yield f"-m statistic --mode random --probability {_shortest(probability)}"
            case OtherMatch(text):
                yield text
            case _:
                assert_never(match)


def _interface(names: Collection[str]) -> str:
    if len(names) != 1:
        raise ValueError(f"one rule has one interface, not {', '.join(sorted(names))}")
    name = next(iter(names))
    if not is_interface(name):
        raise ValueError(f"{name!r} cannot be the name of an interface")
    return f"{name[:-1]}+" if name.endswith("*") else name


def _not(negated: bool) -> str:
    return "! " if negated else ""


def _shortest(number: float) -> str:
    """Give the shortest decimal that is exactly this float, without an exponent."""
    text = repr(number)
    return text if "e" not in text else f"{number:.20f}".rstrip("0")


def _address_words(field: str, version: int, ranges: Ranges, negated: bool) -> str:
    if len(ranges) != 1:
        raise ValueError(f"one rule has one range of addresses, not {len(ranges)}")
    first, last = ranges[0]
    size = last - first + 1
    if size & (size - 1) == 0 and first & (size - 1) == 0:
        length = (32 if version == 4 else 128) + 1 - size.bit_length()
        return f"{_not(negated)}{'-s' if field == 'saddr' else '-d'} {_address(first, version)}/{length}"
    option = "--src-range" if field == "saddr" else "--dst-range"
    return f"-m iprange {_not(negated)}{option} {_address(first, version)}-{_address(last, version)}"


def _address(number: int, version: int) -> str:
    if version == 4:
        # IPv4Address costs ten times as much, felt at 10,000 rules.
        return f"{number >> 24}.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    return str(IPv6Address(number))


def _port_words(field: str, ranges: Ranges, negated: bool) -> str:
    slots = sum(1 if first == last else 2 for first, last in ranges)
    if slots > MOST_PORTS:
        raise ValueError(f"one rule has at most {MOST_PORTS} ports, a range counting as two, not {slots}")
    shown = ",".join(str(first) if first == last else f"{first}:{last}" for first, last in ranges)
    return f"-m multiport {_not(negated)}--{field}s {shown}"
