"""resolving: what policies mean on this node, one family at a time.

Here: the addresses of the Pods that selectors find, destinations without their exceptions, an SNAT address that the
node lacks. Not here: what a user wrote (policies.py), the order of decision (deciding.py).
Invariant: with memory or without, equal inputs give equal intents; a Pod that comes or goes changes only the sources of
policies that select it, and of those tables only the shard of its address.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from podgate.features.masquerade.families import updated
from podgate.features.masquerade.intent import NodeFacts, PolicyIntent, Spans, Translation
from podgate.features.masquerade.own_pods import from_pod, is_own
from podgate.features.masquerade.policies import WrittenPolicy
from podgate.features.masquerade.ports import Ports
from podgate.features.masquerade.prefixes import Entry, Interval, Span, family_of, find, merged, resolve
from podgate.features.masquerade.selecting import Labelled, PodSelection
from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.kinds.config import NAMESPACE, Namespace
from podgate.model.kinds.pods import Pod
from podgate.model.machine import Family
from podgate.model.problems import Problem
from podgate.model.remembering import Remembered
from podgate.model.table import Table, grouped, mapped

NamespaceLabels = Mapping[str, Mapping[str, str]]


class NodeView(NamedTuple):
    """Where policies are resolved: a node, with the objects that a source gave.

    ``pods`` may hold those of other nodes too; ``facts`` are those of all families.
    """

    node_name: str
    pods: Table[ObjectRef, Pod]
    namespaces: Table[ObjectRef, Namespace]
    facts: NodeFacts


class SelectedPod(Frozen, frozen=True):
    """A Pod of this node that policies select: its addresses, and the policies."""

    addresses: tuple[Entry, ...]
    policies: tuple[ObjectRef, ...]


class Resolver:
    """Resolves policies for one node, again and again."""

    def __init__(self, families: Sequence[Family]) -> None:
        self._families = families
        self._selecting = Remembered(_selecting)
        self._by_policy: grouped[ObjectRef, ObjectRef, SelectedPod] = grouped(lambda _ref, member: member.policies)
        self._resolved: dict[tuple[Family, ObjectRef], _Resolved] = {}

    def __call__(
        self, policies: tuple[WrittenPolicy, ...], view: NodeView, ports: Ports
    ) -> Mapping[Family, tuple[PolicyIntent, ...]]:
        """Give the policies of each family, in the order given.

        Args:
            policies: in their order.
            view: the node.
            ports: for translations of policies that name none.
        """
        selections = {policy.ref: policy.pods for policy in policies if policy.pods is not None}
        labels = _labels(selections.values(), view.namespaces)
        members = self._by_policy(self._selecting(selections, labels, view.node_name)(view.pods))
        found: dict[Family, tuple[PolicyIntent, ...]] = {}
        kept: dict[tuple[Family, ObjectRef], _Resolved] = {}
        for family in self._families:
            local = frozenset(address for address in view.facts.local if family_of(address) == family)
            resolved: list[PolicyIntent] = []
            for policy in policies:
                if not _concerns(policy, family):
                    continue
                known = kept[family, policy.ref] = self._resolved.get((family, policy.ref)) or _Resolved(family)
                there = policy.snat_address in local
                resolved.append(known(policy, members.get(policy.ref, {}), ports, there))
            found[family] = tuple(resolved)
        self._resolved = kept
        return found


def _concerns(policy: WrittenPolicy, family: Family) -> bool:
    """Whether a policy can decide about any packet of a family, on whatever node."""
    if policy.snat_address is not None and family_of(policy.snat_address) != family:
        return False
    ranges = (policy.cidrs, tuple(each.entry for each in policy.to))
    return all(not entries or any(family_of(entry.network) == family for entry in entries) for entries in ranges)


def _labels(selections: Iterable[PodSelection], namespaces: Table[ObjectRef, Namespace]) -> NamespaceLabels:
    """Give the labels of namespaces, if any policy looks at them."""
    if not any(selection.namespaces for selection in selections):
        return {}
    return {ref.name: namespace.metadata.labels for ref, namespace in namespaces.items()}


def labelled(ref: ObjectRef, pod: Pod, namespaces: NamespaceLabels) -> Labelled:
    """Give a Pod as selectors see it."""
    return Labelled(pod.metadata.labels, ref.namespace, namespaces.get(ref.namespace, {}))


def namespace_labels(namespaces: Table[ObjectRef, Namespace], name: str) -> Mapping[str, str]:
    """Give the labels of one namespace; one that is not known has none."""
    found = namespaces.get(ObjectRef(NAMESPACE.kind, name))
    return {} if found is None else found.metadata.labels


def _selecting(
    selections: Mapping[ObjectRef, PodSelection], labels: NamespaceLabels, node_name: str
) -> mapped[ObjectRef, Pod, SelectedPod]:
    def member(ref: ObjectRef, pod: Pod) -> SelectedPod | None:
        if not selections or not is_own(pod, node_name):
            return None
        seen = labelled(ref, pod, labels)
        policies = tuple(policy for policy, selection in selections.items() if selection.selects(seen))
        return SelectedPod(from_pod(ref, pod), policies) if policies else None

    return mapped(member)


class _Resolved:
    """One policy in one family; remembers what it gave last."""

    def __init__(self, family: Family) -> None:
        self._family: Family = family
        self._destinations = Remembered(_destinations)
        self._sources = Remembered(_sources)
        self._made = Remembered(self._make)
        self._last: PolicyIntent | None = None

    def __call__(
        self, policy: WrittenPolicy, members: Mapping[ObjectRef, SelectedPod], ports: Ports, has_address: bool
    ) -> PolicyIntent:
        self._last = self._made(
            policy,
            self._sources(policy.cidrs, policy.pods is not None, members, self._family),
            self._destinations(policy.to, self._family),
            ports,
            has_address,
        )
        return self._last

    def _make(
        self,
        policy: WrittenPolicy,
        sources: tuple[Interval, ...] | None,
        destinations: tuple[Interval, ...] | None,
        ports: Ports,
        has_address: bool,
    ) -> PolicyIntent:
        before = self._last
        return PolicyIntent(
            ref=policy.ref,
            priority=policy.priority,
            translation=_translation(policy, ports, has_address),
            sources=_spans(
                None if before is None else before.sources,
                None if sources is None else tuple(Span(low, high) for low, high, _ in sources),
                merge=policy.pods is None,
            ),
            pods=policy.pods,
            destinations=_spans(
                None if before is None else before.destinations,
                None if destinations is None else tuple(Span(low, high) for low, high, _ in destinations),
                merge=True,
            ),
            interfaces=policy.interfaces,
            cidrs=_of(policy.cidrs, self._family),
            source_intervals=sources or (),
            destination_intervals=destinations or (),
        )


def _translation(policy: WrittenPolicy, ports: Ports, has_address: bool) -> Translation:
    if policy.action == "keep":
        return Translation("keep")
    if policy.action == "snat" and has_address:
        return Translation("snat", policy.snat_address, policy.ports or ports)
    return Translation("masquerade", None, policy.ports or ports)


def _spans(before: Spans | None, spans: tuple[Span, ...] | None, *, merge: bool) -> Spans | None:
    if spans is None:
        return None
    return updated(Spans() if before is None else before, merged(spans) if merge else spans)


def _of(entries: Iterable[Entry], family: Family) -> tuple[Entry, ...]:
    return tuple(entry for entry in entries if family_of(entry.network) == family)


def _sources(
    cidrs: tuple[Entry, ...], by_pods: bool, members: Mapping[ObjectRef, SelectedPod], family: Family
) -> tuple[Interval, ...] | None:
    written = resolve(_of(cidrs, family))
    if not by_pods:
        return written if cidrs else None
    found = _addresses(members, family)
    return tuple(each for each in found if find(written, each.first) is not None) if cidrs else found


def _addresses(members: Mapping[ObjectRef, SelectedPod], family: Family) -> tuple[Interval, ...]:
    """Give the addresses of Pods; of two Pods with one address, while one is going, the first by name is named."""
    found: dict[int, tuple[ObjectRef, Entry]] = {}
    for ref, member in members.items():
        for entry in member.addresses:
            if family_of(entry.network) == family:
                number = int(entry.network.network_address)
                if number not in found or ref < found[number][0]:
                    found[number] = (ref, entry)
    return tuple(Interval(number, number, found[number][1]) for number in sorted(found))


def _destinations(to: tuple[Any, ...], family: Family) -> tuple[Interval, ...] | None:
    """Give the ranges that a policy decides about: each address by the longest prefix that holds it.

    Of a cidr and an except of equal length the cidr counts, so all of these come first.
    """
    if not to:
        return None
    excepts = _of(chain.from_iterable(each.excepts for each in to), family)
    cidrs = _of((each.entry for each in to), family)
    left_out = frozenset(excepts)
    return tuple(each for each in resolve((*cidrs, *excepts)) if each.entry not in left_out)


def missing_addresses(policies: Iterable[WrittenPolicy], facts: NodeFacts, node_name: str) -> tuple[Problem, ...]:
    """Complain about SNAT addresses that this node does not have; masquerading stands in."""
    return tuple(
        Problem(
            policy.ref,
            "warning",
            "SnatAddressMissing",
            "spec.snatAddress",
            f'"{policy.snat_address}" is no address of {node_name or "this node"}, so that it masquerades instead: '
            "add the address to an interface of the node, or correct it",
        )
        for policy in policies
        if policy.snat_address is not None and policy.snat_address not in facts.local
    )
