"""code: what a rule does, as the kernel's own expressions on registers.

Here: the expressions of nf_tables that our writers use, as frozen values. Not here: their bytes (assembly.py), what
they do to a packet in memory (the fake).
Invariant: a rule loads every register that it reads (Linux 6.12 refuses others), so a rule can be understood alone.

nft's language cannot say all that the kernel does: a value looked up in one map as the key of the next, or an element
whose data was looked up. A rule with code goes to the kernel over netlink; its text is for people.
"""

from typing import Literal

from podgate.model.frozen import Frozen

Register = int
"""The number of a 4-byte register, 0 to 15 (NFT_REG32_00 … NFT_REG32_15). Longer values go on in the next ones."""

MetaKey = Literal["l4proto", "mark", "iifname", "oifname"]
CtKey = Literal["state", "status", "original ip daddr", "original ip6 daddr", "original proto-dst"]


class Payload(Frozen, frozen=True, tag=True):
    """Load bytes of the packet: of the network header, or of the transport header (``th``)."""

    base: Literal["network", "transport"]
    offset: int
    length: int
    to: Register


class Meta(Frozen, frozen=True, tag=True):
    """Load what the kernel knows of the packet: ``l4proto`` (1 byte), ``mark`` (4, host order), names (16)."""

    key: MetaKey
    to: Register


class SetMark(Frozen, frozen=True, tag=True):
    """Set the packet's mark from a register."""

    source: Register


class Ct(Frozen, frozen=True, tag=True):
    """Load what connection tracking knows.

    ``state`` and ``status`` are bit fields of 4 bytes in host order. The others are of the first packet, as
    its sender addressed it: the destination, and the destination's port (2 bytes).
    """

    key: CtKey
    to: Register


class AddressKind(Frozen, frozen=True, tag=True):
    """Load the type that the routing tables give an address, as a number of 4 bytes in host order (RTN_LOCAL is 2)."""

    field: Literal["saddr", "daddr"]
    to: Register


class Immediate(Frozen, frozen=True, tag=True):
    """Load a constant."""

    data: bytes
    to: Register


class Random(Frozen, frozen=True, tag=True):
    """Load a random number from ``offset`` up to ``offset + modulus - 1``, 4 bytes in host order."""

    modulus: int
    to: Register
    offset: int = 0


class Bitwise(Frozen, frozen=True, tag=True):
    """Load ``(source & mask) ^ xor``; both have the length of the value."""

    source: Register
    mask: bytes
    xor: bytes
    to: Register


class Compare(Frozen, frozen=True, tag=True):
    """Go on with the rule if the register equals the data; with ``negated`` if it differs."""

    source: Register
    data: bytes
    negated: bool = False


class Between(Frozen, frozen=True, tag=True):
    """Go on if the register lies from first to last in network order, both included; with ``negated`` if not."""

    source: Register
    first: bytes
    last: bytes
    negated: bool = False


class Lookup(Frozen, frozen=True, tag=True):
    """Go on if the key at ``source`` is in the set; of a map, load its data when ``to`` is given.

    ``negated`` goes on if it is not there, and is for sets only: the kernel takes no map without its data.
    """

    name: str
    source: Register
    to: Register | None = None
    negated: bool = False


class Dispatch(Frozen, frozen=True, tag=True):
    """Go where the verdict map says for the key at ``source``; go on with the next rule if it says nothing."""

    name: str
    source: Register


class Remember(Frozen, frozen=True, tag=True):
    """Change an element of a dynamic set or map by this packet (``dynset``).

    Attributes:
        how: ``add`` keeps an element that is there, ``update`` makes its time start anew too, ``delete`` takes it away.
        timeout: seconds.
        data: where the data of a map's new element begin. The data of one that is there never change.
    """

    name: str
    how: Literal["add", "update", "delete"]
    source: Register
    timeout: int = 0
    data: Register | None = None


class Translate(Frozen, frozen=True, tag=True):
    """Translate the destination to the address, and the port in the two first bytes, at these registers."""

    family: Literal["ip", "ip6"]
    address: Register
    port: Register


class Masquerading(Frozen, frozen=True, tag=True):
    """Give the packet an address of the interface that it leaves by."""

    fully_random: bool = False


class Rejecting(Frozen, frozen=True, tag=True):
    """Drop the packet and tell its sender that nothing listens there: ICMP (or ICMPv6) port unreachable."""

    family: Literal["ip", "ip6"]


class Count(Frozen, frozen=True, tag=True):
    """Count the packet, and go on; what was counted goes with the rule."""


class Go(Frozen, frozen=True, tag=True):
    """Give a verdict: ``accept``, ``drop``, ``return``, ``jump NAME`` or ``goto NAME``."""

    verdict: str


Expression = (
    Payload
    | Meta
    | SetMark
    | Ct
    | AddressKind
    | Immediate
    | Random
    | Bitwise
    | Compare
    | Between
    | Lookup
    | Dispatch
    | Remember
    | Translate
    | Masquerading
    | Rejecting
    | Count
    | Go
)
Code = tuple[Expression, ...]


def references(code: Code) -> set[str]:
    """Give the names of the sets, maps and chains that code mentions."""
    names = set()
    for each in code:
        if isinstance(each, Lookup | Dispatch | Remember):
            names.add(each.name)
        elif isinstance(each, Go) and " " in each.verdict:
            names.add(each.verdict.partition(" ")[2])
    return names
