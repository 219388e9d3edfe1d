"""phrases: what the rules of services say, each part as words for people and as expressions for the kernel.

Here: registers and how keys are put into them, matches, lookups, verdicts. Not here: which rules there are, and why
(to_nftables.py).
Invariant: words and code of a phrase say the same; a rule is the phrases of one line, and loads all that it reads.

Registers, by the words of an address (1 for IPv4, 4 for IPv6): a set of endpoints is named from register 0 on (cluster
IP, port, then protocol), a packet's destination is looked up from register 8 on, what was drawn lies from 10 on.
"""

from typing import Final

from podgate.features.services import layout
from podgate.features.services.layout import LOCAL, MASQUERADED, Bucket
from podgate.model.frozen import Frozen
from podgate.model.machine import Family
from podgate.targets.nftables.code import (
    AddressKind,
    Bitwise,
    Code,
    Compare,
    Ct,
    Dispatch,
    Expression,
    Go,
    Lookup,
    Masquerading,
    Meta,
    Payload,
    Random,
    Rejecting,
    Remember,
    SetMark,
    Translate,
)
from podgate.targets.nftables.state import Rule

_KEY: Final = 8
_DRAWN: Final = 10
_NEW: Final = (1 << 3).to_bytes(4, "little")
"""The bit of ``ct state`` for a connection's first packet (IP_CT_NEW)."""
_DNAT: Final = (1 << 5).to_bytes(4, "little")
"""The bit of ``ct status`` of a connection whose destination was translated (IPS_DST_NAT)."""
_RTN_LOCAL: Final = (2).to_bytes(4, "little")
_ZERO: Final = bytes(4)
_NAME_BYTES: Final = 16


class Phrase(Frozen, frozen=True):
    """Part of a rule, or all of one."""

    words: str
    code: Code

    def __add__(self, other: "Phrase") -> "Phrase":
        return Phrase(f"{self.words} {other.words}".strip(), (*self.code, *other.code))

    def because(self, comment: str) -> Rule:
        """Make it a rule."""
        return Rule(self.words, comment, self.code)


NEW: Final = Phrase("ct state new", (Ct("state", 0), Bitwise(0, _NEW, _ZERO, 0), Compare(0, _ZERO, negated=True)))
TRANSLATED: Final = Phrase(
    "ct status dnat", (Ct("status", 0), Bitwise(0, _DNAT, _ZERO, 0), Compare(0, _ZERO, negated=True))
)
TO_THIS_NODE: Final = Phrase("fib daddr type local", (AddressKind("daddr", 0), Compare(0, _RTN_LOCAL)))
FROM_THIS_NODE: Final = Phrase("fib saddr type local", (AddressKind("saddr", 0), Compare(0, _RTN_LOCAL)))
FROM_ELSEWHERE: Final = Phrase(
    "fib saddr type != local", (AddressKind("saddr", 0), Compare(0, _RTN_LOCAL, negated=True))
)


def go(verdict: str) -> Phrase:
    """Give a verdict."""
    return Phrase(verdict, (Go(verdict),))


def not_through(interface: str) -> Phrase:
    """Match packets that did not come in through an interface, or through any whose name begins so (``veth*``)."""
    name = interface.encode()
    data = name[:-1] if name.endswith(b"*") else name.ljust(_NAME_BYTES, b"\0")
    return Phrase(f'iifname != "{interface}"', (Meta("iifname", 0), Compare(0, data, negated=True)))


def marked(bit: int) -> Phrase:
    """Match packets with a bit of the mark."""
    code = (Meta("mark", 0), Bitwise(0, bit.to_bytes(4, "little"), _ZERO, 0), Compare(0, _ZERO, negated=True))
    return Phrase(f"meta mark & 0x{bit:x} != 0", code)


def set_mark(bit: int) -> Phrase:
    """Set a bit of the mark."""
    keep = (bit ^ 0xFFFFFFFF).to_bytes(4, "little")
    code = (Meta("mark", 0), Bitwise(0, keep, bit.to_bytes(4, "little"), 0), SetMark(0))
    return Phrase(f"meta mark set meta mark | 0x{bit:x}", code)


def clear_mark(bit: int) -> Phrase:
    """Clear a bit of the mark: what a tunnel wraps keeps its mark, and would be masqueraded again."""
    keep = (bit ^ 0xFFFFFFFF).to_bytes(4, "little")
    return Phrase(
        f"meta mark set meta mark & 0x{bit ^ 0xFFFFFFFF:x}", (Meta("mark", 0), Bitwise(0, keep, _ZERO, 0), SetMark(0))
    )


