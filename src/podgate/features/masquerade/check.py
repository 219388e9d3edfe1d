"""check: what is valid, and probably not what the user wants.

Here: ranges that the list forgets, entries that change nothing, rules of others that undo it; as Problem values.
Not here: what makes a configuration invalid (reading.py), reading objects and live rules.
Invariant: a finding names what would be lost or what to remove, and what to write instead.
"""

from collections.abc import Iterable, Iterator, Sequence
from ipaddress import IPv4Network, ip_network
from itertools import chain
from typing import Final

from podgate.features.masquerade.check_policies import policy_findings
from podgate.features.masquerade.config import LINK_LOCAL
from podgate.features.masquerade.foreign import competing
from podgate.features.masquerade.intent import FamilyIntent, Intent
from podgate.features.masquerade.own_pods import from_node, from_pod, internal_addresses
from podgate.features.masquerade.prefixes import (
    Entry,
    RuleOrigin,
    Span,
    family_of,
    merged,
    networks_of,
    outside,
    span_of,
)
from podgate.features.masquerade.reading import EMPTY_LIST
from podgate.features.masquerade.settings import DEFAULT_CONFIG
from podgate.joints import ForeignRule, Inputs
from podgate.model.frozen import ObjectRef, file_ref
from podgate.model.kinds.nodes import NODE
from podgate.model.kinds.pods import POD
from podgate.model.machine import Family
from podgate.model.problems import Problem

_MULTICAST: Final = IPv4Network("224.0.0.0/4")
_NAMED: Final = 3
_SUGGESTED: Final = 5


def check(intent: Intent, inputs: Inputs, foreign: Iterable[ForeignRule] = ()) -> tuple[Problem, ...]:
    """Give the findings.

    Args:
        intent: the configuration in force.
        inputs: the objects that tell Pod and node ranges: of all nodes, where they can be had.
        foreign: live rules that are not ours; empty when they were not read.
    """
    findings = [*_empty(intent), *_everything(intent), *_entries(intent), *policy_findings(intent)]
    rules = tuple(foreign)
    for part in intent.families:
        if part.fallback.action != "keep":
            findings += _forgotten(intent, part, inputs)
        findings += competing(rules, part.own_pods, _kept(part), part.family)
    return tuple(findings)


def _kept(part: FamilyIntent) -> Iterable[Span]:
    """Give the destinations that may keep the Pod's address, by the list or by a policy."""
    everything = (Span(0, (1 << (32 if part.family == "ip" else 128)) - 1),)
    keeping = [policy for policy in part.policies if policy.translation.action == "keep"]
    if part.fallback.action == "keep" or any(policy.destinations is None for policy in keeping):
        return everything
    return merged(chain(part.keep, *(policy.destinations or () for policy in keeping)))


def _list_origin(intent: Intent) -> RuleOrigin:
    """Give where the list stands, or would stand."""
    given = intent.config.given
    nearest = given.get("nonMasqueradeCIDRs") or next(iter(given.values()), None)
    if nearest is None:
        return RuleOrigin(file_ref(DEFAULT_CONFIG))
    return nearest if "nonMasqueradeCIDRs" in given else RuleOrigin(nearest.ref)


def _finding(origin: RuleOrigin, reason: str, message: str) -> Problem:
    ref = origin.ref or file_ref(DEFAULT_CONFIG)
    return Problem(ref, "warning", reason, origin.field, message)


def _empty(intent: Intent) -> Iterator[Problem]:
    if not intent.config.entries:
        yield _finding(_list_origin(intent), "EmptyList", EMPTY_LIST)


def _forgotten(intent: Intent, part: FamilyIntent, inputs: Inputs) -> Iterator[Problem]:
    """Compare the list with the ranges of the cluster. It is the same list on all nodes, so this node's count too."""
    keep = tuple(sorted(part.keep))
    origin = _list_origin(intent)
    pods = _lost(_pod_ranges(inputs, part.family), keep)
    if pods:
        what = "these, and their network policies, see a node's address instead of the client Pod's"
        yield _finding(origin, "PodsNotKept", f"not kept: {_named(pods)}; {what}: {_fix(pods, part.family)}")
    nodes = _lost(_node_ranges(inputs, part.family), keep)
    if nodes:
        what = "kubelets and Pods on the host network there see a node's address instead of the client Pod's"
        fix = f"{_fix(nodes, part.family)}, or the nodes' subnet"
        yield _finding(origin, "NodesNotKept", f"not kept: {_named(nodes)}; {what}: {fix}")


def _pod_ranges(inputs: Inputs, family: Family) -> Iterator[tuple[str, Span]]:
    for ref, node in sorted(inputs.objects.objects(NODE).items(), key=lambda item: item[0]):
        for entry in from_node(node)[0]:
            if family_of(entry.network) == family:
                yield f"Pods of {ref.name} ({entry.network})", span_of(entry.network)
    for ref, pod in sorted(inputs.objects.objects(POD).items(), key=lambda item: item[0]):
        if not pod.spec.host_network and not pod.has_ended:
            for entry in from_pod(ref, pod):
                if family_of(entry.network) == family:
                    named = f"{ref.namespace}/{ref.name} ({entry.network.network_address})"
                    yield f"Pod {named}", span_of(entry.network)


