"""diagnosis: what doctor's observations mean for the Pods of a node. Pure.

Here: from objects, differences, rules and answers to findings, each with what to do. Not here: looking
(server/doctor.py), what a rule should be (node_rules.py).
Invariant: what was not seen is ``unknown``, and says how it could be seen.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address, ip_network
from typing import Final

from podgate.commandline.findings import Finding
from podgate.features.metadata.node_rules import READY_LABEL
from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.kinds.nodes import Node
from podgate.model.kinds.workloads import DaemonSet

NO_SOURCE: Final = "not known without a source"
GIVE_ONE: Final = "give --kubeconfig or --source"
_OWN_PLACES: Final = frozenset({"kube-system"})
"""Namespaces whose Pods on the node's network are the cluster's own."""
_AT_ONCE: Final = 3
"""Names of Pods in a line; the others are counted."""


def node_label(node: Node | None, name: str, *, needed: bool, unread: str = "") -> Finding:
    """Say whether the node has the label that the DaemonSet selects by; ``unread`` says why objects are not known."""
    if not needed:
        return Finding("node label", "ok", "none is needed with these options")
    if unread:
        return Finding("node label", "unknown", unread, _how(unread))
    if node is None:
        return Finding("node label", "unknown", f"there is no Node {name}", "give --node-name")
    found = node.metadata.labels.get(READY_LABEL)
    if found == "true":
        return Finding("node label", "ok", f"Node {name} has {READY_LABEL}=true")
    seen = f"Node {name} has no label {READY_LABEL}" if found is None else f"Node {name} has {READY_LABEL}={found}"
    todo = (
        f"kubectl label --overwrite node {name} {READY_LABEL}=true; without it no proxy runs and no rule is made there"
    )
    return Finding("node label", "bad", seen, todo)


def _how(unread: str) -> str:
    return GIVE_ONE if unread == NO_SOURCE else "use an account that may list them, or --source"


def scheduled(found: Mapping[ObjectRef, DaemonSet], unread: str = "") -> Finding:
    """Say whether each node that a proxy's DaemonSet selects has one that is ready."""
    if unread:
        return Finding("DaemonSet", "unknown", unread, _how(unread))
    proxies = {ref: each for ref, each in sorted(found.items()) if _is_proxy(each)}
    if not proxies:
        return Finding("DaemonSet", "bad", "none runs a metadata proxy", "kubectl apply -f deploy/metadata")
    said, bad, todo = [], False, ""
    for ref, each in proxies.items():
        status = each.status
        if status.desired_number_scheduled is None:
            return Finding("DaemonSet", "unknown", f"{ref} has no status", "ask an API: give --kubeconfig")
        wanted = status.desired_number_scheduled
        said.append(f"{ref}: {status.current_number_scheduled} of {wanted} scheduled, {status.number_ready} ready")
        if min(status.current_number_scheduled, status.number_ready) < wanted or not wanted:
            bad = True
            todo = todo or f"kubectl -n {ref.namespace} describe daemonset {ref.name}" + (
                "" if wanted else f"; label nodes {READY_LABEL}=true"
            )
    return Finding("DaemonSet", "bad" if bad else "ok", "; ".join(said), todo)


def _is_proxy(daemonset: DaemonSet) -> bool:
    words = ("metadata", "run")
    return any(
        container.image.rpartition("/")[2].partition(":")[0] == "metadata-proxy"
        or container.args[:2] == words
        or container.command[-2:] == words
        or container.command[1:3] == words
        for container in daemonset.spec.template.spec.containers
    )


def rules(differences: Mapping[str, str], why_none: str = "", unread: str = "") -> Finding:
    """Say whether the node's rules are what this configuration wants.

    Args:
        differences: by step what is missing or too much; an empty text for none.
        why_none: why no rule is wanted.
        unread: why the kernel's rules are not known.
    """
    if unread:
        return Finding("rules", "unknown", unread, "run it as root on the node")
    wrong = sorted(name for name, text in differences.items() if text)
    if wrong:
        todo = "podgate metadata plan shows the differences; a proxy that runs with these options mends them"
        return Finding("rules", "bad", f"not as they should be: {', '.join(wrong)}", todo)
    return Finding("rules", "ok", f"none are wanted: {why_none}" if why_none else "as they should be")


