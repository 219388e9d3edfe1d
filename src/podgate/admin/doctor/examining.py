"""Examining: what is looked at, in order, and what is made of it.

Here: requests, reading manifests, the order of findings. Not here: what objects mean (agents.py, rights.py).
Invariant: it only looks: access reviews are all that it sends beside lists, and they are stored nowhere.
"""

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from podgate.admin.doctor.agents import (
    AgentContainer,
    AgentPod,
    DaemonSet,
    daemonset_of,
    image_findings,
    node_findings,
    of_feature,
    placed_in,
    silent_findings,
)
from podgate.admin.doctor.rights import Account, Right, is_allowed, reads, review, right_findings, tells
from podgate.admin.reaching import Ask, each_of, listed
from podgate.commandline.findings import Finding
from podgate.commandline.options import SettingsError, options_of, settings_from
from podgate.commandline.usage import Parser, UsageError, add_option, given
from podgate.joints import Feature, Inputs
from podgate.kubeapi.answers import Refusal
from podgate.kubeapi.connection import AccessError, UnreachableError
from podgate.kubeapi.discovery import VERSION, kinds_of, kinds_request, version_of
from podgate.model.frozen import Frozen
from podgate.model.kinds.meta import ApiStruct
from podgate.model.kinds.nodes import NODE
from podgate.model.kinds.pods import POD
from podgate.model.kinds.reports import FEATURE_LABEL, NODE_REPORT, ReportMeta, report_name
from podgate.model.machine import Machine
from podgate.model.snapshot import Kind, Listed, Snapshot, Watch
from podgate.telling import manager_of, object_name

OLDEST: Final = (1, 22)
"""Server-side apply is stable from this version of Kubernetes on (KEP-555)."""

DAEMON_SET: Final[Kind[Any]] = Kind("apps", "v1", "DaemonSet", "daemonsets", True, dict)
ANY_NODE: Final = "node"
NEEDS_API: Final = ("services",)
"""Features whose agents can do nothing without an API: they ask one by whatever login they have."""

_OWN_GROUP: Final = "podgate.dev"
_SHOWN: Final = 5


class Role(Frozen, frozen=True):
    """What a kind of agent is.

    Attributes:
        feature: the declaration whose watches and compile count.
        name: the feature's name in command lines.
        verb: the verb that stays.
        asks: it reads objects itself.
        folder: the manifests that give it its rights.
    """

    feature: Feature[Any, Any]
    name: str
    verb: str
    asks: bool
    folder: str

    def watches(self, settings: Any) -> tuple[Watch, ...]:
        """Say what it watches on a node."""
        return self.feature.watches(settings, ANY_NODE) if self.asks else ()


class Cluster(Frozen, frozen=True):
    """The objects that tell who runs where; each a plain map, or why they cannot be seen.

    ``stands``: whether it is known of Pods which there are and how they stand; manifests alone tell what should run.
    """

    nodes: tuple[Mapping[str, Any], ...] | str
    pods: tuple[Mapping[str, Any], ...] | str
    sets: tuple[Mapping[str, Any], ...] | str
    stands: bool = True


def settings_of(role: Role, agent: AgentContainer | None) -> Any:
    """Give the settings of an agent, from its container's words; the defaults where it has none, or bad ones."""
    cls = role.feature.settings
    specs = options_of(cls)
    parser = Parser(add_help=False, allow_abbrev=False)
    for spec in specs:
        add_option(parser, spec)
    try:
        arguments, _ = parser.parse_known_args(list(agent.words) if agent and agent.ours else [])
        return settings_from(cls, given(arguments, specs))
    except (UsageError, SettingsError):
        return cls()


# --- the API --------------------------------------------------------------------------------------------------


