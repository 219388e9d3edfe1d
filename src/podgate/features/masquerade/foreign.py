"""foreign: whether a rule of somebody else translates what we keep.

Here: judging one rule by its text, in the form of nft or of iptables-save. Not here: reading the live rules.
Invariant: a rule is reported unless something in it shows that it does not meet our Pods' packets: every nat chain at
the hook runs, so a foreign MASQUERADE wins over our decision to keep.
"""

import re
from collections.abc import Iterable, Sequence
from ipaddress import ip_network
from typing import Final

from podgate.features.masquerade.prefixes import Span, family_of, outside, span_of
from podgate.joints import ForeignRule
from podgate.model.frozen import ObjectRef
from podgate.model.machine import Family
from podgate.model.problems import Problem

_TRANSLATES: Final = re.compile(r"\b(?:masquerade|snat)\b", re.IGNORECASE)
_COMMENT: Final = re.compile(r'(?:-m comment )?(?:--comment|\bcomment) (?:"(?:[^"\\]|\\.)*"|\S+)')
_MARKED: Final = re.compile(r"(?:--mark\b|\b(?:meta|ct) mark\b(?! set)|\bmatch \"mark\")")
_OWN_SOCKETS: Final = re.compile(r"--src-type LOCAL\b|\bfib saddr type local\b")
_CIDRS: Final = r"(?P<not>!=? ?)?(?P<set>\{[^}]*\}|[0-9a-fA-F:.]+(?:/[0-9.]+)?)"
_SOURCE: Final = re.compile(rf"(?:(?P<before>! )?(?:-s|--source) |\bip6? saddr ){_CIDRS}")
_DESTINATION: Final = re.compile(rf"(?:(?P<before>! )?(?:-d|--destination) |\bip6? daddr ){_CIDRS}")

_HARMLESS_CHAINS: Final = frozenset({"KUBE-POSTROUTING"})
"""Chains that return at once unless kube-proxy or a kubelet marked the packet."""
_HARMLESS_TABLES: Final = ("kube-proxy", "podgate-")

_KNOWN: Final = (
    ("IP-MASQ-AGENT", "ip-masq-agent", "remove its DaemonSet and its rules"),
    ("IP-MASQ", "GKE's boot script or ip-masq-agent", "remove that chain and its jump"),
    ("FLANNEL", "flannel", "run flanneld without --ip-masq"),
    ("flannel", "flannel", "run flanneld without --ip-masq"),
    ("OPENSHIFT-MASQUERADE", "OpenShift's network plugin", "turn its masquerading off"),
    ("cali-nat-outgoing", "Calico", "set natOutgoing: false on its IPPools"),
    ("CILIUM_", "Cilium", "set enable-ipv4-masquerade to false"),
    ("AWS-SNAT", "the AWS network plugin", "set AWS_VPC_K8S_CNI_EXTERNALSNAT=true"),
    ("cni_plugins_masquerade", "a network plugin with ipMasq", 'set "ipMasq": false in its configuration'),
    ("CNI-", "a network plugin with ipMasq", 'set "ipMasq": false in its configuration'),
)


def competing(
    rules: Iterable[ForeignRule], own_pods: Iterable[Span], kept: Iterable[Span], family: Family
) -> tuple[Problem, ...]:
    """Give a problem for each rule that may translate packets of our Pods which we keep.

    Args:
        rules: rules of other tables at the hook, or reached from it.
        own_pods: addresses of this node's Pods; empty when they are not known.
        kept: destinations that keep the Pod's address.
        family: the family of both.
    """
    pods, destinations = tuple(sorted(own_pods)), tuple(sorted(kept))
    return tuple(_problem(rule) for rule in rules if _competes(rule, pods, destinations, family))


def _competes(rule: ForeignRule, pods: Sequence[Span], kept: Sequence[Span], family: Family) -> bool:
    text = _COMMENT.sub("", rule.text)
    if not _TRANSLATES.search(text) or rule.chain in _HARMLESS_CHAINS:
        return False
    words = rule.table.split()
    if words[-1].startswith(_HARMLESS_TABLES) or words[0] in ({"ip", "ip6"} - {family}):
        return False
    if _MARKED.search(text) or _OWN_SOCKETS.search(text):
        return False
    sources, destinations = _ranges(_SOURCE, text, family), _ranges(_DESTINATION, text, family)
    if sources is not None and sources == destinations and all(span.first == span.last for span in sources):
        return False  # a Pod that reaches itself through its Service
    if sources is not None and pods and not _meet(sources, pods):
        return False
    return destinations is None or _meet(destinations, (*kept, *pods))


def _ranges(pattern: re.Pattern[str], text: str, family: Family) -> tuple[Span, ...] | None:
    """Give the ranges that a rule is limited to; None when it is not, or not in a way that can be told."""
    found = pattern.search(text)
    if found is None or found["before"] or found["not"]:
        return None
    spans: list[Span] = []
    for part in found["set"].strip("{}").split(","):
        try:
            network = ip_network(part.strip(), strict=False)
        except ValueError:
            return None
        if family_of(network) == family:
            spans.append(span_of(network))
    return tuple(sorted(spans))


def _meet(some: Iterable[Span], others: Iterable[Span]) -> bool:
    spans, limits = tuple(some), tuple(sorted(others))
    return any(outside((span,), limits) != (span,) for span in spans)


def _problem(rule: ForeignRule) -> Problem:
    who, fix = next(
        ((name, how) for prefix, name, how in _KNOWN if rule.chain.startswith(prefix) or prefix in rule.table),
        ("another program", "remove it, or limit it to other sources"),
    )
    message = f'"{rule.text}" also translates what is kept here (it looks like {who}): {fix}'
    return Problem(ObjectRef("Rule", f"{rule.table} {rule.chain}"), "warning", "CompetingMasquerade", "", message)