def order(ahead: Sequence[str], unread: str = "") -> Finding:
    """Say whether somebody else's rules get packets to the metadata server before podgate's."""
    if unread:
        return Finding("order of rules", "unknown", unread, "run it as root on the node, with nft installed")
    if ahead:
        todo = "take them away, or give that program's chain a later priority: it answers Pods in podgate's place"
        return Finding("order of rules", "bad", f"before podgate's: {'; '.join(ahead)}", todo)
    return Finding("order of rules", "ok", "nobody else's rule gets Pods' packets to the metadata server first")


class Attempt(Frozen, frozen=True):
    """What came of a request for a secret from a Pod's network.

    Attributes:
        who: the Pod, or a process of it.
        outcome: a status as ``403``, ``refused``, or why nothing came of it.
        device: the kind of the device by which the Pod reaches the server: ``veth``, empty for hardware.
        is_reached: whether anything answered.
        source: the address that it was asked from; empty for not known.
        allowed_by: the policy that lets this Pod have it; empty for none.
    """

    who: str
    outcome: str
    device: str = "veth"
    is_reached: bool = True
    source: str = ""
    allowed_by: str = ""


def from_pods(asked: Sequence[Attempt], path: str, unread: str = "") -> Finding:
    """Say whether Pods are refused a secret; ``unread`` says why some could not be asked from."""
    reached = [each for each in asked if each.is_reached]
    allowed = [each for each in reached if each.allowed_by and each.outcome not in ("403", "refused")]
    leaking = [each for each in reached if each not in allowed and each.outcome not in ("403", "refused")]
    if leaking:
        seen = f"{path} is answered to {_listed(f'{each.who} with {each.outcome}' for each in leaking)}"
        return Finding("from a Pod", "bad", seen, "see the lines on rules and on ways past them")
    if unread or not reached:
        seen = unread or f"no Pod of this node can be asked from: {_listed(f'{e.who} ({e.outcome})' for e in asked)}"
        return Finding("from a Pod", "unknown", seen, "run it as root on the node, among its processes (hostPID)")
    refused = [each.who for each in reached if each.outcome == "refused"]
    if refused:
        seen = f"connections of {_listed(refused)} are refused: no metadata at all"
        return Finding("from a Pod", "bad", seen, "start the proxy; until then podgate's rules, or nobody, answer")
    strict = [each.who for each in reached if each not in allowed]
    said = [f"refused with 403 to {_listed(strict)}"] if strict else []
    if allowed:
        each_said = (f"{each.who} with {each.outcome}, by {each.allowed_by}" for each in allowed)
        said.append(f"answered to {_listed(each_said)}")
    return Finding("from a Pod", "ok", f"{path} is {'; '.join(said)}")


def ways_past(
    asked: Sequence[Attempt], on_the_node: Sequence[tuple[str, str]] | None, devices: Iterable[str], *, by_user: bool
) -> Finding:
    """Say whether Pods reach the server by a way that no rule of the node sees.

    Args:
        asked: what came of requests from Pods.
        on_the_node: namespace and name of the Pods on the node's own network; None when not known.
        devices: the names of the node's devices.
        by_user: whether the node's own processes are told apart by their user (``--node-uids``).
    """
    name = "ways past the rules"
    past = [f"{each.who} ({each.device or 'hardware'} device)" for each in asked if each.device != "veth"]
    if past:
        todo = "give these Pods a veth, or close the server to them in their own network, or by IMDS' hop limit"
        return Finding(name, "bad", f"packets of {_listed(past)} do not pass this node's IP stack", todo)
    others = [f"{space}/{pod}" for space, pod in on_the_node or () if space not in _OWN_PLACES]
    if others and not by_user:
        todo = "give --node-uids, or forbid hostNetwork (Pod Security's baseline does)"
        return Finding(name, "bad", f"on the node's own network, which no redirect is for: {_listed(others)}", todo)
    ebpf = sorted(device for device in devices if device.startswith(("cilium", "lxc_health")))
    refused = {each.outcome for each in asked if each.is_reached} == {"403"}
    if ebpf and not refused:
        todo = "ask from a Pod; with eBPF host routing packets pass no netfilter (Cilium: bpf.hostLegacyRouting=true)"
        return Finding(name, "unknown", f"eBPF may route Pods' packets here ({', '.join(ebpf)})", todo)
    if on_the_node is None:
        seen = "no Pod's device goes past them" if asked else "Pods' devices are not known from here"
        return Finding(name, "unknown", f"{seen}; Pods with hostNetwork: {NO_SOURCE}", GIVE_ONE)
    return Finding(name, "ok", "Pods pass this node's IP stack" if asked else "no Pod with hostNetwork is a tenant's")


