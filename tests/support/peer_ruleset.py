"""Rules of another program, as ``nft -j list table`` shows them, run on the first packet of a flow.

Here: the words that kube-proxy uses, hooks in their order, every draw of chance. Not here: podgate's own rules, which
another interpreter runs (targets/nftables/registers.py): this one shares no code with it, so that both are not wrong in
the same way.
Invariant: a word that is not known is a ValueError, never a guess.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address, ip_network
from typing import Any, Final, NamedTuple

Json = Any
Key = Any
"""What an expression gives: a text, a number, or a tuple of these."""

_NAT_HOOKS: Final = {"prerouting": "dnat", "output": "dnat", "input": "snat", "postrouting": "snat"}
_VERDICTS: Final = ("accept", "drop", "reject", "return")


class Sent(NamedTuple):
    """The first packet of a flow, addresses as text; ``is_own``: this node sends it, so that it begins at output."""

    source: str
    destination: str
    protocol: str
    port: int
    interface: str = ""
    is_own: bool = False


class Came(NamedTuple):
    """What came of it.

    Attributes:
        verdict: ``accept``, ``drop`` or ``reject``.
        endpoint: address and port that it was led to, None where nobody translated it.
        is_masqueraded: it got an address of the node.
        sticky: for how many seconds its client is remembered, 0 for not at all.
    """

    verdict: str
    endpoint: tuple[str, int] | None = None
    is_masqueraded: bool = False
    sticky: int = 0


class _Fork(Exception):  # noqa: N818 - no error: the packet's way parts here
    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.count = count


class Ruleset:
    """One table.

    Args:
        listed: what ``nft -j list table`` printed, read.
        local: the node's own addresses, but loopback ones.
    """

    def __init__(self, listed: Json, local: Iterable[str]) -> None:
        self.local = frozenset(local)
        self.sets: dict[str, _Elements] = {}
        self.seconds: dict[str, int] = {}
        self.chains: dict[str, list[Json]] = {}
        self._base: list[Json] = []
        for entry in listed["nftables"]:
            ((kind, found),) = entry.items()
            if kind in ("set", "map"):
                self.sets[found["name"]] = _Elements(found.get("elem", ()))
                self.seconds[found["name"]] = found.get("timeout", 0)
            elif kind == "chain":
                self.chains[found["name"]] = []
                if "hook" in found:
                    self._base.append(found)
            elif kind == "rule":
                self.chains[found["chain"]].append(found["expr"])
        self._base.sort(key=lambda chain: int(chain["prio"]))

    def at(self, hook: str) -> list[Json]:
        """Give the base chains of a hook, in their order."""
        return [chain for chain in self._base if chain["hook"] == hook]

    def type_of(self, address: str) -> str:
        """Give what the node's routes say of an address, as ``fib`` has it."""
        return "local" if address in self.local or ip_address(address).is_loopback else "unicast"

    def came(self, packet: Sent) -> frozenset[Came]:
        """Give all that may come of a packet."""
        found: set[Came] = set()
        waiting: list[tuple[int, ...]] = [()]
        while waiting:
            draws = waiting.pop()
            try:
                found.add(_Walk(self, packet, draws).through())
            except _Fork as fork:
                waiting += [(*draws, number) for number in range(fork.count)]
        return frozenset(found)


class _Elements:
    """Elements of a set, with what they lead to in a map: single keys, and ranges."""

    def __init__(self, elements: Iterable[Json]) -> None:
        self._single: dict[Key, Json] = {}
        self._ranges: list[tuple[Callable[[Key], bool], Json]] = []
        for each in elements:
            key, data = each if isinstance(each, list) else (each, True)
            if isinstance(key, dict) and "elem" in key:
                key = key["elem"]["val"]
            if isinstance(key, dict) and not key.keys() <= {"concat"}:
                self._ranges.append((_range(key), data))
            else:
                self._single[_constant(key)] = data

    def find(self, key: Key) -> Json:
        """Give what a key leads to, True in a set; None where it is not there."""
        if key in self._single:
            return self._single[key]
        return next((data for holds, data in self._ranges if holds(key)), None)


def _constant(value: Json) -> Key:
    if isinstance(value, dict):
        return tuple(_constant(each) for each in value["concat"])
    if not isinstance(value, str | int):
        raise ValueError(f"nobody knows here what the element {value} is")  # noqa: TRY004 - of the listing
    return value


def _range(value: Mapping[str, Json]) -> Callable[[Key], bool]:
    match value:
        case {"prefix": {"addr": address, "len": bits}}:
            network = ip_network(f"{address}/{bits}")
            return lambda key: ip_address(key) in network
        case {"range": [first, last]}:
            low, high = int(ip_address(first)), int(ip_address(last))
            return lambda key: low <= int(ip_address(key)) <= high
    raise ValueError(f"nobody knows here what the element {value} is")


