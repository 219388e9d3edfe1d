"""The command line of ``podgate doctor``.

Here: arguments, where objects come from, the parts of the examination in order. Not here: the parts (examining.py).
Invariant: exit 0 nothing is bad, 1 something is, 2 wrong use.
"""

import argparse
import asyncio
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from podgate import __version__
from podgate.admin.doctor.agents import AgentContainer, AgentPod, DaemonSet
from podgate.admin.doctor.examining import (
    DAEMON_SET,
    Cluster,
    Role,
    agents_of,
    api_findings,
    cluster_of,
    deed_findings,
    feature_findings,
    hidden_findings,
    kind_findings,
    needed_kinds,
    report_findings,
    reporters,
    review_findings,
    settings_of,
    unread_findings,
)
from podgate.admin.doctor.rights import Account
from podgate.admin.reaching import NO_API, add_api, kubeconfig_of
from podgate.commandline.findings import Finding, answered
from podgate.commandline.usage import Parser
from podgate.joints import Answered, SourceError
from podgate.kubeapi.connection import Connection, Limits, UnreachableError
from podgate.model.files import Missing, Unreadable
from podgate.model.kinds.config import CONFIG_MAP
from podgate.model.kinds.nodes import NODE
from podgate.model.kinds.pods import POD
from podgate.sources.manifests import is_lab, load_manifests, written_objects
from podgate.sources.origin import Api, Manifests, Origin, access_of, load, origin, unasked

WATCHERS: Final = {"metadata": ("podgate.features.metadata.watcher.feature", "deploy/metadata/per-pod")}
"""Features with a second process that follows objects for them: what declares it, and the manifests of its rights."""

MOUNTED: Final = {"masquerade": "/etc/config/ip-masq-agent"}
"""Where manifests mount the ConfigMap that a feature reads, by its option ``--config``."""

FOLDERS: Final = {"masquerade": "deploy/masquerade-policies"}
"""The manifests that give agents their rights, where that is not ``deploy/FEATURE``."""


def main(
    words: Sequence[str],
    environ: Mapping[str, str],
    features: Mapping[str, str],
    servers: Sequence[str],
    tell: Callable[[str], None],
) -> Answered:
    """Examine; raises UsageError, SourceError.

    Args:
        words: the command line.
        environ: the environment.
        features: the module that declares each feature, by name.
        servers: the features whose ``run`` reads no objects itself.
        tell: told where objects come from, where no option says so.
    """
    asked = _parser(tuple(features)).parse_args(list(words))
    names = tuple(asked.feature or features)
    roles = [role for name in names for role in _roles(name, features[name], servers)]
    found = origin(asked.source, kubeconfig_of(asked, environ), asked.context, environ)
    if said := unasked(found, asked.source, asked.kubeconfig):
        tell(f"podgate doctor: {said}")
    match found:
        case Api():
            return answered(asyncio.run(_with_api(found, roles, environ)))
        case Manifests():
            return answered(_with_files(found, roles, environ))
        case _:
            return answered([Finding("API", "unknown", NO_API, "or give --source DIR to look at manifests alone")])


def _roles(name: str, module: str, servers: Sequence[str]) -> list[Role]:
    feature = importlib.import_module(module).FEATURE
    roles = [Role(feature, name, "run", name not in servers, FOLDERS.get(name, f"deploy/{name}"))]
    if name in WATCHERS:
        watcher, folder = WATCHERS[name]
        roles.append(Role(importlib.import_module(watcher).FEATURE, name, "watch", True, folder))
    return roles


async def _with_api(found: Api, roles: Sequence[Role], environ: Mapping[str, str]) -> list[Finding]:
    connection = Connection(access_of(found, environ), Limits(answer=20.0))
    async with connection:
        findings, goes_on = await api_findings(connection.send, connection.access.server)
        if not goes_on:
            return findings
        try:
            cluster = await cluster_of(connection.send)
            findings += hidden_findings(cluster)
            pods, sets = agents_of(cluster, [role.name for role in roles])
            chosen = [(role, settings_of(role, _agent(role, pods))) for role in roles]
            findings += await kind_findings(connection.send, needed_kinds(chosen))
            for name in dict.fromkeys(role.name for role in roles):
                findings += feature_findings(name, cluster, pods, sets, __version__)
            for role, settings in chosen:
                if telling := reporters(role, roles, pods):
                    findings += await report_findings(connection.send, role, telling, cluster.nodes)
                if role.asks and (accounts := _accounts(role, pods)):
                    findings += await review_findings(connection.send, role, settings, accounts)
        except UnreachableError as error:
            return [*findings, Finding("API", "bad", str(error), "try again; the server may be restarting")]
    # The sources of objects have event loops of their own.
    return [*findings, *await asyncio.to_thread(_deeds, found, chosen, cluster, (pods, sets), environ)]


