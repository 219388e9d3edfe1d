"""evaluation: executes the expressions of a rule on registers, in memory.

Here: what each expression does to one packet. Not here: chains and hooks (registers.py). Pure.
Invariant: values are bytes as the kernel holds them, a register is 4 of them; reading one that this rule has not
written, or bytes of a packet that are not known, is a ValueError.
"""

from collections.abc import Sequence
from ipaddress import ip_address
from typing import Final, NamedTuple

from podgate.model.packet import Locality, Packet
from podgate.model.table import Table
from podgate.targets.nftables.code import (
    AddressKind,
    Between,
    Bitwise,
    Code,
    Compare,
    Count,
    Ct,
    Dispatch,
    Expression,
    Go,
    Immediate,
    Lookup,
    Masquerading,
    Meta,
    Payload,
    Random,
    Register,
    Rejecting,
    Remember,
    SetMark,
    Translate,
)
from podgate.targets.nftables.elements import PROTOCOLS, TYPES, Data, Element, host_word, host_words, key_size
from podgate.targets.nftables.state import Set, State

DynamicElements = frozenset[tuple[str, bytes, bytes]]
"""Elements of dynamic sets: name, key, data."""

_REGISTERS: Final = 16
_WORD: Final = 4
_ADDRESS_KINDS: Final = {"unicast": 1, "local": 2, "broadcast": 3, "anycast": 4, "multicast": 5}
_CT_STATE_INVALID, _CT_STATE_NEW = 1, 8
_CT_SRC_NAT, _CT_DST_NAT, _CT_SRC_NAT_DONE, _CT_DST_NAT_DONE = 1 << 4, 1 << 5, 1 << 7, 1 << 8
_CONNTRACK: Final = -200
"""The priority from which on connection tracking knows a packet, at prerouting and output."""
_ECHO_REQUEST: Final = {4: b"\x08\x00\xf7\xff", 6: b"\x80\x00"}
_STOP: Final = "stop"
_DESTINATION_HOOKS: Final = ("prerouting", "output")
_SOURCE_HOOKS: Final = ("postrouting", "input")


class Fork(Exception):  # noqa: N818 - no error: the packet's way parts here
    """A draw of chance was met; ``numbers`` are what may be drawn."""

    def __init__(self, numbers: range) -> None:
        super().__init__(numbers)
        self.numbers = numbers


class Passing(NamedTuple):
    """Where the packet is: a base chain's hook, type and priority."""

    hook: str
    type: str
    priority: int


