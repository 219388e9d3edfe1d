"""running: the metadata proxy as ``run`` keeps it: policies in, a filter and listening sockets out.

Here: the states, their compile from files of JSON or from what the watching process tells, the steps.
Not here: Kubernetes objects and YAML (watcher/, and compile.py for the verbs that only look), composing sources and the
host (podgate.servers).
Invariant: what this module imports is what the proxy's process holds in its 25 MiB.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from msgspec.structs import replace

from podgate.features.metadata.assemble import filter_of, from_json_files
from podgate.features.metadata.filter import Filter
from podgate.features.metadata.intent import NodeRules
from podgate.features.metadata.node_rules import node_rules
from podgate.features.metadata.server.exposure import Exposure
from podgate.features.metadata.server.following import WatchSource, link_for
from podgate.features.metadata.server.node import BEFORE_LISTENING, node_steps
from podgate.features.metadata.server.pool import ServerAddress
from podgate.features.metadata.server.proxy import Proxy, Setup, journal_for, no_journal
from podgate.features.metadata.settings import Settings
from podgate.features.metadata.watched import THE_WATCH, WATCHED, Watched
from podgate.joints import Compiled, Inputs, Source, Step
from podgate.model.files import Directory, FileContent, FileWatch, Missing, Present, Unreadable
from podgate.model.frozen import Frozen, file_ref
from podgate.model.problems import Problem, problems_by_object
from podgate.model.snapshot import Absent, Listed, Snapshot
from podgate.observe.logs import Log
from podgate.observe.metrics import Measured
from podgate.targets.cell.apply import Cell, CellTarget
from podgate.targets.cell.state import State as Held
from podgate.targets.listeners.apply import ListenersTarget
from podgate.targets.listeners.state import ListenAddress
from podgate.targets.listeners.state import State as Listening

FILES = "*.[jy]*"
"""The names that count in a folder of policies. One in YAML is a mistake here, never silently left out."""

NOTHING_YET = "Pods and policies are not known yet: everybody gets the strictest rules"
STALE = (
    "Pods are not heard of any more, so their addresses may be others' by now: what policies allow single Pods is not "
    "allowed until they are"
)
NOT_TOLD = (
    "nothing is heard of the process that follows Pods, so nobody knows which Pod asks: where policies differ between "
    "Pods, everybody gets the strictest rules until it is back"
)
LAST_KNOWN = "Pods and policies are not followed now: what was known last stays in force"


class States(Frozen, frozen=True):
    """What the proxy's process wants: a filter to decide with, where to listen, and the node's rules around it.

    Attributes:
        watch: how the watching process fares; empty where nothing is followed.
        stale: whether what is known of Pods is too old to allow single ones anything.
    """

    policy: Held
    listeners: Listening
    rules: NodeRules = NodeRules()
    watch: Literal["", "waiting", "connected", "lost"] = ""
    stale: bool = False


class Server:
    """The proxy, as the composition root knows it."""

    name = "metadata"
    settings = Settings

    def objects(self, settings: Settings, node_name: str, environ: Mapping[str, str]) -> Source[Snapshot] | None:
        """Follow Pods and policies in another process, where the settings ask for them or for YAML."""
        link = link_for(settings, node_name, environ)
        return None if link is None else WatchSource(link, stale_after=settings.stale_after)

    def files(self, settings: Settings) -> tuple[FileWatch, ...]:
        """Need the policy file or folder."""
        return () if settings.policy_path is None else (FileWatch(settings.policy_path, FILES),)

    def compiler(self, settings: Settings) -> Callable[[Inputs], Compiled[States]]:
        """Give the compiler."""
        return lambda inputs: compile_states(settings, inputs)

    def steps(self, settings: Settings, log: Log) -> tuple[Step[States, Any, Any], ...]:
        """Refuse, swap the policy, listen, redirect: nobody is answered by a proxy without a policy."""
        cell = Cell()
        host, port = settings.upstream_address
        exposure = Exposure(frozenset(settings.cloud.addresses), settings.allowed_networks)
        setup = Setup(ServerAddress(str(host), port), exposure, token_hops=settings.token_hop_limit)
        journal = journal_for(log, time.time) if settings.log_requests else no_journal
        proxy = Proxy(setup, cell, log, journal)
        protocols = {"proxy": proxy.serve, "closed": proxy.serve_closed}
        policy: Step[States, Any, Any] = Step(
            "policy", CellTarget(cell), lambda states: states.policy, Held(), in_process=True
        )
        # A node whose rules others make needs no right to touch any.
        node = node_steps(_rules, ("listeners",), settings.backend) if settings.firewall else None
        listeners: Step[States, Any, Any] = Step(
            "listeners",
            ListenersTarget(protocols, proxy.life),
            lambda states: states.listeners,
            Listening(),
            after=("policy", *BEFORE_LISTENING) if node else ("policy",),
            in_process=True,
            live=lambda: proxy.refresh().samples(),
        )
        return (*node.before, policy, listeners, *node.after) if node else (policy, listeners)

    def samples(self, states: States) -> tuple[Measured, ...]:
        """Count the policies and the clients that are known."""
        filter_: Filter = states.policy.value
        found = (
            Measured("podgate_metadata_policies", len(filter_.policies), help="Policies in force."),
            Measured("podgate_metadata_clients", len(filter_.clients or ()), help="Addresses of Pods that are known."),
        )
        name, text = "podgate_metadata_watch_connected", "Whether the process that follows Pods and policies is there."
        if not states.watch:
            return found
        stale = Measured("podgate_metadata_pods_stale", states.stale, help="Whether Pods are unheard of for too long.")
        return (*found, Measured(name, states.watch == "connected", help=text), stale)


SERVER = Server()


def compile_states(settings: Settings, inputs: Inputs) -> Compiled[States]:
    """Compile settings, what is followed or the policy files, and the node's machine."""
    found = inputs.objects.kinds.get(WATCHED)
    return _from_files(settings, inputs) if found is None else _from_watch(settings, inputs, found)


