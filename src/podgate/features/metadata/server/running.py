"""running: the metadata proxy as ``run`` keeps it: policy files in, a filter and listening sockets out.

Here: the states, their compile from files of JSON, the steps. Not here: Kubernetes objects and YAML (compile.py, for
the verbs that only look), composing sources and the host (podgate.servers).
Invariant: what this module imports is what the proxy's process holds in its 25 MiB.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from podgate.features.metadata.assemble import from_json_files
from podgate.features.metadata.filter import Filter
from podgate.features.metadata.intent import NodeRules
from podgate.features.metadata.node_rules import node_rules
from podgate.features.metadata.server.exposure import Exposure
from podgate.features.metadata.server.node import BEFORE_LISTENING, node_steps
from podgate.features.metadata.server.pool import Address
from podgate.features.metadata.server.proxy import Proxy, Setup, journal_for, no_journal
from podgate.features.metadata.settings import Settings
from podgate.joints import Compiled, Inputs, Sample, Step
from podgate.model.files import Directory, FileContent, FileWatch, Missing, Present, Unreadable
from podgate.model.frozen import Frozen, file_ref
from podgate.model.machine import Machine
from podgate.model.problems import Problem, problems_by_object
from podgate.observe.logs import Log
from podgate.targets.cell.apply import Cell, CellTarget
from podgate.targets.cell.state import State as Held
from podgate.targets.listeners.apply import ListenersTarget
from podgate.targets.listeners.state import Endpoint
from podgate.targets.listeners.state import State as Listening

FILES = "*.[jy]*"
"""The names that count in a folder of policies. One in YAML is a mistake here, never silently left out."""


class States(Frozen, frozen=True):
    """What the proxy's process wants: a filter to decide with, where to listen, and the node's rules around it."""

    policy: Held
    listeners: Listening
    rules: NodeRules = NodeRules()


class Server:
    """The proxy, as the composition root knows it."""

    name = "metadata"
    settings = Settings

    def files(self, settings: Settings) -> tuple[FileWatch, ...]:
        """Need the policy file or folder."""
        return () if settings.policy_path is None else (FileWatch(settings.policy_path, FILES),)

    def compiler(self, settings: Settings) -> Callable[[Inputs], Compiled[States]]:
        """Give the compiler."""
        return lambda inputs: compile_states(settings, inputs.files, inputs.machine)

    def steps(self, settings: Settings, log: Log) -> tuple[Step[States, Any, Any], ...]:
        """Refuse, swap the policy, listen, redirect: nobody is answered by a proxy without a policy."""
        cell = Cell()
        host, port = settings.upstream_address
        exposure = Exposure(frozenset(settings.cloud.addresses), settings.allowed_networks)
        setup = Setup(Address(str(host), port), exposure, token_hops=settings.token_hop_limit)
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

    def samples(self, states: States) -> tuple[Sample, ...]:
        """Count the policies."""
        text = "Policy files in force."
        return (Sample("podgate_metadata_policies", len(states.policy.value.policies), help=text),)


SERVER = Server()


_NO_MACHINE = Machine()


def compile_states(
    settings: Settings, files: Mapping[str, FileContent], machine: Machine = _NO_MACHINE
) -> Compiled[States]:
    """Compile settings, policy files and the node's machine."""
    good, problems = [], []
    for path, content in _policy_files(settings, files):
        if isinstance(content, Present):
            good.append((path, content.data))
        else:
            problems.append(Problem(file_ref(path), "error", *_why(content)))
    filter_, found = from_json_files(settings, good)
    problems += found
    if problems and not filter_.strictest:
        filter_ = _strict(filter_)
    degraded = "a policy cannot be used: everybody gets the strictest rules" if filter_.strictest else ""
    return Compiled(_states(settings, filter_, machine), problems_by_object(problems), degraded=degraded)


def _strict(filter_: Filter) -> Filter:
    return replace(filter_, strictest=True)


def _rules(states: States) -> NodeRules:
    return states.rules


def _states(settings: Settings, filter_: Filter, machine: Machine) -> States:
    address, port = settings.listen
    endpoints = {Endpoint(str(address), port, "proxy")}
    if settings.firewall:
        # Redirected from 8080, which the old rules sent to a port where nobody listened.
        endpoints.add(Endpoint(str(address), port - 1, "closed"))
    rules = node_rules(settings, machine)
    return States(Held(filter_, shown(filter_)), Listening(frozenset(endpoints)), rules)


def shown(filter_: Filter) -> str:
    """Give the line that says which filter is in force."""
    words = [f"profile {filter_.profile.name}", f"open: {', '.join(filter_.opened) or 'nothing'}"]
    words += [policy.name for policy in filter_.policies]
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