def _listed(words: Iterable[str]) -> str:
    found = list(words)
    more = len(found) - _AT_ONCE
    return ", ".join([*found[:_AT_ONCE], *([f"{more} more"] if more > 0 else [])]) or "none found"


_COUNT: Final = re.compile(r'request_count\{.*?filter_result="(\w+)".*?\} (\S+)')


def denials(before: str, after: str, own: int, where: str) -> Finding:
    """Say how many requests were refused, ever and lately.

    Args:
        before: the metrics page, before everything else was looked at.
        after: the page now.
        own: how many of doctor's own requests were refused in between.
        where: where the page should be.
    """
    if not before or not after:
        return Finding("denials", "unknown", f"nobody serves metrics on {where}", "give --metrics-addr")
    (refused, every), (refused_now, every_now) = _counts(before), _counts(after)
    late, of = max(0, refused_now - refused - own), max(0, every_now - every - own)
    text = f"{refused} of {every} requests refused since the proxy started, {late} of {of} while doctor looked"
    return Finding("denials", "ok", text)


def _counts(page: str) -> tuple[int, int]:
    found = [("blocked" in result, int(float(number))) for result, number in _COUNT.findall(page)]
    return sum(number for is_refused, number in found if is_refused), sum(number for _, number in found)


_TABLE: Final = re.compile(r"table (\S+) (\S+) \{")
_CHAIN: Final = re.compile(r"\s+chain (\S+) \{")
_HOOK: Final = re.compile(r"\s+type (\S+) hook (\S+) .*?priority (-?\d+)")
_DADDR: Final = re.compile(r"\bip6? daddr (?!!)([0-9a-f.:/]+)")
_TAKES: Final = re.compile(r"\b(dnat|redirect|tproxy|notrack)\b")


def rules_ahead(listing: str, addresses: Sequence[str], ours: Sequence[str], priority: int) -> Iterator[str]:
    """Find others' rules that take packets to some addresses before a chain of ours translates them.

    Args:
        listing: of ``nft -y list ruleset``: priorities as numbers.
        addresses: the metadata server's.
        ours: our tables, and what comments of our own rules begin with.
        priority: of the chain in which ours translate.
    """
    where = chain = ""
    base: tuple[str, int] | None = None
    earliest: dict[tuple[str, str], int] = {}
    found: list[tuple[str, str, str, tuple[str, int] | None]] = []
    for line in listing.splitlines():
        if named := _TABLE.match(line):
            where, chain = f"{named[1]} {named[2]}", ""
        elif named := _CHAIN.match(line):
            chain, base = named[1], None
        elif hook := _HOOK.match(line):
            base = (hook[1] if hook[2] == "prerouting" else "", int(hook[3]))
            earliest[where, base[0]] = min(base[1], earliest.get((where, base[0]), priority))
        elif (
            chain
            and where.split()[1] not in ours
            and _TAKES.search(line)
            and not any(f'"{word}' in line for word in ours)
        ):
            found.append((where, chain, line.strip(), base))
    for place, name, text, its in found:
        kind = "nat" if re.search(r"\b(dnat|redirect)\b", text) else "filter"
        comes = its[1] if its and its[0] == kind else priority if its else earliest.get((place, kind), priority)
        if comes < priority and _is_about(text, addresses, is_base=its is not None):
            yield f"table {place}, chain {name}: {text}"


def _is_about(text: str, addresses: Sequence[str], *, is_base: bool) -> bool:
    """Say whether a rule takes packets to an address; one that names no destination does so in a base chain."""
    named = _DADDR.findall(text)
    if not named:
        return is_base and "daddr" not in text
    return any(_holds(network, address) for network in named for address in addresses)


def _holds(network: str, address: str) -> bool:
    try:
        return ip_address(address) in ip_network(network, strict=False)
    except ValueError:
        return False