def _node_ranges(inputs: Inputs, family: Family) -> Iterator[tuple[str, Span]]:
    for ref, node in sorted(inputs.objects.objects(NODE).items(), key=lambda item: item[0]):
        for address in internal_addresses(node):
            if family_of(address) == family:
                yield f"node {ref.name} ({address})", span_of(ip_network(address))


def _lost(named: Iterable[tuple[str, Span]], keep: Sequence[Span]) -> list[tuple[str, Span]]:
    """Give the part of each range that is not kept; of ranges inside others only the outermost."""
    found: list[tuple[str, Span]] = []
    last = -1
    for name, span in sorted(named, key=lambda item: (item[1].first, -item[1].last)):
        if span.last > last:
            last = span.last
            found += ((name, lost) for lost in outside((span,), keep))
    return found


def _named(lost: Sequence[tuple[str, Span]]) -> str:
    names = list(dict.fromkeys(name for name, _ in lost))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _fix(lost: Sequence[tuple[str, Span]], family: Family) -> str:
    networks = [str(network) for span in merged(span for _, span in lost) for network in networks_of(span, family)]
    more = ", …" if len(networks) > _SUGGESTED else ""
    return f"add {', '.join(networks[:_SUGGESTED])}{more}"


def _everything(intent: Intent) -> Iterator[Problem]:
    """Report entries that keep every destination: then nothing is masqueraded, and Pods reach nobody outside."""
    for entry in intent.config.entries:
        if entry.network.prefixlen == 0 and entry.action == "keep":
            message = (
                f"{entry.network} keeps every destination, so nothing is masqueraded: servers outside the cluster that "
                "have no route to Pods cannot answer; remove it unless the network routes Pods' addresses"
            )
            yield _finding(entry.origin, "NothingMasqueraded", message)


def _entries(intent: Intent) -> Iterator[Problem]:
    """Report entries that change nothing, or say the opposite of another key. Built-in entries are nobody's fault."""
    redundant = _inside_others(intent.config.entries)
    for index, entry in enumerate(intent.config.entries):
        if entry.origin.ref is None:
            continue
        if index in redundant:
            other = redundant[index]
            how = "is given before" if other.network == entry.network else f"lies in {other.network}"
            message = f"{entry.network} {how} ({_place(other.origin, entry.origin.ref)}): remove one of them"
            yield _finding(entry.origin, "Redundant", message)
        elif entry.network.version == 4 and _inside(span_of(entry.network), span_of(_MULTICAST)):
            yield _finding(entry.origin, "Redundant", f"{entry.network} is multicast, never masqueraded: remove it")
        yield from _link_local(intent, entry)


def _link_local(intent: Intent, entry: Entry) -> Iterator[Problem]:
    family = family_of(entry.network)
    range_ = LINK_LOCAL[family]
    key = "masqLinkLocal" if family == "ip" else "masqLinkLocalIPv6"
    ours, theirs = span_of(entry.network), span_of(range_)
    if intent.config.link_local(family) is not None:
        if _inside(ours, theirs):
            message = f"{entry.network} is kept anyway, since {key} is not true: remove the entry"
            yield _finding(entry.origin, "Redundant", message)
    elif key in intent.config.given and (_inside(ours, theirs) or _inside(theirs, ours)):
        message = f"{entry.network} keeps link-local destinations, though {key} is true: the entry counts; remove one"
        yield _finding(entry.origin, "Contradiction", message)


def _inside(inner: Span, outer: Span) -> bool:
    """Whether all of one span lies in the other."""
    return outer.first <= inner.first and inner.last <= outer.last


def _inside_others(entries: Sequence[Entry]) -> dict[int, Entry]:
    """Give, by index, the entry that makes an entry needless: an equal one before it, or one around it."""
    found: dict[int, Entry] = {}
    order = sorted(range(len(entries)), key=lambda i: _sort_key(entries[i]))
    around: list[Entry] = []
    for index in order:
        entry = entries[index]
        while around and not _holds(around[-1], entry):
            around.pop()
        if around and around[-1].action == entry.action:
            found[index] = around[-1]
        else:
            around.append(entry)
    return found


def _sort_key(entry: Entry) -> tuple[int, int, int]:
    first, last = span_of(entry.network)
    return entry.network.version, first, -last


def _holds(outer: Entry, inner: Entry) -> bool:
    same = outer.network.version == inner.network.version
    return same and _inside(span_of(inner.network), span_of(outer.network))


def _place(origin: RuleOrigin, here: ObjectRef | None) -> str:
    if origin.ref == here or origin.ref is None:
        return origin.field or "built in"
    return f"{origin.ref}: {origin.field}"