class Evaluation:
    """One packet and what the kernel knows of it; ``draws`` are what chance gives, in order."""

    def __init__(
        self,
        state: State,
        packet: Packet,
        locality: Locality,
        draws: Sequence[int],
        *,
        mark: int = 0,
        memory: DynamicElements = frozenset(),
    ) -> None:
        self._sets = {declared.name: declared for declared in state.sets}
        self._elements = state.elements
        self._packet = packet
        self._locality = locality
        self._draws = iter(draws)
        self._remembered = {(name, key): data for name, key, data in memory}
        self._registers = bytearray(_REGISTERS * _WORD)
        self._written: set[Register] = set()
        self._status = 0
        self._hook = ""
        self.passing = Passing("", "", 0)
        self.destination = packet.destination
        self.dport = packet.dport
        self.mark = mark
        self.is_translated = False
        self.is_masqueraded = False

    @property
    def memory(self) -> DynamicElements:
        """The elements of dynamic sets now."""
        return frozenset((name, key, data) for (name, key), data in self._remembered.items())

    def enter(self, hook: str) -> None:
        """Come to a hook."""
        self._hook = hook

    def leave(self, hook: str) -> None:
        """Leave a hook: where nobody translated, the kernel notes that too (a null binding)."""
        if hook in _DESTINATION_HOOKS:
            self._status |= _CT_DST_NAT_DONE
        elif hook in _SOURCE_HOOKS:
            self._status |= _CT_SRC_NAT_DONE

    def knows_translation(self, hook: str) -> bool:
        """Whether the flow's translation of the kind of this hook is settled: NAT chains see it no more."""
        done = _CT_DST_NAT_DONE if hook in _DESTINATION_HOOKS else _CT_SRC_NAT_DONE
        return bool(self._status & done)

    def run(self, code: Code) -> str | None:
        """Run a rule; gives its verdict, or None when the packet goes on with the next rule."""
        self._written.clear()
        for expression in code:
            verdict = self._step(expression)
            if verdict is not None:
                return None if verdict == _STOP else verdict
        return None

    def _step(self, each: Expression) -> str | None:
        match each:
            case Payload() | Meta() | AddressKind() | Immediate() | Random() | Bitwise():
                self._write(each.to, self._value(each))
                return None
            case SetMark(source):
                self.mark = host_word(self._read(source, _WORD))
                return None
            case Ct(key, to):
                return self._ct(key, to)
            case Compare(source, data, negated):
                return _unless((self._read(source, len(data)) == data) != negated)
            case Between(source, first, last, negated):
                return _unless((first <= self._read(source, len(first)) <= last) != negated)
            case Lookup():
                return self._lookup(each)
            case Dispatch(name, source):
                return self._dispatch(name, source)
            case Remember():
                self._remember(each)
                return None
            case Count():
                return None
            case Go(verdict):
                return verdict
            case _:
                return self._end(each)

    def _value(self, each: Payload | Meta | AddressKind | Immediate | Random | Bitwise) -> bytes:
        """Give what an expression loads."""
        match each:
            case Payload(base, offset, length):
                return self._payload(base, offset, length)
            case Meta(key):
                return self._meta(key)
            case AddressKind(field):
                address = self._packet.source if field == "saddr" else self.destination
                return host_words(_ADDRESS_KINDS[self._locality.type_of(address)])
            case Immediate(data):
                return data
            case Random(modulus, _, offset):
                return host_words(self._draw(modulus, offset))
            case Bitwise(source, mask, xor):
                value = self._read(source, len(mask))
                return bytes((v & m) ^ x for v, m, x in zip(value, mask, xor, strict=True))

    def _end(self, each: Translate | Masquerading | Rejecting) -> str:
        match each:
            case Translate(family, address, port):
                return self._translate(family, address, port)
            case Masquerading():
                if (self.passing.hook, self.passing.type) != ("postrouting", "nat"):
                    raise ValueError("masquerading is for NAT chains at postrouting")
                self.is_masqueraded = True
                self._status |= _CT_SRC_NAT | _CT_SRC_NAT_DONE
                return "accept"
            case Rejecting():
                if self.passing.hook == "postrouting" or self.passing.type == "nat":
                    raise ValueError("rejecting is for filter chains, and not for postrouting")
                return "reject"

    def _read(self, start: Register, length: int) -> bytes:
        registers = range(start, start + (length + _WORD - 1) // _WORD)
        missing = [number for number in registers if number not in self._written]
        if missing:
            raise ValueError(f"it reads register {missing[0]}, which it has not loaded")
        return bytes(self._registers[start * _WORD : start * _WORD + length])

    def _write(self, start: Register, data: bytes) -> None:
        padded = data + bytes(-len(data) % _WORD)
        if start < 0 or start * _WORD + len(padded) > _REGISTERS * _WORD:
            raise ValueError(f"{len(data)} bytes do not fit into the registers from {start} on")
        self._registers[start * _WORD : start * _WORD + len(padded)] = padded
        self._written.update(range(start, start + len(padded) // _WORD))

    def _draw(self, modulus: int, offset: int) -> int:
        number = next(self._draws, None)
        if number is None:
            raise Fork(range(offset, offset + modulus))
        return number

    def _payload(self, base: str, offset: int, length: int) -> bytes:
        header, known = self._network() if base == "network" else self._transport(self.dport)
        places = range(offset, offset + length)
        if not known.issuperset(places):
            raise ValueError(f"the fake does not know bytes {offset} to {offset + length - 1} of the {base} header")
        return bytes(header[offset : offset + length])

    def _network(self) -> tuple[bytes, set[int]]:
        protocol = bytes((PROTOCOLS[self._packet.protocol],))
        addresses = self._packet.source.packed + self.destination.packed
        if self.destination.version == 4:  # RFC 791
            return bytes(9) + protocol + bytes(2) + addresses, {9, *range(12, 20)}
        return bytes(6) + protocol + bytes(1) + addresses, {6, *range(8, 40)}  # RFC 8200

    def _transport(self, dport: int) -> tuple[bytes, set[int]]:
        if self._packet.protocol in ("icmp", "icmpv6"):
            header = _ECHO_REQUEST[self.destination.version]
        else:
            header = self._packet.sport.to_bytes(2, "big") + dport.to_bytes(2, "big")
        return header, set(range(len(header)))

    def _meta(self, key: str) -> bytes:
        match key:
            case "l4proto":
                return bytes((PROTOCOLS[self._packet.protocol],))
            case "mark":
                return host_words(self.mark)
            case "iifname":
                return _name("" if self._hook == "output" else self._packet.in_interface)
            case _:
                return _name("" if self._hook in ("prerouting", "input") else self._packet.out_interface)

    def _ct(self, key: str, to: Register) -> str | None:
        known = self.passing.hook not in _DESTINATION_HOOKS or self.passing.priority > _CONNTRACK or self._status
        if not known and key != "state":
            return _STOP
        match key:
            case "state":
                value = host_words(_CT_STATE_NEW if known else _CT_STATE_INVALID)
            case "status":
                value = host_words(self._status)
            case "original proto-dst":
                value = self._transport(self._packet.dport)[0][2:4]
            case _:
                value = self._packet.destination.packed
        if key.startswith("original ip") and ("ip6" in key) != (self._packet.destination.version == 6):
            return _STOP
        self._write(to, value)
        return None

    def _set(self, name: str) -> Set:
        if name not in self._sets:
            raise ValueError(f"there is no set or map {name}")
        return self._sets[name]

    def _found(self, declared: Set, source: Register) -> Data | None:
        """Give the data of the element that has or covers the key at a register."""
        key = self._read(source, key_size(declared.key))
        if declared.is_dynamic:
            return self._remembered.get((declared.name, key))
        elements: Table[Element, Data] = self._elements.get(declared.name) or Table()
        found = elements.get(key) if not declared.is_interval else _covering(declared, elements, key)
        return elements.get(b"") if found is None else found

    def _lookup(self, each: Lookup) -> str | None:
        declared = self._set(each.name)
        found = self._found(declared, each.source)
        if (each.to is None) != (not declared.data) or (each.negated and each.to is not None):
            raise ValueError(f"{each.name} is {'a map' if declared.data else 'no map'}, and is looked up otherwise")
        if each.to is None:
            return _unless((found is not None) != each.negated)
        if found is None:
            return _STOP
        if isinstance(found, str):
            raise ValueError(f"{each.name} holds verdicts, which no register takes")  # noqa: TRY004 - of the state
        self._write(each.to, found)
        return None

    def _dispatch(self, name: str, source: Register) -> str:
        declared = self._set(name)
        if declared.data != ("verdict",):
            raise ValueError(f"{name} holds no verdicts")
        found = self._found(declared, source)
        return found if isinstance(found, str) else _STOP

    def _remember(self, each: Remember) -> None:
        declared = self._set(each.name)
        if not declared.is_dynamic or (each.data is None) != (not declared.data):
            raise ValueError(f"{each.name} cannot be changed so: it is not dynamic, or its data are missing")
        key = self._read(each.source, key_size(declared.key))
        data = self._read(each.data, key_size(declared.data)) if each.data is not None else b""
        if each.how == "delete":
            self._remembered.pop((each.name, key), None)
        else:
            self._remembered.setdefault((each.name, key), data)

    def _translate(self, family: str, address: Register, port: Register) -> str:
        if self.passing.type != "nat" or self.passing.hook not in _DESTINATION_HOOKS:
            raise ValueError("destinations are translated in NAT chains at prerouting and output")
        to = ip_address(self._read(address, 4 if family == "ip" else 16))
        number = int.from_bytes(self._read(port, 2), "big")
        if to.version != self.destination.version:
            raise ValueError(f"a packet to {self.destination} cannot go to {to}")
        self._status |= _CT_DST_NAT_DONE
        if (to, number) != (self.destination, self.dport):
            self._status |= _CT_DST_NAT
        self.destination, self.dport, self.is_translated = to, number, True
        return "accept"


def _name(interface: str) -> bytes:
    return interface.encode().ljust(16, b"\0")


def _unless(holds: bool) -> str | None:
    return None if holds else _STOP


def _covering(declared: Set, elements: Table[Element, Data], key: bytes) -> Data | None:
    """Give the data of the interval that covers a key, in every field of a concatenation."""
    fields, offset = [], 0
    for name in declared.key:
        fields.append(slice(offset, offset + TYPES[name].size))
        offset += (TYPES[name].size + 3) // 4 * 4
    size = len(key)
    for each, data in elements.items():
        first, last = each[:size], each[size:]
        if each and all(first[field] <= key[field] <= last[field] for field in fields):
            return data
    return None