class _Walk:
    """One packet, with one sequence of draws."""

    def __init__(self, rules: Ruleset, packet: Sent, draws: Sequence[int]) -> None:
        self._rules = rules
        self._packet = packet
        self._draws = iter(draws)
        self._destination, self._port = packet.destination, packet.port
        self._mark = self._sticky = 0
        self._hook = ""
        self._settled: set[str] = set()
        self._is_translated = self._is_masqueraded = False

    def through(self) -> Came:
        """Give what comes of the packet."""
        for hook in self._hooks():
            self._hook = hook
            for chain in self._rules.at(hook):
                if chain["type"] == "nat" and _NAT_HOOKS[hook] in self._settled:
                    continue
                verdict = self._chain(chain["name"]) or chain["policy"]
                if verdict in ("drop", "reject"):
                    return Came(verdict)
            if hook in _NAT_HOOKS:
                self._settled.add(_NAT_HOOKS[hook])
        endpoint = (self._destination, self._port) if self._is_translated else None
        return Came("accept", endpoint, self._is_masqueraded, self._sticky)

    def _hooks(self) -> Iterator[str]:
        yield "output" if self._packet.is_own else "prerouting"
        is_local = self._rules.type_of(self._destination) == "local"
        if self._packet.is_own:
            yield "postrouting"
            if is_local:
                yield from ("prerouting", "input")
        elif is_local:
            yield "input"
        else:
            yield from ("forward", "postrouting")

    def _chain(self, name: str) -> str | None:
        """Give the verdict of a chain, None when the packet comes back from it."""
        for rule in self._rules.chains[name]:
            verdict = self._rule(rule)
            if verdict == "return":
                return None
            if isinstance(verdict, str):
                return verdict
            if verdict is not None:
                word, chain = verdict
                inner = self._chain(chain)
                if inner is not None or word == "goto":
                    return inner
        return None

    def _rule(self, rule: Iterable[Json]) -> str | tuple[str, str] | None:
        """Give a rule's verdict, or where it jumps; None for the next rule."""
        for statement in rule:
            ((word, what),) = statement.items()
            if word == "match":
                if not self._matches(what):
                    return None
            elif word == "vmap":
                found = self._elements(what["data"]).find(self._value(what["key"]))
                return None if found is None else _verdict(found)
            elif word not in _DONE:
                return _verdict(statement)
            elif (done := _DONE[word](self, what)) is not None:
                return done
        return None

    def _matches(self, match: Mapping[str, Json]) -> bool:
        left, right = self._value(match["left"]), match["right"]
        match match["op"]:
            case "==":
                return self._holds(left, right)
            case "!=":
                return not self._holds(left, right)
            case "in":
                return right in left
        raise ValueError(f"nobody knows here what {match} means")

    def _holds(self, value: Key, right: Json) -> bool:
        if isinstance(right, str) and right.endswith("*"):
            return str(value).startswith(right[:-1])
        if isinstance(right, str | int) and not str(right).startswith("@"):
            return bool(value == right)
        elements = [right] if isinstance(right, dict) and "set" not in right else right
        return self._elements(elements).find(value) is not None

    def _elements(self, data: Json) -> _Elements:
        if isinstance(data, str):
            return self._rules.sets[data.removeprefix("@")]
        return _Elements(data["set"] if isinstance(data, dict) else data)

    def _value(self, expression: Json) -> Key:
        match expression:
            case int():
                return expression
            case {"payload": {"protocol": "ip" | "ip6", "field": "saddr"}}:
                return self._packet.source
            case {"payload": {"protocol": "ip" | "ip6", "field": "daddr"}}:
                return self._destination
            case {"payload": {"protocol": "th", "field": "dport"}}:
                return self._port
            case {"meta": {"key": "l4proto"}}:
                return self._packet.protocol
            case {"meta": {"key": "mark"}}:
                return self._mark
            case {"meta": {"key": "iifname"}}:
                return "" if self._hook == "output" else self._packet.interface
            case {"ct": {"key": "state"}}:
                return ("new",)
            case {"ct": {"key": "status"}}:
                return ("dnat",) if self._is_translated else ()
            case {"fib": {"result": "type", "flags": ["saddr"]}}:
                return self._rules.type_of(self._packet.source)
            case {"fib": {"result": "type", "flags": ["daddr"]}}:
                return self._rules.type_of(self._destination)
            case {"concat": parts}:
                return tuple(self._value(part) for part in parts)
            case {"&": [left, right]}:
                return self._value(left) & self._value(right)
            case {"|": [left, right]}:
                return self._value(left) | self._value(right)
            case {"^": [left, right]}:
                return self._value(left) ^ self._value(right)
            case {"numgen": {"mode": "random", "mod": count, "offset": 0}}:
                return self._draw(count)
        raise ValueError(f"nobody knows here what {expression} is")

    def _draw(self, count: int) -> int:
        drawn = next(self._draws, None)
        if drawn is None:
            raise _Fork(count)
        return drawn

    def _translate(self, what: Mapping[str, Json]) -> str:
        if _NAT_HOOKS.get(self._hook) != "dnat":
            raise ValueError(f"no destination is translated at {self._hook}")
        address = what["addr"]
        if isinstance(address, dict):
            found = self._elements(address["map"]["data"]).find(self._value(address["map"]["key"]))
            self._destination, self._port = _constant(found)
        else:
            self._destination, self._port = address, int(what["port"])
        self._is_translated = True
        return "accept"

    def _masquerade(self, _what: Json) -> str:
        self._is_masqueraded = True
        return "accept"

    def _mangle(self, what: Mapping[str, Json]) -> None:
        if what["key"] != {"meta": {"key": "mark"}}:
            raise ValueError(f"nobody knows here what {what} sets")
        self._mark = self._value(what["value"])

    def _remember(self, what: Mapping[str, Json]) -> None:
        self._sticky = max(self._sticky, self._rules.seconds[what["set"].removeprefix("@")])

    def _counted(self, _what: Json) -> None:
        """Do nothing to the packet."""


_DONE: Final[Mapping[str, Callable[[_Walk, Any], str | None]]] = {
    "dnat": _Walk._translate,
    "masquerade": _Walk._masquerade,
    "mangle": _Walk._mangle,
    "set": _Walk._remember,
    "counter": _Walk._counted,
}
"""What a statement does to a packet."""


def _verdict(statement: Mapping[str, Json]) -> str | tuple[str, str]:
    ((word, what),) = statement.items()
    if word in ("jump", "goto"):
        return word, str(what["target"])
    if word not in _VERDICTS:
        raise ValueError(f"nobody knows here what {statement} does to a packet")
    return str(word)