MASQUERADE: Final = Phrase("masquerade fully-random", (Masquerading(fully_random=True),))


class Speaker:
    """The phrases that depend on the family."""

    def __init__(self, family: Family) -> None:
        self._family: Family = family
        self._ip: str = family
        self._bytes = 4 if family == "ip" else 16
        self._words = self._bytes // 4
        self._source_at, self._destination_at = (12, 16) if family == "ip" else (8, 24)

    def _source(self, to: int) -> Payload:
        return Payload("network", self._source_at, self._bytes, to)

    def _destination(self, to: int) -> Payload:
        return Payload("network", self._destination_at, self._bytes, to)

    def _service(self, at: int) -> tuple[Expression, ...]:
        """Load destination, protocol and port."""
        words = self._words
        return (
            self._destination(at),
            Meta("l4proto", at + words),
            Payload("transport", 2, 2, at + words + 1),
        )

    @staticmethod
    def _port(at: int) -> tuple[Expression, ...]:
        """Load protocol and port."""
        return (Meta("l4proto", at), Payload("transport", 2, 2, at + 1))

    def source_in(self, name: str, *, negated: bool = False) -> Phrase:
        """Match senders in a set."""
        words = f"{self._ip} saddr {'!= ' if negated else ''}@{name}"
        return Phrase(words, (self._source(0), Lookup(name, 0, negated=negated)))

    def destination_in(self, name: str) -> Phrase:
        """Match destinations in a set."""
        return Phrase(f"{self._ip} daddr @{name}", (self._destination(0), Lookup(name, 0)))

    def not_loopback(self) -> Phrase:
        """Match destinations that are not in the loopback network; of IPv6 it is one address."""
        if self._family == "ip":
            code = (self._destination(0), Bitwise(0, b"\xff\0\0\0", _ZERO, 0), Compare(0, b"\x7f\0\0\0", negated=True))
            return Phrase("ip daddr != 127.0.0.0/8", code)
        return Phrase("ip6 daddr != ::1", (self._destination(0), Compare(0, bytes(15) + b"\x01", negated=True)))

    def service_in(self, name: str) -> Phrase:
        """Match destination, protocol and port in a set."""
        return Phrase(f"{self._service_words} @{name}", (*self._service(0), Lookup(name, 0)))

    def port_in(self, name: str) -> Phrase:
        """Match protocol and port in a set."""
        return Phrase(f"meta l4proto . th dport @{name}", (*self._port(0), Lookup(name, 0)))

    def known_service(self) -> Phrase:
        """Match what has endpoints."""
        code = (*self._service(_KEY), Lookup(layout.SERVICE_IPS, _KEY, to=0))
        return Phrase(f"{self._service_words} @{layout.SERVICE_IPS}", code)

    def source_not_allowed(self) -> Phrase:
        """Match senders that the source ranges of a load balancer's address leave out."""
        words = f"{self._service_words} . {self._ip} saddr != @{layout.ALLOWED}"
        code = (*self._service(0), self._source(self._words + 2), Lookup(layout.ALLOWED, 0, negated=True))
        return Phrase(words, code)

    def from_itself(self) -> Phrase:
        """Match an endpoint that was led to itself."""
        code = (self._source(0), self._destination(self._words), Lookup(layout.OWN_ENDPOINTS, 0))
        return Phrase(f"{self._ip} saddr . {self._ip} daddr @{layout.OWN_ENDPOINTS}", code)

    def reject(self) -> Phrase:
        """Refuse."""
        return Phrase("reject", (Rejecting(self._family),))

    @property
    def _service_words(self) -> str:
        return f"{self._ip} daddr . meta l4proto . th dport"

    def _way(self, *, node_port: bool, outside: bool = False) -> tuple[str, Code, str]:
        """Give the words and the loading of a key, and the map that it is looked up in."""
        if node_port:
            name = layout.OUTSIDE_NODE_PORTS if outside else layout.NODE_PORTS
            return "meta l4proto . th dport", self._port(_KEY), name
        return self._service_words, self._service(_KEY), layout.OUTSIDE_IPS if outside else layout.SERVICE_IPS

    def dispatch_outside(self, *, node_port: bool) -> Phrase:
        """Go to the endpoints on this node, where a policy Local says so."""
        words, key, name = self._way(node_port=node_port, outside=True)
        return Phrase(
            f"{words} map @{name} vmap @{layout.BUCKETS}", (*key, Lookup(name, _KEY, to=0), Dispatch(layout.BUCKETS, 0))
        )

    def under_local_policy(self, *, node_port: bool) -> Phrase:
        """Match what a policy Local leads to endpoints on this node."""
        words, key, name = self._way(node_port=node_port, outside=True)
        return Phrase(f"{words} @{name}", (*key, Lookup(name, _KEY, to=0)))

    def dispatch(self, *, node_port: bool, masqueraded: bool = False) -> Phrase:
        """Go to the endpoints; with ``masqueraded`` whatever the bucket says of that."""
        words, key, name = self._way(node_port=node_port)
        bucket = self._words + 1
        code: Code = (*key, Lookup(name, _KEY, to=0))
        if masqueraded:
            bit = MASQUERADED.to_bytes(4, "little")
            keep = (MASQUERADED ^ 0xFFFFFFFF).to_bytes(4, "little")
            code = (*code, Bitwise(bucket, keep, bit, bucket))
        flag = f" | 0x{MASQUERADED:x}" if masqueraded else ""
        return Phrase(f"{words} map @{name}{flag} vmap @{layout.BUCKETS}", (*code, Dispatch(layout.BUCKETS, bucket)))

    def _set(self, *, node_port: bool) -> tuple[str, Code]:
        """Load the name of the set of endpoints into the registers from 0 on: cluster IP, port, protocol."""
        words, key, name = self._way(node_port=node_port)
        return f"{words} map @{name}", (*key, Lookup(name, _KEY, to=0), Meta("l4proto", self._words + 1))

    def _draw(self, bucket: Bucket, to: int) -> tuple[str, Code]:
        """Draw an endpoint of the set."""
        offset = f" offset {LOCAL}" if bucket.local else ""
        number = Random(bucket.size, self._words + 2, LOCAL if bucket.local else 0)
        return f"numgen random mod {bucket.size}{offset} map @{layout.ENDPOINTS}", (
            number,
            Lookup(layout.ENDPOINTS, 0, to=to),
        )

    def translate(self, bucket: Bucket, *, node_port: bool) -> Phrase:
        """Draw an endpoint and send the connection there."""
        named, name = self._set(node_port=node_port)
        drawn, draw = self._draw(bucket, 0)
        words = f"dnat {self._ip} to {named} . {drawn}"
        return Phrase(words, (*name, *draw, Translate(self._family, 0, self._words)))

    def stay(self, bucket: Bucket, *, node_port: bool) -> Phrase:
        """Send the connection where its client's last one went, if that still is an endpoint."""
        named, name = self._set(node_port=node_port)
        at = self._words + 2
        members = layout.STICKY_LOCAL_ENDPOINTS if bucket.local else layout.STICKY_ENDPOINTS
        code: Code = (
            *name,
            self._source(at),
            Lookup(layout.STICKY, 0, to=at),
            Lookup(members, 0),
            self._source(at),
            Lookup(layout.STICKY, 0, to=_DRAWN),
            Remember(layout.STICKY, "update", 0, bucket.sticky, _DRAWN),
            Translate(self._family, _DRAWN, _DRAWN + self._words),
        )
        words = (
            f"dnat {self._ip} to {named} . {self._ip} saddr map @{layout.STICKY} if @{members} timeout {bucket.sticky}s"
        )
        return Phrase(words, code)

    def forget(self, *, node_port: bool) -> Phrase:
        """Forget where a client was sent: that is no endpoint any more."""
        named, name = self._set(node_port=node_port)
        at = self._words + 2
        code = (*name, self._source(at), Remember(layout.STICKY, "delete", 0, 0, 0))
        return Phrase(f"delete @{layout.STICKY} {{ {named} . {self._ip} saddr }}", code)

    def translate_and_remember(self, bucket: Bucket, *, node_port: bool) -> Phrase:
        """Draw an endpoint, remember it for the client, and send the connection there."""
        named, name = self._set(node_port=node_port)
        drawn, draw = self._draw(bucket, _DRAWN)
        code: Code = (
            *name,
            *draw,
            self._source(self._words + 2),
            Remember(layout.STICKY, "update", 0, bucket.sticky, _DRAWN),
            Translate(self._family, _DRAWN, _DRAWN + self._words),
        )
        words = f"dnat {self._ip} to {named} . {drawn} update @{layout.STICKY} timeout {bucket.sticky}s"
        return Phrase(words, code)
