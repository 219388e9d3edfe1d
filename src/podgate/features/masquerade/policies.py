"""policies: what a user wrote in a MasqueradePolicy becomes a WrittenPolicy and problems.

Here: fields, types, and what each mistake means; the order of policies. Not here: which Pods a selector finds
(resolving.py), one CIDR's text (cidrs.py), which form is in force when a policy is bad (last_good.py).
Invariant: an error makes the whole policy unusable, since half a policy would decide about other traffic than meant;
all errors of a policy are reported at once. A warning changes nothing.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address
from itertools import chain
from typing import Any, Final

from podgate.features.masquerade.cidrs import CIDR, read_cidr, shown
from podgate.features.masquerade.policy import MasqueradePolicy, policy_ref
from podgate.features.masquerade.ports import (
    NotPorts,
    Ports,
    outside_node_ports,
    ports_text,
    read_ports,
    within_node_ports,
)
from podgate.features.masquerade.prefixes import Action, Entry, RuleOrigin, family_of, span_of
from podgate.features.masquerade.selecting import NotASelector, PodSelection, read_selector
from podgate.model.fieldpath import field_path
from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.machine import Family, IPAddress
from podgate.model.problems import Problem, Severity
from podgate.model.selectors import Selector
from podgate.model.spelling import did_you_mean

ACTIONS: Final[Mapping[str, Action]] = {"Keep": "keep", "Masquerade": "masquerade", "SNAT": "snat"}
_SPEC: Final = ("priority", "from", "to", "outputInterfaces", "action", "snatAddress", "ports")
_FROM: Final = ("cidrs", "namespaceSelector", "podSelector")
_TO: Final = ("cidr", "except")
_PRIORITIES: Final = range(-(1 << 31), 1 << 31)
_INTERFACE_BYTES: Final = 15
"""IFNAMSIZ, without the closing zero."""
_NAME_BYTES: Final = 253
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*", re.ASCII)
"""A DNS-1123 subdomain, which the API asks of names: a file has nobody to ask it."""


class Destination(Frozen, frozen=True):
    """One entry of ``to``: a range, and the ranges in it about which the policy does not decide."""

    entry: Entry
    excepts: tuple[Entry, ...] = ()


class WrittenPolicy(Frozen, frozen=True):
    """A policy that is valid, whatever node it is looked at on.

    Attributes:
        ref: the policy.
        priority: the higher is asked first.
        created: the API's creation time stamp; None while it has none, as in a file.
        action: what it decides.
        snat_address: the new source address, for ``snat`` alone.
        ports: source ports to choose from; empty: what --to-ports says.
        cidrs: sources; empty: any.
        pods: which Pods of a node are its sources; None: not only Pods. With ``cidrs``, both must hold.
        to: destinations; empty: every one.
        interfaces: outgoing interfaces; empty: any.
    """

    ref: ObjectRef
    priority: int = 0
    created: str | None = None
    action: Action = "keep"
    snat_address: IPAddress | None = None
    ports: Ports = ()
    cidrs: tuple[Entry, ...] = ()
    pods: PodSelection | None = None
    to: tuple[Destination, ...] = ()
    interfaces: tuple[str, ...] = ()


class PolicyReading(Frozen, frozen=True):
    """What came of a policy: nothing written when there was an error."""

    written: WrittenPolicy | None
    problems: tuple[Problem, ...] = ()


def in_order(policies: Iterable[WrittenPolicy]) -> tuple[WrittenPolicy, ...]:
    """Sort policies as they are asked: by priority, the higher first; then the older; then by name."""
    return tuple(sorted(policies, key=lambda p: (-p.priority, p.created is None, p.created or "", p.ref.name)))


def read_policy(policy: MasqueradePolicy, families: Sequence[Family]) -> PolicyReading:
    """Read one policy.

    Args:
        policy: the object.
        families: the families that are on.
    """
    reader = _Reader(policy_ref(policy.metadata.name), families)
    written = reader.policy(policy)
    failed = any(problem.severity == "error" for problem in reader.problems)
    return PolicyReading(None if failed else written, tuple(reader.problems))


class _Reader:
    """Reads one policy and collects what is wrong with it."""

    def __init__(self, ref: ObjectRef, families: Sequence[Family]) -> None:
        self._ref = ref
        self._families = families
        self.problems: list[Problem] = []

    def _complain(self, reason: str, message: str, *parts: str | int, severity: Severity = "error") -> None:
        self.problems.append(Problem(self._ref, severity, reason, field_path(("spec", *parts)), message))

    def policy(self, policy: MasqueradePolicy) -> WrittenPolicy:
        """Read the fields. What is wrong has its default; the caller drops the whole if there was an error."""
        self._name(policy.metadata.name)
        spec = self._map(policy.spec, _SPEC)
        action = self._action(spec)
        sources = self._map(spec.get("from"), _FROM, "from")
        written = WrittenPolicy(
            ref=self._ref,
            priority=self._priority(spec),
            created=policy.metadata.creation_timestamp,
            action=action or "keep",
            snat_address=self._snat_address(spec, action),
            ports=self._ports(spec, action),
            cidrs=self._cidrs(sources, "keep", "from", "cidrs"),
            pods=self._pods(sources),
            to=self._to(spec, action or "keep"),
            interfaces=self._interfaces(spec),
        )
        self._one_family(written)
        return written

    def _name(self, name: str) -> None:
        """See that the name is one as the API takes it: it becomes part of names in the kernel."""
        if len(name) <= _NAME_BYTES and _NAME.fullmatch(name):
            return
        fix = f"use small letters, digits, - and ., at most {_NAME_BYTES} characters, as lowercase.example"
        message = f"{shown(name)} is no name of an object: {fix}"
        self.problems.append(Problem(self._ref, "error", "InvalidName", "metadata.name", message))

    def _map(self, value: Any, known: Sequence[str], *parts: str | int) -> Mapping[str, Any]:
        """Give a map of known keys; an absent one is empty. An unknown key is an error: what it meant is lost."""
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self._complain("WrongType", f"{shown(value)} is not a map: write {', '.join(known)} below it", *parts)
            return {}
        for key in value:
            if key not in known:
                guess = did_you_mean(key, known) or f"; known are {', '.join(known)}"
                self._complain("UnknownKey", f"unknown field{guess}: correct or remove it", *parts, key)
        return value

    def _list(self, value: Mapping[str, Any], key: str, *parts: str | int, each: str) -> Sequence[Any]:
        """Give a list; an absent one is empty. An empty one that was written is an error: it could mean all or none."""
        found = value.get(key)
        if found is None:
            return ()
        if not isinstance(found, list | tuple):
            self._complain("WrongType", f"{shown(found)} is not a list: write {each} as list items", *parts, key)
            return ()
        if not found:
            message = f"the list is empty, which could mean all or none: name {each}, or remove the field for all"
            self._complain("EmptyList", message, *parts, key)
        return found

    def _action(self, spec: Mapping[str, Any]) -> Action | None:
        given = spec.get("action")
        if given is None:
            self._complain("Missing", "action is missing: write Keep, Masquerade or SNAT", "action")
        elif not isinstance(given, str) or given not in ACTIONS:
            guess = did_you_mean(given, ACTIONS) if isinstance(given, str) else ""
            self._complain("InvalidAction", f"{shown(given)} is none{guess}: write Keep, Masquerade or SNAT", "action")
        else:
            return ACTIONS[given]
        return None

    def _priority(self, spec: Mapping[str, Any]) -> int:
        given = spec.get("priority", 0)
        if isinstance(given, bool) or not isinstance(given, int) or given not in _PRIORITIES:
            message = f"{shown(given)} is not a whole number of 32 bits: write one, as 100"
            self._complain("WrongType", message, "priority")
            return 0
        return given

    def _snat_address(self, spec: Mapping[str, Any], action: Action | None) -> IPAddress | None:
        given = spec.get("snatAddress")
        if given is None:
            if action == "snat":
                self._complain("Missing", "SNAT needs an address: write the node's, as 192.0.2.10", "snatAddress")
            return None
        if action not in ("snat", None):
            fix = "write action: SNAT, or remove this field"
            self._complain("Contradiction", f"only SNAT takes an address: {fix}", "snatAddress")
        try:
            address = ip_address(given if isinstance(given, str) else "")
        except ValueError:
            self._complain(
                "InvalidAddress", f"{shown(given)} is not an address: write one, as 192.0.2.10", "snatAddress"
            )
            return None
        why = _unusable(address, self._families)
        if why:
            self._complain("InvalidAddress" if "IPv6" not in why else "IPv6Disabled", f'"{given}" {why}', "snatAddress")
        return address

    def _ports(self, spec: Mapping[str, Any], action: Action | None) -> Ports:
        given = spec.get("ports")
        if given is None:
            return ()
        if action == "keep":
            message = "Keep leaves the source port as it is: remove this field, or write another action"
            self._complain("Contradiction", message, "ports")
        if not isinstance(given, str) or not given:
            self._complain("InvalidPorts", f'{shown(given)} is no text of ranges: write "1024-29999"', "ports")
            return ()
        try:
            ports = read_ports(given)
        except NotPorts as error:
            self._complain("InvalidPorts", f"{shown(given)}: {error}", "ports")
            return ()
        message = node_port_warning(ports)
        if message:
            self._complain("NodePortOverlap", message, "ports", severity="warning")
        return ports

    def _cidrs(self, value: Mapping[str, Any], action: Action, *parts: str | int) -> tuple[Entry, ...]:
        *above, key = parts
        items = self._list(value, str(key), *above, each="CIDRs")
        found = (self._cidr(item, action, *parts, index) for index, item in enumerate(items))
        return tuple(entry for entry in found if entry is not None)

    def _cidr(self, item: Any, action: Action, *parts: str | int) -> Entry | None:
        cidr = read_cidr(item, self._families)
        if not isinstance(cidr, CIDR):
            self._complain(cidr.reason, cidr.message, *parts)
            return None
        if cidr.warning is not None:
            self._complain(cidr.warning.reason, cidr.warning.message, *parts, severity="warning")
        return Entry(cidr.network, action, RuleOrigin(self._ref, field_path(("spec", *parts))))

    def _pods(self, sources: Mapping[str, Any]) -> PodSelection | None:
        found: dict[str, Selector | None] = {}
        for key in ("podSelector", "namespaceSelector"):
            try:
                found[key] = None if sources.get(key) is None else read_selector(sources[key])
            except NotASelector as error:
                self._complain("InvalidSelector", str(error), "from", key, *error.parts)
                found[key] = None
        if sources.get("podSelector") is None and sources.get("namespaceSelector") is None:
            return None
        return PodSelection(found["podSelector"] or (), found["namespaceSelector"] or ())

    def _to(self, spec: Mapping[str, Any], action: Action) -> tuple[Destination, ...]:
        items = self._list(spec, "to", each="entries with a cidr")
        return tuple(
            destination
            for index, item in enumerate(items)
            if (destination := self._destination(item, action, index)) is not None
        )

    def _destination(self, item: Any, action: Action, index: int) -> Destination | None:
        if not isinstance(item, Mapping):
            hint = f'write "- cidr: {item}"' if isinstance(item, str) else 'write "- cidr: 10.0.0.0/8"'
            self._complain("WrongType", f"{shown(item)} is not an entry: {hint}", "to", index)
            return None
        self._map(item, _TO, "to", index)
        if item.get("cidr") is None:
            self._complain("Missing", 'the entry has no cidr: write "cidr: 10.0.0.0/8"', "to", index, "cidr")
            return None
        entry = self._cidr(item["cidr"], action, "to", index, "cidr")
        excepts = self._cidrs(item, action, "to", index, "except")
        if entry is None:
            return None
        for position, inner in enumerate(excepts):
            if not _within(inner, entry):
                message = f"{inner.network} is not a part of {entry.network}: write a smaller range in it, or remove it"
                self._complain("ExceptOutside", message, "to", index, "except", position)
        return Destination(entry, excepts)

    def _interfaces(self, spec: Mapping[str, Any]) -> tuple[str, ...]:
        found: list[str] = []
        for index, name in enumerate(self._list(spec, "outputInterfaces", each="interfaces")):
            why = _not_an_interface(name)
            if why:
                self._complain("InvalidInterface", f"{shown(name)} {why}", "outputInterfaces", index)
            else:
                found.append(name)
        return tuple(dict.fromkeys(found))

    def _one_family(self, written: WrittenPolicy) -> None:
        """See that a policy with one address is about one family: a packet cannot get an address of the other."""
        if written.snat_address is None:
            return
        entries = (*written.cidrs, *chain.from_iterable((each.entry, *each.excepts) for each in written.to))
        for entry in entries:
            if entry.network.version != written.snat_address.version:
                message = f"{entry.network} cannot get {written.snat_address}, which is of the other family"
                fix = "write a policy of its own for it"
                self.problems.append(
                    Problem(self._ref, "error", "TwoFamilies", entry.origin.field, f"{message}: {fix}")
                )


def node_port_warning(ports: Ports) -> str:
    """Give the complaint about ports that may be NodePorts; empty when none may be."""
    shared = within_node_ports(ports)
    if not shared:
        return ""
    without = ports_text(outside_node_ports(ports))
    fix = f'write "{without}"' if without else "choose others, as 1024-29999,32768-65535"
    why = "a reply to such a port can be taken for a call to a Service, and the connection hangs"
    return f"{ports_text(shared)} may be NodePorts (30000-32767); {why}: {fix}"


def _unusable(address: IPAddress, families: Sequence[Family]) -> str:
    if family_of(address) not in families:
        return "is IPv6, and IPv6 is off: start podgate with --enable-ipv6, or write an IPv4 address"
    if getattr(address, "scope_id", None):
        return "has a zone: write the address without it"
    if address.is_unspecified or address.is_loopback or address.is_multicast:
        return "can be no packet's source on a network: write an address of the node"
    return ""


def _within(inner: Entry, outer: Entry) -> bool:
    if inner.network.version != outer.network.version or inner.network.prefixlen <= outer.network.prefixlen:
        return False
    (first, last), (low, high) = span_of(inner.network), span_of(outer.network)
    return low <= first and last <= high


def _not_an_interface(name: Any) -> str:
    if not isinstance(name, str):
        return 'is no name: write one, as "eth0"'
    plain = name.removesuffix("*")
    if not plain:
        return "names every interface: remove the field for that"
    if len(name.encode()) > _INTERFACE_BYTES:
        return f"is longer than an interface's name can be ({_INTERFACE_BYTES} bytes): correct it"
    if plain in {".", ".."} or any(each.isspace() or each in "/:*\"'\\" or not each.isprintable() for each in plain):
        return 'can be no interface\'s name: write one, as "eth0", or "eth*" for all that begin so'
    return ""
