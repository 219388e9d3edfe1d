"""to_nftables: the node's rules as nftables tables: what is refused, and apart from it what is redirected.

Here: the rules, their order and their comments. Not here: what is refused and why (node_rules.py), in which order the
tables are made (server/node.py).
Invariant: the table of refusals alone lets no Pod through: it catches whatever is still addressed to the metadata
server, or comes from it, when the node forwards it. So the redirect may come and go, and a connection from before it
is cut, in both directions.

A redirected packet is never forwarded: it goes to the node itself. So the refusals need not be taken away for the
redirect, which is one table, made or removed in one transaction.

A reset in the metadata server's name would be dropped on the way out by the rule of GCE's boot script against forged
packets. So new connections to it are refused at the local address: they are sent there, and rejected on arrival.
"""

from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from typing import Final

from podgate.features.metadata.intent import Backend, NodeRules, RefusedPorts, closed
from podgate.model.machine import Family
from podgate.targets.nftables.state import DSTNAT, Chain, Hook, Rule, State

TABLE: Final = "podgate-metadata"
REDIRECT_TABLE: Final = "podgate-metadata-redirect"
MANGLE: Final = -150
"""Before filters, whose tables network policy agents write; nft calls it ``mangle``."""
FIRST_DSTNAT: Final = DSTNAT - 5
"""Before other programs' destination NAT: of several chains the first that translates wins."""

REFUSING_DSTNAT: Final = {"nftables": FIRST_DSTNAT + 1, "iptables": DSTNAT + 1}
"""After the redirect by either back end, before all others where that can be."""

_LEGEND: Final = "made by podgate metadata; remove it with: podgate metadata clean"


def refusals_table(rules: NodeRules, family: Family, redirect: Backend = "nftables") -> State:
    """Give the table of one family that refuses; absent where there are no rules.

    Args:
        rules: what is wanted.
        family: ``ip`` or ``ip6``.
        redirect: the back end that redirects.
    """
    if rules.phase == "none":
        return State.absent(family, TABLE)
    shut = closed(rules)
    refused = [each for each in shut.refusals if _family(each.address) == family]
    forwarded = [Rule(_refusing(family, each), f"no Pod reaches {_shown(each)} directly") for each in refused]
    forward = (*_answers(rules, refused, family), *_not_of_pods(rules), *forwarded)
    chains = [Chain("forward", forward, Hook("filter", "forward", MANGLE))]
    away = tuple(_sent_away(rules, refused, family))
    if away:
        hook = Hook("nat", "prerouting", REFUSING_DSTNAT[redirect])
        chains.append(Chain("prerouting", (*_not_of_pods(rules), *away), hook))
    if family == _family(rules.local_address):
        chains.append(Chain("input", tuple(_input(rules, family)), Hook("filter", "input", MANGLE)))
    output = (*_output(rules, family), *_others_on_the_node(rules, refused, family))
    if output:
        chains.append(Chain("output", output, Hook("filter", "output", MANGLE)))
    return State(family, TABLE, comment=_LEGEND, chains=tuple(chains))


def redirect_table(rules: NodeRules) -> State:
    """Give the table that redirects; absent unless the rules are open."""
    if rules.phase != "open":
        return State.absent("ip", REDIRECT_TABLE)
    translating = (
        Rule(
            f"ip daddr {each.address} tcp dport {each.port} dnat to {each.to_address}:{each.to_port}",
            f"what Pods send to {each.address}:{each.port} goes to podgate",
        )
        for each in rules.redirects
    )
    chain = Chain("prerouting", (*_not_of_pods(rules), *translating), Hook("nat", "prerouting", FIRST_DSTNAT))
    return State("ip", REDIRECT_TABLE, comment=_LEGEND, chains=(chain,))


def _not_of_pods(rules: NodeRules) -> Iterator[Rule]:
    yield Rule(f"iifname {_not_pods(rules)} return", "not sent by a Pod of this node")


def _answers(rules: NodeRules, refused: Iterable[RefusedPorts], family: Family) -> Iterator[Rule]:
    """Give the rules for what Pods asked before there were rules: a long poll is answered without another packet."""
    for each in refused:
        if each.ports:
            ports = _one_or_set(map(str, each.ports))
            yield Rule(
                f"oifname != {_not_pods(rules)} {family} saddr {each.address} tcp sport {ports} reject with tcp reset",
                f"no answer of {_shown(each)} reaches a Pod directly",
            )


def _not_pods(rules: NodeRules) -> str:
    names = ", ".join(f'"{name}"' for name in ("lo", *rules.uplinks))
    return f"{{ {names} }}"


def _sent_away(rules: NodeRules, refused: Iterable[RefusedPorts], family: Family) -> Iterator[Rule]:
    for each in refused:
        if each.address in rules.spoofed and each.ports:
            yield Rule(
                f"{family} daddr {each.address} tcp dport {_one_or_set(map(str, each.ports))} "
                f"dnat to {rules.local_address}",
                f"{_shown(each)}: refused at {rules.local_address}",
            )


def _input(rules: NodeRules, family: Family) -> Iterator[Rule]:
    """Give the rules for the address on lo: only redirected packets may come from Pods."""
    yield from _not_of_pods(rules)
    origins = sorted({each.address for each in rules.redirects})
    ports = sorted({each.to_port for each in rules.redirects})
    if origins:
        yield Rule(
            f"{family} daddr {rules.local_address} tcp dport {_one_or_set(map(str, ports))} "
            f"ct original {family} daddr {_one_or_set(origins)} return",
            "redirected by podgate",
        )
    yield Rule(
        f"{family} daddr {rules.local_address} meta l4proto tcp reject with tcp reset",
        f"no Pod reaches {rules.local_address} but by a redirect",
    )


def _output(rules: NodeRules, family: Family) -> Iterator[Rule]:
    """Give the rules against packets that pretend to be the metadata server's (GKE's fix of 2020, for its guest agent).

    A refusal answers in the server's name: the kernel ties that reset to the refused connection, as related to it. A
    forged segment belongs to the guest agent's own connection instead, or to none.
    """
    for address in (each for each in rules.spoofed if _family(each) == family):
        yield Rule(f"{family} saddr {address} tcp flags & rst == rst ct state related return", "our refusals")
        yield Rule(f"{family} saddr {address} drop", f"nobody on this node sends as {address}")


def _others_on_the_node(rules: NodeRules, refused: Iterable[RefusedPorts], family: Family) -> Iterator[Rule]:
    if rules.node_users is None:
        return
    first, last = rules.node_users
    for each in refused:
        if each.address != rules.local_address:
            match = f"meta skuid != {first}-{last} {_refusing(family, each)}"
            yield Rule(match, f"on the node itself users {first} to {last} alone reach {_shown(each)}")


def _refusing(family: Family, refusal: RefusedPorts) -> str:
    ports = f"tcp dport {_one_or_set(map(str, refusal.ports))}" if refusal.ports else "meta l4proto tcp"
    return f"{family} daddr {refusal.address} {ports} reject with tcp reset"


def _shown(refusal: RefusedPorts) -> str:
    return f"{refusal.address} port {', '.join(map(str, refusal.ports))}" if refusal.ports else refusal.address


def _one_or_set(words: Iterable[str]) -> str:
    found = list(words)
    return found[0] if len(found) == 1 else "{ " + ", ".join(found) + " }"


def _family(address: str) -> Family:
    return "ip" if ip_address(address).version == 4 else "ip6"
