"""phrases: what the rules of services say, each part as words for people and as expressions for the kernel.

Here: registers and how keys are put into them, matches, lookups, verdicts. Not here: which rules there are, and why
(to_nftables.py).
Invariant: words and code of a phrase say the same; a rule is the phrases of one line, and loads all that it reads.

nft cannot show a key of which a part was looked up itself (1.0.6 gives up on the whole table, with an assertion). It
knows a register by the expression that loaded its first word. So constants are loaded over such a part, and what is
looked up begins behind the first word of one, or before the key: nft shows the constants, and the comment says what is
meant.
"""

from typing import Final

from podgate.features.services import layout
from podgate.features.services.intent import Protocol
from podgate.features.services.layout import LOCAL, PROTOCOLS, Bucket
from podgate.model.frozen import Frozen
from podgate.model.machine import Family
from podgate.targets.nftables.code import (
    AddressKind,
    Bitwise,
    Code,
    Compare,
    Count,
    Ct,
    CtKey,
    Dispatch,
    Expression,
    Go,
    Immediate,
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
from podgate.targets.nftables.elements import host_words
from podgate.targets.nftables.state import Rule

_CLIENT: Final = 1
_KEY: Final = 6
_ASKED: Final = 10
_DATA: Final = 11
_NEW: Final = host_words(1 << 3)
"""The bit of ``ct state`` for a connection's first packet (IP_CT_NEW)."""
_DNAT: Final = host_words(1 << 5)
"""The bit of ``ct status`` of a connection whose destination was translated (IPS_DST_NAT)."""
_RTN_LOCAL: Final = host_words(2)
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
UNTRANSLATED: Final = Phrase("ct status ! dnat", (Ct("status", 0), Bitwise(0, _DNAT, _ZERO, 0), Compare(0, _ZERO)))
TO_THIS_NODE: Final = Phrase("fib daddr type local", (AddressKind("daddr", 0), Compare(0, _RTN_LOCAL)))
FROM_THIS_NODE: Final = Phrase("fib saddr type local", (AddressKind("saddr", 0), Compare(0, _RTN_LOCAL)))
FROM_ELSEWHERE: Final = Phrase(
    "fib saddr type != local", (AddressKind("saddr", 0), Compare(0, _RTN_LOCAL, negated=True))
)


def go(verdict: str) -> Phrase:
    """Give a verdict."""
    return Phrase(verdict, (Go(verdict),))


def _to_bucket(flag: int, key: tuple[str, Code], name: str, buckets: str) -> Phrase:
    """Go to the bucket that a map has for a key; each value of the flag has buckets of its own."""
    words, load = key
    code: Code = (Immediate(host_words(flag, 0), 0), *load, Lookup(name, _KEY, to=1), Dispatch(buckets, 0))
    return Phrase(f"{flag} . {words} map @{name} vmap @{buckets}", code)


def not_through(interface: str) -> Phrase:
    """Match packets that did not come in through an interface, or through any whose name begins so (``veth*``)."""
    name = interface.encode()
    data = name[:-1] if name.endswith(b"*") else name.ljust(_NAME_BYTES, b"\0")
    return Phrase(f'iifname != "{interface}"', (Meta("iifname", 0), Compare(0, data, negated=True)))


def marked(bit: int) -> Phrase:
    """Match packets with a bit of the mark."""
    code = (Meta("mark", 0), Bitwise(0, host_words(bit), _ZERO, 0), Compare(0, _ZERO, negated=True))
    return Phrase(f"meta mark & 0x{bit:x} != 0", code)


def set_mark(bit: int) -> Phrase:
    """Set a bit of the mark."""
    keep = host_words(bit ^ 0xFFFFFFFF)
    code = (Meta("mark", 0), Bitwise(0, keep, host_words(bit), 0), SetMark(0))
    return Phrase(f"meta mark set meta mark | 0x{bit:x}", code)


def clear_mark(bit: int) -> Phrase:
    """Clear a bit of the mark: what a tunnel wraps keeps its mark, and would be masqueraded again."""
    keep = host_words(bit ^ 0xFFFFFFFF)
    return Phrase(
        f"meta mark set meta mark & 0x{bit ^ 0xFFFFFFFF:x}", (Meta("mark", 0), Bitwise(0, keep, _ZERO, 0), SetMark(0))
    )


COUNT: Final = Phrase("counter", (Count(),))


def of_protocol(protocol: Protocol) -> Phrase:
    """Match packets of a protocol."""
    return Phrase(f"meta l4proto {protocol}", (Meta("l4proto", 0), Compare(0, PROTOCOLS[protocol][:1])))


MASQUERADE: Final = Phrase("masquerade fully-random", (Masquerading(fully_random=True),))


class Speaker:
    """The phrases that depend on the family."""

    def __init__(self, family: Family) -> None:
        self._family: Family = family
        self._ip: str = family
        self._bytes = 4 if family == "ip" else 16
        self._words = self._bytes // 4
        self._staying = _CLIENT + self._words + 2  # behind protocol, cluster IP and port: a client, or its endpoint
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

    def loopback(self, *, negated: bool = False) -> Phrase:
        """Match destinations in the loopback network, or all others; of IPv6 it is one address."""
        unless = "!= " if negated else ""
        if self._family == "ip":
            masked, network = Bitwise(0, b"\xff\0\0\0", _ZERO, 0), Compare(0, b"\x7f\0\0\0", negated)
            return Phrase(f"ip daddr {unless}127.0.0.0/8", (self._destination(0), masked, network))
        return Phrase(f"ip6 daddr {unless}::1", (self._destination(0), Compare(0, bytes(15) + b"\x01", negated)))

    def service_in(self, name: str) -> Phrase:
        """Match destination, protocol and port in a set."""
        return Phrase(f"{self._service_words} @{name}", (*self._service(0), Lookup(name, 0)))

    def port_in(self, name: str) -> Phrase:
        """Match protocol and port in a set."""
        return Phrase(f"meta l4proto . th dport @{name}", (*self._port(0), Lookup(name, 0)))

    def known_node_port(self) -> Phrase:
        """Match node ports that have endpoints, whatever the address."""
        code = (*self._port(_KEY), Lookup(layout.NODE_PORTS, _KEY, to=0))
        return Phrase(f"meta l4proto . th dport @{layout.NODE_PORTS}", code)

    def known_service(self) -> Phrase:
        """Match what has endpoints."""
        return Phrase(
            f"{self._service_words} @{layout.SERVICE_IPS}",
            (*self._service(_KEY), Lookup(layout.SERVICE_IPS, _KEY, to=0)),
        )

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

    def _way(self, at: int, *, node_port: bool) -> tuple[str, Code]:
        """Give the words and the loading of a key of the maps of addresses, or of node ports."""
        if node_port:
            return "meta l4proto . th dport", self._port(at)
        return self._service_words, self._service(at)

    def dispatch_outside(self, *, node_port: bool) -> Phrase:
        """Go to the endpoints on this node, where a policy Local says so."""
        return self._dispatch(layout.OUTSIDE_NODE_PORTS if node_port else layout.OUTSIDE_IPS, node_port=node_port)

    def dispatch(self, *, node_port: bool, masqueraded: bool = False) -> Phrase:
        """Go to the endpoints; with ``masqueraded`` whatever the bucket says of that."""
        name = layout.NODE_PORTS if node_port else layout.SERVICE_IPS
        return self._dispatch(name, node_port=node_port, masqueraded=masqueraded)

    def _dispatch(self, name: str, *, node_port: bool, masqueraded: bool = False) -> Phrase:
        return _to_bucket(int(masqueraded), self._way(_KEY, node_port=node_port), name, layout.BUCKETS)

    def under_local_policy(self, *, node_port: bool) -> Phrase:
        """Match what a policy Local leads to endpoints on this node."""
        name = layout.OUTSIDE_NODE_PORTS if node_port else layout.OUTSIDE_IPS
        key_words, key = self._way(_KEY, node_port=node_port)
        return Phrase(f"{key_words} @{name}", (*key, Lookup(name, _KEY, to=0)))

    def _draw(self, bucket: Bucket, at: int, to: int, *, node_port: bool) -> tuple[str, Code]:
        """Draw an endpoint."""
        first = LOCAL if bucket.local else 0
        name = layout.NODE_PORT_ENDPOINTS if node_port else layout.ENDPOINTS
        key_words, key = self._way(at, node_port=node_port)
        slot = at + (2 if node_port else self._words + 2)
        offset = f" offset {first}" if first else ""
        drawn = f"{key_words} . numgen random mod {bucket.size}{offset} map @{name}"
        return drawn, (*key, Random(bucket.size, slot, first), Lookup(name, at, to=to))

    def translate(self, bucket: Bucket, *, node_port: bool) -> Phrase:
        """Draw an endpoint and send the connection there."""
        drawn, draw = self._draw(bucket, 0, 0, node_port=node_port)
        return Phrase(f"dnat {self._ip} to {drawn}", (*draw, Translate(self._family, 0, self._words)))

    def _client(self, asked: tuple[str, Code], *, node_port: bool) -> tuple[str, Code]:
        """Load at _CLIENT what a client is remembered by: protocol, the Service's cluster IP and port, sender.

        ``asked`` says and loads at _ASKED what the client asked for: an address with protocol and port, or a node port.
        """
        asked_words, key = asked
        name = layout.STICKY_NODE_PORTS if node_port else layout.STICKY_IPS
        # Constants lie over what is looked up: see above. None is all of the key, and none begins where the client is.
        end, most = self._staying + self._words, min(4, self._words + 1)
        covered = (Immediate(bytes(4 * min(most, end - first)), first) for first in range(_CLIENT, end, most))
        code: Code = (*covered, *key, Lookup(name, _ASKED, to=_CLIENT - 1), self._source(self._staying))
        return f"{asked_words} map @{name} . {self._ip} saddr", code

    def stay(self, bucket: Bucket, *, node_port: bool) -> Phrase:
        """Send the connection where its client's last one went, if that still is an endpoint."""
        clients = layout.STICKY_CLIENTS
        members = layout.STICKY_LOCAL_ENDPOINTS if bucket.local else layout.STICKY_ENDPOINTS
        client_words, client = self._client(self._way(_ASKED, node_port=node_port), node_port=node_port)
        # The endpoint comes behind the Service's port, in the place of the sender: the key of its set.
        endpoint, port = self._staying, self._staying + self._words
        code = (
            *client,
            Immediate(_ZERO, port),
            Lookup(clients, _CLIENT, to=endpoint),
            Lookup(members, _CLIENT),
            Translate(self._family, endpoint, port),
        )
        return Phrase(f"dnat {self._ip} to {client_words} map @{clients} if @{members}", code)

    def _address_and_port(self, at: int) -> Code:
        """Load destination and port."""
        return (self._destination(at), Payload("transport", 2, 2, at + self._words))

    def forget(self, *, node_port: bool) -> Phrase:
        """Forget where a client was sent: that is no endpoint any more."""
        client_words, client = self._client(self._way(_ASKED, node_port=node_port), node_port=node_port)
        # A map's element has data; those of one that goes do not matter.
        code = (*client, *self._address_and_port(_DATA), Remember(layout.STICKY_CLIENTS, "delete", _CLIENT, 0, _DATA))
        return Phrase(f"delete @{layout.STICKY_CLIENTS} {{ {client_words} }}", code)

    def _asked_for(self, at: int, *, node_port: bool) -> tuple[str, Code]:
        """Load what the connection's first packet was sent to."""
        to_port = "meta l4proto . ct original proto-dst"
        if node_port:
            return to_port, (Meta("l4proto", at), Ct("original proto-dst", at + 1))
        address: CtKey = "original ip daddr" if self._family == "ip" else "original ip6 daddr"
        end = at + self._words
        return f"ct {address} . {to_port}", (Ct(address, at), Meta("l4proto", end), Ct("original proto-dst", end + 1))

    def asked_for_service(self) -> Phrase:
        """Match connections that were sent to an address of a Service, and to no node port."""
        words, key = self._asked_for(_KEY, node_port=False)
        return Phrase(f"{words} @{layout.SERVICE_IPS}", (*key, Lookup(layout.SERVICE_IPS, _KEY, to=0)))

    def to_remember(self, *, node_port: bool) -> Phrase:
        """Go where is remembered what was drawn, if clients stay with it."""
        name = layout.STICKY_NODE_PORTS if node_port else layout.STICKY_IPS
        words, key = self._asked_for(_ASKED, node_port=node_port)
        code = (Immediate(host_words(0, 0), 0), *key, Lookup(name, _ASKED, to=1), Dispatch(layout.REMEMBER, 0))
        return Phrase(f"0 . {words} map @{name} vmap @{layout.REMEMBER}", code)

    def remember(self, seconds: int, *, node_port: bool) -> Phrase:
        """Remember for the client where its connection goes now."""
        client_words, client = self._client(self._asked_for(_ASKED, node_port=node_port), node_port=node_port)
        code = (
            *client,
            *self._address_and_port(_DATA),
            Remember(layout.STICKY_CLIENTS, "update", _CLIENT, seconds, _DATA),
        )
        element = f"{client_words} timeout {seconds}s : {self._ip} daddr . th dport"
        return Phrase(f"update @{layout.STICKY_CLIENTS} {{ {element} }}", code)