def _from_watch(settings: Settings, inputs: Inputs, found: Listed[Any] | Absent) -> Compiled[States]:
    """Compile what the watching process told last; until it told anything, everybody gets the strictest rules."""
    lost = inputs.objects.faults
    if isinstance(found, Absent):
        watched, why = Watched(strictest=True), NOTHING_YET
    else:
        watched = found.objects[THE_WATCH]
        why = watched.why or (LAST_KNOWN if lost else "")
    stale = watched.unheard is not None and watched.unheard >= settings.stale_after
    problems = [*lost, *watched.problems]
    if stale:
        message = NOT_TOLD if lost and not watched.clients else STALE
        why = watched.why or message
        problems.append(Problem(THE_WATCH, "error", "PodsStale", "", message))
    filter_ = filter_of(
        settings, watched.policies, watched.clients, watched.pod_ranges, strictest=watched.strictest, stale=stale
    )
    watch: Literal["lost", "waiting", "connected"]
    watch = "lost" if lost else "waiting" if isinstance(found, Absent) else "connected"
    states = replace(_states(settings, filter_, node_rules(settings, inputs.machine)), watch=watch, stale=stale)
    return Compiled(states, problems_by_object(problems), degraded=why)


def _from_files(settings: Settings, inputs: Inputs) -> Compiled[States]:
    good, problems = [], []
    for path, content in _policy_files(settings, inputs.files):
        if isinstance(content, Present):
            good.append((path, content.data))
        else:
            problems.append(Problem(file_ref(path), "error", *_why(content)))
    filter_, found = from_json_files(settings, good)
    problems += found
    if problems and not filter_.strictest:
        filter_ = _strict(filter_)
    degraded = "a policy cannot be used: everybody gets the strictest rules" if filter_.strictest else ""
    states = _states(settings, filter_, node_rules(settings, inputs.machine))
    return Compiled(states, problems_by_object(problems), degraded=degraded)


def _strict(filter_: Filter) -> Filter:
    return replace(filter_, strictest=True)


def _rules(states: States) -> NodeRules:
    return states.rules


def _states(settings: Settings, filter_: Filter, rules: NodeRules) -> States:
    address, port = settings.listen
    found = {ListenAddress(str(address), port, "proxy")}
    if settings.firewall:
        # Redirected from 8080, which the old rules sent to a port where nobody listened.
        found.add(ListenAddress(str(address), port - 1, "closed"))
    return States(Held(filter_, shown(filter_)), Listening(frozenset(found)), rules)


def shown(filter_: Filter) -> str:
    """Give the line that says which filter is in force."""
    words = [f"profile {filter_.profile.name}", f"open: {', '.join(filter_.opened) or 'nothing'}"]
    words += [policy.name for policy in filter_.policies]
    words += [] if filter_.clients is None else [f"{len(filter_.clients)} addresses of Pods"]
    words += ["nothing allowed to single Pods"] * filter_.stale
    words += ["strictest rules for everybody"] * filter_.strictest + ["audit only"] * filter_.audit
    return "; ".join(words)


def _policy_files(settings: Settings, files: Mapping[str, FileContent]) -> Iterator[tuple[str, FileContent]]:
    path = settings.policy_path
    if path is None:
        return
    content = files.get(path, Missing())
    if isinstance(content, Directory):
        for name in content.names:
            yield f"{path}/{name}", files.get(f"{path}/{name}", Missing())
    else:
        yield path, content


def _why(content: FileContent) -> tuple[str, str, str]:
    """Give reason, field and message for what is no file."""
    match content:
        case Unreadable(why):
            return "Unreadable", "", f"cannot be read ({why}): check its mode and owner"
        case Directory():
            return "Unreadable", "", "is a folder inside a folder of policies; only files are read there"
        case _:
            return "Missing", "", "is not there: create it, or leave --policy out"