def _with_files(found: Manifests, roles: Sequence[Role], environ: Mapping[str, str]) -> list[Finding]:
    files = load_manifests(found.path)
    root = files.get(found.path)
    if isinstance(root, Missing | Unreadable):
        why = root.why if isinstance(root, Unreadable) else "there is no such file or folder"
        raise SourceError(f"podgate doctor: --source {found.path}: {why}")
    findings = [Finding("API", "unknown", f"only what {found.path} tells: rights and running agents need --kubeconfig")]
    objects: dict[str, list[Any]] = {kind.kind: [] for kind in (NODE, POD, DAEMON_SET)}
    for obj in written_objects(found.path, files):
        if isinstance(obj, dict) and obj.get("kind") in objects and (obj.get("metadata") or {}).get("name"):
            objects[obj["kind"]].append(obj)
    nodes, running, daemons = (tuple(items) for items in objects.values())
    stands = is_lab(found.path) or any(pod.get("status") for pod in running)
    cluster = Cluster(nodes, running, daemons, stands=stands)
    pods, sets = agents_of(cluster, [role.name for role in roles])
    for name in dict.fromkeys(role.name for role in roles):
        findings += feature_findings(name, cluster, pods, sets, __version__)
    chosen = [(role, settings_of(role, _agent(role, pods))) for role in roles]
    return [*findings, *_deeds(found, chosen, cluster, (pods, sets), environ)]


def _deeds(
    found: Origin,
    chosen: Sequence[tuple[Role, Any]],
    cluster: Cluster,
    agents: tuple[Sequence[AgentPod], Sequence[DaemonSet]],
    environ: Mapping[str, str],
) -> list[Finding]:
    """Say what each feature would do with what there is."""
    findings: list[Finding] = []
    pods, sets = agents
    known = [*(each.agent for each in pods), *(agent for each in sets for agent in each.agents)]
    nodes = [] if isinstance(cluster.nodes, str) else [node["metadata"]["name"] for node in cluster.nodes]
    for role, settings in chosen:
        own = _own(role, pods)
        if not role.asks:
            continue
        settings = _as_mounted(role, settings)  # noqa: PLW2901 - the settings, as this place sees them
        watches = role.feature.watches(settings, None)
        if own and isinstance(found, Api) and not any(each.asks and each.agent.ours for each in own):
            seen = "its agents ask no API: what is on each node alone decides"
            todo = f"podgate {role.name} check on a node says more; {role.folder} has the roles for the API"
            findings.append(Finding(f"{role.name} here", "off", seen, todo))
            # A ConfigMap reaches them all the same: the kubelet mounts it.
            watches = tuple(watch for watch in watches if watch.kind == CONFIG_MAP)
            if not watches:
                continue
        try:
            snapshot = load(found, watches, environ).snapshot
        except SourceError as error:
            findings.append(Finding(f"{role.name} here", "unknown", str(error)))
            continue
        findings += (Finding(f"{role.name} here", "bad", f"{fault.ref}: {fault.message}") for fault in snapshot.faults)
        findings += deed_findings(role, settings, snapshot, str(found), nodes[0] if nodes else "")
        runs = [each for other, each in chosen if (other.name, other.verb) == (role.name, "run")]
        findings += unread_findings(role, runs, known, snapshot)
    return findings


def _as_mounted(role: Role, settings: Any) -> Any:
    """Give the settings by which an agent's mounted ConfigMap is read where it comes from."""
    config = getattr(settings, "config", None)
    return replace(settings, config=None) if config is not None and config == MOUNTED.get(role.name) else settings


def _own(role: Role, pods: Sequence[AgentPod]) -> list[AgentPod]:
    return [each for each in pods if (each.agent.feature, each.agent.verb) == (role.name, role.verb)]


def _agent(role: Role, pods: Sequence[AgentPod]) -> AgentContainer | None:
    """Give an agent of a role, the first of all: they are alike, or the versions say that they are not."""
    return next((each.agent for each in _own(role, pods)), None)


def _accounts(role: Role, pods: Sequence[AgentPod]) -> list[Account]:
    """Give the accounts of the agents of a role that ask an API; our own login where none is there at all."""
    own = _own(role, pods)
    asking = {each.account for each in own if each.asks and each.agent.ours}
    return [Account(*each) for each in sorted(asking)] if own else [Account()]


def _parser(features: tuple[str, ...]) -> argparse.ArgumentParser:
    parser = Parser(
        prog="podgate doctor",
        description="Say what is right and wrong with a cluster and podgate's agents in it, a verdict per line, and "
        "what to do: ok, bad, off (not installed), unknown (could not be looked at). It only looks. Without an API it "
        "says what manifests tell.",
        allow_abbrev=False,
        guided="doctor",
    )
    add_api(parser)
    told = "look at a folder or file of manifests instead of an API"
    parser.add_argument("--source", metavar="DIR|FILE", help=told)
    told = "only this feature; may be repeated (default: all)"
    parser.add_argument("--feature", action="append", choices=features, metavar="NAME", help=told)
    parser.add_argument("--output", choices=("text", "json"), default="text", help="for people or for programs")
    return parser