async def api_findings(ask: Ask, server: str) -> tuple[list[Finding], bool]:
    """Say whether the API answers, and as which version; and whether to go on."""
    try:
        answer = await ask(VERSION)
    except (UnreachableError, AccessError) as error:
        todo = "check the address, the network and the server; the kubeconfig says which"
        return [Finding("API", "bad", str(error), todo)], False
    if answer.refused is not None:
        todo = "check the login: the user, its token or certificate"
        return [Finding("API", "bad", f"{server} refuses us: {answer.refused}", todo)], False
    version = version_of(answer.body)
    found = Finding("API", "ok", f"{server} answers; Kubernetes {version}")
    numbers = re.match(r"v(\d+)\.(\d+)", version)
    if numbers and (int(numbers[1]), int(numbers[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        return [found, Finding("API: version", "bad", version, f"podgate needs Kubernetes {oldest} or newer")], True
    return [found], True


async def cluster_of(ask: Ask) -> Cluster:
    """List nodes, Pods and DaemonSets."""
    found: list[tuple[Mapping[str, Any], ...] | str] = []
    for kind in (NODE, POD, DAEMON_SET):
        items = await listed(ask, Watch(kind))
        found.append(str(items) if isinstance(items, Refusal) else tuple(map(msgspec.json.decode, items)))
    nodes, pods, sets = found
    return Cluster(nodes, pods, sets)


async def kind_findings(ask: Ask, kinds: Iterable[Kind[Any]]) -> list[Finding]:
    """Say which kinds the API has; Kubernetes' own are said in one line."""
    found: list[Finding] = []
    known: dict[str, Mapping[str, Kind[Any]] | str] = {}
    there = []
    for kind in sorted(set(kinds), key=lambda each: (each.group, each.kind)):
        if kind.api_version not in known:
            answer = await ask(kinds_request(kind.api_version))
            known[kind.api_version] = kinds_of(kind.api_version, answer.body) if answer.refused is None else {}
        if kind.kind in known[kind.api_version]:
            there.append(kind.kind)
        elif kind.group == _OWN_GROUP or kind.group.endswith(f".{_OWN_GROUP}"):
            todo = f"to use it: apply its customresourcedefinition.yaml ({kind.plural}.{kind.group})"
            found.append(Finding("kinds", "off", f"{kind.kind} is not installed", todo))
        else:
            todo = f"a newer Kubernetes has it, in {kind.api_version}; what it is for is left out until then"
            found.append(Finding("kinds", "off", f"the API has no {kind.kind}", todo))
    return [*([Finding("kinds", "ok", ", ".join(there))] if there else []), *found]


async def review_findings(ask: Ask, role: Role, settings: Any, accounts: Sequence[Account]) -> list[Finding]:
    """Say what the accounts of a feature's agents, or our own login, may do of what the feature needs."""
    watches = role.watches(settings)
    told = getattr(role.feature, "tells", None)
    found: list[Finding] = []
    for account in accounts:
        lease = manager_of(role.feature.name)
        needs = reads(watches) | tells(told.kind if told else None, account.namespace or "kube-system", lease)
        answers: dict[Right, bool] = {}
        for right in sorted(needs):
            answer = await ask(review(right, account))
            if answer.refused is not None:
                todo = "run this as somebody who may create subjectaccessreviews, or as the agent's own account"
                seen = f"of {account} cannot be told: {answer.refused}"
                found.append(Finding(f"{role.name}: rights", "unknown", seen, todo))
                break
            answers[right] = is_allowed(answer.body)
        else:
            found += right_findings(role.name, account, answers, role.folder)
    return found


class _Report(ApiStruct, frozen=True, rename="camel"):
    """What tells whose report it is; reports that somebody made up may be of any length and number."""

    metadata: ReportMeta = ReportMeta()
    feature: str = ""
    node: str = ""


async def report_findings(
    ask: Ask, role: Role, agents: Sequence[AgentPod], nodes: tuple[Mapping[str, Any], ...] | str
) -> list[Finding]:
    """Say which of the agents that report never did, and which reports are no agent's.

    Args:
        ask: sends.
        role: what the agents are.
        agents: see ``reporters``.
        nodes: all Nodes, or why they cannot be seen.
    """
    feature, name = object_name(role.feature.name), f"{role.name}: reports"
    names = None if isinstance(nodes, str) else {node["metadata"]["name"] for node in nodes}
    reported: set[str] = set()
    made_up = 0
    shown: list[str] = []

    def take(item: bytes) -> None:
        nonlocal made_up
        report = msgspec.json.decode(item, type=_Report)
        is_known = names is None or report.node in names
        if is_known and report.metadata.name == report_name(feature, report.node):
            reported.add(report.node)
        else:
            made_up += 1
            if len(shown) < _SHOWN:
                shown.append(report.metadata.name)

    refused = await each_of(ask, Watch(NODE_REPORT, label_selector=f"{FEATURE_LABEL}={feature}"), take)
    if refused is not None and refused.code == 404:  # the kind is not installed, which is said with the kinds
        return []
    if refused is not None:
        todo = "give your login the right to list nodereports.podgate.dev"
        return [Finding(name, "unknown", f"cannot be seen: {refused}", todo)]
    found = list(silent_findings(role.name, agents, reported, time.time()))
    if made_up:
        more = " …" if made_up > len(shown) else ""
        seen = f"{made_up} {'is' if made_up == 1 else 'are'} of no node that there is: {', '.join(shown)}{more}"
        todo = "kubectl delete nodereport NAME; they are not counted, and deploy/node-reports lets no agent make one"
        found.append(Finding(name, "bad", seen, todo))
    return found


def reporters(role: Role, roles: Iterable[Role], pods: Iterable[AgentPod]) -> list[AgentPod]:
    """Give the agents that report in a role: those of its verb, and those that start a process of it, from an API.

    Args:
        role: which one.
        roles: all that there are.
        pods: all agents.
    """
    verbs = {each.verb: each for each in roles if each.name == role.name}
    found = []
    for pod in pods:
        if pod.agent.feature != role.name or pod.agent.verb not in verbs or not pod.agent.ours or not role.asks:
            continue
        settings = settings_of(verbs[pod.agent.verb], pod.agent)
        does = pod.agent.verb == role.verb or getattr(settings, "follows_objects", False)
        if does and _reads_api(role, pod, settings):
            found.append(pod)
    return found


def _reads_api(role: Role, pod: AgentPod, settings: Any) -> bool:
    """Say whether an agent gets its objects from an API, in which it reports then."""
    if settings.source or getattr(settings, "once", False) or not getattr(settings, "objects", True):
        return False
    return bool(settings.kubeconfig) or (not pod.agent.by_files and (pod.asks or role.name in NEEDS_API))


# --- what is in the cluster -----------------------------------------------------------------------------------


def agents_of(cluster: Cluster, names: Sequence[str]) -> tuple[list[AgentPod], list[DaemonSet]]:
    """Give all agents."""
    pods = [] if isinstance(cluster.pods, str) else [each for pod in cluster.pods for each in placed_in(pod, names)]
    found = () if isinstance(cluster.sets, str) else (daemonset_of(each, names) for each in cluster.sets)
    return pods, [each for each in found if each is not None]


def hidden_findings(cluster: Cluster) -> Iterator[Finding]:
    """Say which objects cannot be seen."""
    for what, items in (("nodes", cluster.nodes), ("Pods", cluster.pods), ("DaemonSets", cluster.sets)):
        if isinstance(items, str):
            todo = f"give your login the right to list {what}"
            yield Finding("cluster", "unknown", f"{what} cannot be seen: {items}", todo)


def feature_findings(
    name: str, cluster: Cluster, pods: Sequence[AgentPod], sets: Sequence[DaemonSet], version: str
) -> Iterator[Finding]:
    """Say where a feature's agents are."""
    own_pods, own_sets = of_feature(name, pods, sets)
    if isinstance(cluster.nodes, str):
        return
    if isinstance(cluster.pods, str):
        installed = f"; {own_sets[0].ref} is there" if own_sets else ""
        yield Finding(name, "unknown", f"no agent can be seen{installed}")
        return
    if not own_pods and not own_sets:
        hidden = isinstance(cluster.sets, str)
        seen = "no agent can be seen" if hidden else "not installed"
        yield Finding(name, "unknown" if hidden else "off", seen, "" if hidden else f"to install it: deploy/{name}")
        return
    if cluster.stands:
        yield from node_findings(name, cluster.nodes, own_pods, own_sets)
    else:
        refs = [each.ref for each in own_sets] or [each.ref for each in own_pods]
        yield Finding(f"{name}: nodes", "unknown", f"{refs[0]} is there; files do not tell which Pods run")
    agents = [each.agent for each in own_pods] or [agent for each in own_sets for agent in each.agents]
    yield from image_findings(name, [agent for agent in agents if agent.feature == name], version)


def deed_findings(role: Role, settings: Any, snapshot: Snapshot, where: str, node: str) -> Iterator[Finding]:
    """Say what a feature would do with these objects."""
    name = f"{role.name} here"
    compiled = role.feature.compiler(settings)(Inputs(objects=snapshot, machine=Machine(node_name=node)))
    # What is in a node's own files is known there alone.
    refs = (ref for ref in sorted(compiled.problems) if ref.kind != "File")
    problems = [problem for ref in refs for problem in compiled.problems[ref]]
    for problem in problems:
        place = f"{problem.ref}{':' if problem.field else ''}{problem.field}"
        yield Finding(name, "bad", f"{place}: {problem.message}")
    counts = [
        f"{len(entry.objects)} {kind}" if isinstance(entry, Listed) else f"{kind} {entry.why}"
        for kind, entry in sorted(snapshot.kinds.items())
    ]
    files = [watch.path for watch in role.feature.files(settings)]
    reading = [*([f"{where} ({', '.join(counts)})"] if counts else []), *files]
    told = f"complain of {len(problems) or 'nothing'}; podgate {role.name} check looks deeper"
    yield Finding(name, "ok", f"it would read {' and '.join(reading) or 'nothing'} and {told}")


def unread_findings(
    role: Role, runs: Sequence[Any], agents: Iterable[AgentContainer], snapshot: Snapshot
) -> Iterator[Finding]:
    """Say which policies nobody reads: the feature is installed without the process that follows them.

    Args:
        role: of the process that would.
        runs: settings of the feature's ``run``; those that follow objects start that process themselves.
        agents: all of the cluster.
        snapshot: what that process would read.
    """
    here = [agent for agent in agents if agent.feature == role.name]
    follows = any(getattr(settings, "follows_objects", False) for settings in runs)
    if role.verb == "run" or not here or follows or any(agent.verb == role.verb for agent in here):
        return
    kinds = {watch.kind.kind for watch in role.watches(role.feature.settings()) if watch.kind.group == _OWN_GROUP}
    found = sorted(str(ref) for kind, entry in snapshot.kinds.items() if kind in kinds and isinstance(entry, Listed)
                   for ref in entry.objects)  # fmt: skip
    if found:
        shown = ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")
        seen = f"no agent reads {shown}: the agents here follow no objects"
        yield Finding(f"{role.name}: policies", "bad", seen, f"apply {role.folder}")


def needed_kinds(roles: Iterable[tuple[Role, Any]]) -> set[Kind[Any]]:
    """Give the kinds that agents watch and tell of."""
    found = {watch.kind for role, settings in roles for watch in role.watches(settings)}
    return found | {NODE_REPORT}
