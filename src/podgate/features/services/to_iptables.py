"""to_iptables: the Services of one family as kube-proxy's chains of iptables.

Here: the chains that all Services share, where built-in chains lead to them, the states of the tables. Not here: what
one port of a Service needs (iptables_rules.py), how chains are called (iptables_names.py).
Invariant: equal intents give equal states, whatever came before; one Service that changes gives its own chains anew,
and a chain of all only if its rule there changed.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from podgate.features.services.addresses import address_text
from podgate.features.services.intent import FamilyIntent, HealthCheck, Intent, NodeWide, ServicePort
from podgate.features.services.iptables_names import (
    CANARY,
    EXTERNAL,
    FIREWALL,
    FORWARD,
    MARK,
    NODE_PORTS,
    POSTROUTING,
    SERVICES,
    TABLES,
)
from podgate.features.services.iptables_rules import (
    CHAINS,
    FILTER_EXTERNAL,
    FILTER_FIREWALL,
    FILTER_SERVICES,
    NAT_NODE_PORTS,
    NAT_SERVICES,
    PortRules,
    Rules,
    Style,
    said,
)
from podgate.model.frozen import ObjectRef
from podgate.model.machine import Family
from podgate.model.remembering import Remembered
from podgate.model.table import Table, counted, spread
from podgate.targets.iptables.grammar import read_rule
from podgate.targets.iptables.state import Binary, BuiltinRule, State, TableName

MANY_ENDPOINTS: Final = 1000
"""More endpoints than this have rules without comments, as with kube-proxy (its large-cluster mode)."""

_SHARED: Final = (NAT_SERVICES, NAT_NODE_PORTS, FILTER_SERVICES, FILTER_EXTERNAL, FILTER_FIREWALL)
_TOTAL: Final = "endpoints"
_NEW: Final = "-m conntrack --ctstate NEW"
_PORTALS: Final = '-m comment --comment "kubernetes service portals"'
_VISIBLE: Final = '-m comment --comment "kubernetes externally-visible service portals"'
_GUARDS: Final = '-m comment --comment "kubernetes load balancer firewall"'

_JUMPS: Final[Mapping[TableName, tuple[tuple[str, str], ...]]] = {
    "nat": (
        ("PREROUTING", f"{_PORTALS} -j {SERVICES}"),
        ("OUTPUT", f"{_PORTALS} -j {SERVICES}"),
        ("POSTROUTING", f'-m comment --comment "kubernetes postrouting rules" -j {POSTROUTING}'),
    ),
    # Each goes in front of all others, so the last one of a chain ends up first.
    "filter": (
        ("INPUT", f"{_NEW} {_VISIBLE} -j {EXTERNAL}"),
        ("INPUT", f'-m comment --comment "kubernetes health check service ports" -j {NODE_PORTS}'),
        ("INPUT", f"{_NEW} {_GUARDS} -j {FIREWALL}"),
        ("FORWARD", f"{_NEW} {_VISIBLE} -j {EXTERNAL}"),
        ("FORWARD", f"{_NEW} {_PORTALS} -j {SERVICES}"),
        ("FORWARD", f'-m comment --comment "kubernetes forwarding rules" -j {FORWARD}'),
        ("FORWARD", f"{_NEW} {_GUARDS} -j {FIREWALL}"),
        ("OUTPUT", f"{_NEW} {_PORTALS} -j {SERVICES}"),
        ("OUTPUT", f"{_NEW} {_GUARDS} -j {FIREWALL}"),
    ),
    "mangle": (),
}

_LAST: Final = "kubernetes service nodeports; NOTE: this must be the last rule in this chain"
_FORWARDING: Final = '-m comment --comment "kubernetes forwarding rules"'
_FORWARDING_MORE: Final = '-m comment --comment "kubernetes forwarding conntrack rule"'
_MARTIAN: Final = (
    '! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections"'
    " -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP"
)
LOOPBACK_COUNTED: Final = "connections to node ports on loopback addresses"
"""The comment of the rule that counts them, and does nothing else: each is marked, and meets it once."""
_LOOPBACK: Final[Mapping[Family, str]] = {"ip": "127.0.0.0/8", "ip6": "::1/128"}


class Writer:
    """Writes the states of one family; remembers the chains that it made last (see ``Table``).

    Args:
        family: ``ip`` or ``ip6``.
        binary: which of the two programs.
        random_fully: whether it knows ``--random-fully``.
        liberal: whether packets outside of their connection's window count as part of it, so that none is invalid.
    """

    def __init__(self, family: Family, binary: Binary, *, random_fully: bool = True, liberal: bool = False) -> None:
        self._family: Family = family
        self._binary: Binary = binary
        self._random_fully = random_fully
        self._liberal = liberal
        self._endpoints = counted(_endpoints)
        self._style = Style(family)
        self._ports = spread(PortRules(self._style))
        self._joined = {name: Remembered(_by_target if name == NAT_SERVICES else _in_order) for name in _SHARED}
        self._placed = {
            table: tuple(BuiltinRule(chain, read_rule(words, family), is_first=True) for chain, words in _JUMPS[table])
            for table in TABLES
        }

    def __call__(self, intent: Intent) -> Mapping[TableName, State]:
        """Give the states by table; a family that is off has nothing."""
        part = intent.of(self._family)
        if part is None:
            return {table: State(self._family, self._binary, table=table) for table in TABLES}
        written = self._written(part)
        named: Mapping[TableName, Table[str, Rules]] = {
            "nat": self._nat(part.node, written),
            "filter": self._filter(part.node, written, intent.health_checks),
            "mangle": Table.of({CANARY: ()}),
        }
        return {
            table: State(self._family, self._binary, placed=self._placed[table], table=table, named=named[table])
            for table in TABLES
        }

    def _written(self, part: FamilyIntent) -> Mapping[str, Table[Any, Rules]]:
        many = self._endpoints(part.ports).get(_TOTAL, 0) > MANY_ENDPOINTS
        style = Style(
            self._family,
            part.node.local,
            part.node.masquerade_all,
            tuple(node_port_matches(self._family, part.node)),
            comments=not many,
        )
        if style != self._style:
            self._style, self._ports = style, spread(PortRules(style))
        return self._ports(part.ports)

    def _all(self, name: str, written: Mapping[str, Table[Any, Rules]]) -> Rules:
        return self._joined[name](written.get(name, Table()))

    def _nat(self, node: NodeWide, written: Mapping[str, Table[Any, Rules]]) -> Table[str, Rules]:
        mark = f"{node.mark:#x}"
        to_node_ports = [
            said(where, self._style.comment(_LAST), match, f"-j {NODE_PORTS}")
            for where, match in self._style.node_ports
        ]
        counting = f'-m conntrack --ctorigdst {_LOOPBACK["ip"]} -m comment --comment "{LOOPBACK_COUNTED}"'
        snat = '-m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE'
        return written.get(CHAINS, Table()).updated(
            {
                SERVICES: (*self._all(NAT_SERVICES, written), *to_node_ports),
                NODE_PORTS: self._all(NAT_NODE_PORTS, written),
                MARK: (f"-j MARK --set-xmark {mark}/{mark}",),
                POSTROUTING: (
                    f"-m mark ! --mark {mark}/{mark} -j RETURN",
                    *((counting,) if _opens_loopback(self._family, node) else ()),
                    # The mark goes, since a packet in a tunnel keeps it, and would be masqueraded again outside.
                    f"-j MARK --set-xmark {mark}/0x0",
                    f"{snat} --random-fully" if self._random_fully else snat,
                ),
                CANARY: (),
            }
        )

    def _filter(
        self, node: NodeWide, written: Mapping[str, Table[Any, Rules]], checks: Table[int, HealthCheck]
    ) -> Table[str, Rules]:
        mark = f"{node.mark:#x}"
        invalid = () if self._liberal else ("-m conntrack --ctstate INVALID -j DROP",)
        # What comes for loopback addresses from elsewhere, once routes allow it (CVE-2020-8558).
        martian = (_MARTIAN,) if _opens_loopback(self._family, node) else ()
        return Table.of(
            {
                SERVICES: self._all(FILTER_SERVICES, written),
                EXTERNAL: self._all(FILTER_EXTERNAL, written),
                FIREWALL: self._all(FILTER_FIREWALL, written),
                NODE_PORTS: (*martian, *self._checks(checks)),
                FORWARD: (
                    *invalid,
                    f"{_FORWARDING} -m mark --mark {mark}/{mark} -j ACCEPT",
                    f"{_FORWARDING_MORE} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
                ),
                CANARY: (),
            }
        )

    def _checks(self, checks: Table[int, HealthCheck]) -> Iterator[str]:
        for port, check in sorted(checks.items()):
            if check.of(self._family) is None:
                continue
            why = self._style.comment(f"{check.namespace}/{check.name} health check node port")
            yield said("-p tcp", why, f"-m tcp --dport {port} -j ACCEPT")


def _opens_loopback(family: Family, node: NodeWide) -> bool:
    return family == "ip" and node.localhost


def node_port_matches(family: Family, node: NodeWide) -> Iterator[tuple[str, str]]:
    """Give words that match the addresses that node ports are open on: before and after those of the protocol."""
    open_loopback = _opens_loopback(family, node)
    if node.node_port_ips is None:
        yield "" if open_loopback else f"! -d {_LOOPBACK[family]}", "-m addrtype --dst-type LOCAL"
        return
    for address in node.node_port_ips:
        yield f"-d {address_text(address)}/{len(address) * 8}", ""
    if open_loopback:
        yield f"-d {_LOOPBACK[family]}", ""


def _endpoints(_ref: ObjectRef, ports: tuple[ServicePort, ...]) -> list[str]:
    """Name the total once for each endpoint."""
    return [_TOTAL] * sum(len(port.cluster or port.local) for port in ports)


def _in_order(rows: Table[Any, Rules]) -> Rules:
    return tuple(words for _, rules in sorted(rows.items()) for words in rules)


def _by_target(rows: Table[Any, Rules]) -> Rules:
    """Give rules that lead on, backwards by the names that they lead to.

    iptables-nft-restore keeps the names that it met in order and looks for each from the front: so it finds its place
    at once, where in any other order 10,000 rules take it a second.
    """
    ordered = sorted(rows.items(), key=lambda row: (row[1][0].rpartition(" ")[2], row[0]), reverse=True)
    return tuple(words for _, rules in ordered for words in rules)
