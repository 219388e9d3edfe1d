"""intent: what is wanted on this node, free of any back end.

Here: the values: the filter, and the node's rules. Not here: how they come about (compile.py), what they become
(to_nftables.py and the server).
Invariant: while the proxy does not listen, whatever would be redirected to it is refused, never let through.
"""

from typing import Literal

from msgspec.structs import replace

from podgate.features.metadata.filter import Filter
from podgate.model.frozen import Frozen

Backend = Literal["nftables", "iptables"]
"""What the redirect is written to; refusals are nftables' always."""


class Redirect(Frozen, frozen=True):
    """TCP to an address and port goes to another (DNAT in PREROUTING)."""

    address: str
    port: int
    to_address: str
    to_port: int


class RefusedPorts(Frozen, frozen=True):
    """TCP to an address is refused on some ports; without ports on all. The address may be of either family."""

    address: str
    ports: tuple[int, ...] = ()


class NodeRules(Frozen, frozen=True):
    """The node's rules. They are about what Pods send, so about packets that do not come in by an uplink.

    Attributes:
        phase: ``none``: no rule at all, ``why`` says it; ``closed``: what would be redirected is refused;
            ``open``: it is redirected.
        why: why there are no rules.
        local_address: the address on lo, of scope host, that packets are redirected to.
        redirects: of the metadata server's ports.
        refusals: what Pods never reach.
        spoofed: addresses that no process of this node may send from, as packets to the guest agent would be.
        uplinks: devices whose incoming packets are left alone.
        node_users: the first and the last user whose processes on the node itself reach the server; None for all.
    """

    phase: Literal["none", "closed", "open"] = "none"
    why: str = ""
    local_address: str = ""
    redirects: tuple[Redirect, ...] = ()
    refusals: tuple[RefusedPorts, ...] = ()
    spoofed: tuple[str, ...] = ()
    uplinks: tuple[str, ...] = ()
    node_users: tuple[int, int] | None = None


def closed(rules: NodeRules) -> NodeRules:
    """Give the rules for the time when nobody listens: a refusal in the place of each redirect."""
    if rules.phase == "none":
        return rules
    ports: dict[str, tuple[int, ...]] = {}
    for redirect in rules.redirects:
        ports[redirect.address] = (*ports.get(redirect.address, ()), redirect.port)
    instead = tuple(RefusedPorts(address, numbers) for address, numbers in ports.items())
    return replace(rules, phase="closed", redirects=(), refusals=(*instead, *rules.refusals))


def rule_lines(rules: NodeRules) -> list[str]:
    """Say the rules for people, one per line."""
    if rules.phase == "none":
        return [f"none: {rules.why}"]
    lines = [f"address {rules.local_address} on lo"]
    lines += [f"redirect {each.address}:{each.port} to {each.to_address}:{each.to_port}" for each in rules.redirects]
    lines += [f"refuse {each.address} {' '.join(map(str, each.ports)) or 'all ports'}" for each in rules.refusals]
    lines += [f"drop packets sent from {address}" for address in rules.spoofed]
    if rules.node_users is not None:
        lines.append("refuse the node's own processes but those of users {}-{}".format(*rules.node_users))
    return [*lines, f"but not from {' '.join(rules.uplinks) or 'nowhere'}"]


class Intent(Frozen, frozen=True):
    """What is wanted on this node.

    Attributes:
        node_name: which node it is.
        filter: what the proxy decides with.
        rules: the node's rules, for when the proxy listens; ``closed`` gives those for before.
        allow_from: who else may connect directly, as CIDRs.
    """

    node_name: str = ""
    filter: Filter = Filter()
    rules: NodeRules = NodeRules()
    allow_from: tuple[str, ...] = ()
