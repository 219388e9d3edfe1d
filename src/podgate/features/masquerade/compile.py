"""compile: inputs and settings become an intent, the feature's states, and problems.

Here: which configuration is in force, the last good one included, and the memory that keeps unchanged parts from being
computed again. Not here: the meaning of texts (reading.py), back ends (to_nftables.py).
Invariant: with memory or without, equal inputs give equal results (tests compare); a bad configuration never changes
what is enforced: the last good one stays, and where there is none the built-in list stands in.

How a bad configuration shows: its problems (log, metrics by reason) each time; ``Intent.in_force`` is ``kept``. On the
last good one the feature is ready, since nothing is weaker than before, and a rollout must not stall on an old node. At
the very first start nothing says what the user wants, so ``degraded`` says why the feature is not ready.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import chain
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from podgate.features.masquerade.choosing import ConfigTexts, choose
from podgate.features.masquerade.config import Config, default_entries, from_kept, kept_bytes, merge
from podgate.features.masquerade.families import Fallback, FamilyCompiler, listed_entries
from podgate.features.masquerade.intent import (
    AGENT_NEVER,
    NO_IPV6_RANGE,
    FamilyIntent,
    InForce,
    Intent,
    NeverList,
    NodeFacts,
)
from podgate.features.masquerade.ipv6 import Known, known, node_entries, unknown_range
from podgate.features.masquerade.last_good import KEPT_POLICIES, PolicyReader
from podgate.features.masquerade.own_pods import from_node, from_pod, internal_addresses, is_own, own_entries
from podgate.features.masquerade.policies import WrittenPolicy
from podgate.features.masquerade.port_room import port_problems
from podgate.features.masquerade.prefixes import Entry
from podgate.features.masquerade.reading import EMPTY_LIST, ConfigReading, Text, read
from podgate.features.masquerade.resolving import NodeView, Resolver, missing_addresses
from podgate.features.masquerade.settings import Settings
from podgate.joints import Compiled, Inputs
from podgate.model.frozen import ObjectRef, file_ref
from podgate.model.kinds.config import NAMESPACE
from podgate.model.kinds.nodes import NODE, Node
from podgate.model.kinds.pods import POD, Pod
from podgate.model.machine import Family, Machine
from podgate.model.problems import Problem, problems_by_object
from podgate.model.remembering import Remembered
from podgate.model.spelling import did_you_mean
from podgate.model.table import Table, mapped

KEPT: Final = "config.json"
"""The name under which the last good configuration is kept."""

StatesT = TypeVar("StatesT")


class ConfigInForce(NamedTuple):
    """Which configuration is in force, and why not the one that was written."""

    config: Config
    in_force: InForce
    keep: bytes | None
    degraded: str
    problems: tuple[Problem, ...]


def families_on(settings: Settings) -> tuple[Family, ...]:
    """Give the families that are masqueraded."""
    return ("ip", "ip6") if settings.enable_ipv6 else ("ip",)


class Compiler(Generic[StatesT]):
    """Compiles one node's inputs, again and again.

    Args:
        settings: the options.
        to_states: makes the feature's states of an intent; called only when the intent differs.
        refusals: gives a problem for each policy that the back end cannot express; those are left out.
    """

    def __init__(
        self,
        settings: Settings,
        to_states: Callable[[Intent], StatesT],
        refusals: Callable[[FamilyIntent], tuple[Problem, ...]] = lambda _part: (),
    ) -> None:
        self._settings = settings
        self._is_agent = settings.rules == "ip-masq-agent"
        self._families = families_on(settings)
        self._defaults = default_entries(all_reserved=settings.nomasq_all_reserved_ranges)
        self._readings: dict[Text, ConfigReading] = {}
        self._merge = Remembered(lambda *configs: merge(configs))
        self._from_kept = Remembered(from_kept)
        self._kept_bytes = Remembered(kept_bytes)
        self._digest = Remembered(lambda config: hashlib.sha256(self._kept_bytes(config)).hexdigest()[:12])
        self._own_pods = Remembered(_own_pods_of)
        self._from_node = Remembered(from_node)
        self._own_entries = Remembered(own_entries)
        self._facts = Remembered(_facts)
        self._ports = settings.ports
        self._policies = PolicyReader(self._families)
        self._resolver = Resolver(self._families)
        self._nodes_ipv6 = mapped(node_entries)
        self._ipv6 = Remembered(_ipv6)
        self._listed = {family: Remembered(_listed) for family in self._families}
        never = AGENT_NEVER if self._is_agent else NeverList()
        self._family = {family: FamilyCompiler(family, never) for family in self._families}
        self._expressible = {family: Remembered(partial(_expressible, refusals)) for family in self._families}
        self._problems = Remembered(lambda *problems: problems_by_object(problems))
        self._states = Remembered(to_states)

    def __call__(self, inputs: Inputs) -> Compiled[StatesT]:
        """Compile the newest inputs."""
        chosen = self.decide(inputs)
        policies = self._policies(inputs.objects, inputs.kept.get(KEPT_POLICIES))
        intent, own_problems = self._intent(inputs, chosen, policies.policies)
        kept = {KEPT: chosen.keep, KEPT_POLICIES: policies.keep}
        return Compiled(
            states=self._states(intent),
            problems=self._problems(*inputs.objects.faults, *chosen.problems, *policies.problems, *own_problems),
            keep={name: data for name, data in kept.items() if data is not None},
            degraded=chosen.degraded,
        )

    def decide(self, inputs: Inputs) -> ConfigInForce:
        """Choose the configuration: what is written, else the last good one, else the built-in list."""
        chosen = choose(self._settings, inputs)
        readings = self._read(chosen.texts)
        problems = (*_new(chosen, inputs), *chain.from_iterable(reading.problems for reading in readings))
        configs = [reading.config for reading in readings if reading.config is not None]
        if not chosen.bad and len(configs) == len(readings):
            config = self._join(chosen, configs)
            if not config.entries and not (chosen.texts and chosen.texts[0].alone):
                first = Problem(chosen.texts[0].ref, "warning", "EmptyList", chosen.texts[0].field, EMPTY_LIST)
                problems = (*problems, first)
            return ConfigInForce(config, chosen.in_force, self._kept_bytes(config), "", problems)
        return self._stand_in(inputs, problems)

    def _stand_in(self, inputs: Inputs, problems: tuple[Problem, ...]) -> ConfigInForce:
        data = inputs.kept.get(KEPT)
        if data is not None:
            last_good = self._from_kept(data, self._families)
            if last_good is not None:
                return ConfigInForce(last_good, "kept", data, "", problems)
            path = f"{self._settings.state_dir.rstrip('/')}/{KEPT}"
            message = "is not what podgate keeps there, and is not used: remove it"
            problems = (*problems, Problem(file_ref(path), "warning", "KeptUnusable", "", message))
        degraded = "the configuration is bad and no earlier one is known: the built-in list is in force"
        return ConfigInForce(Config(entries=self._defaults), "default", None, degraded, problems)

    def _read(self, texts: Iterable[Text]) -> list[ConfigReading]:
        """Read each text, or remember what came of it; what is no longer there is forgotten."""
        self._readings = {
            text: self._readings.get(text) or read(text, self._defaults, self._families) for text in texts
        }
        return list(self._readings.values())

    def _join(self, chosen: ConfigTexts, configs: list[Config]) -> Config:
        if not chosen.texts:
            return Config(entries=self._defaults)
        return configs[0] if chosen.texts[0].alone else self._merge(*configs)

    def _intent(
        self, inputs: Inputs, chosen: ConfigInForce, policies: tuple[WrittenPolicy, ...]
    ) -> tuple[Intent, tuple[Problem, ...]]:
        name = self._settings.node_name or inputs.machine.node_name
        nodes = inputs.objects.objects(NODE)
        node = nodes.get(ObjectRef(NODE.kind, name))
        ranges, problems = self._from_node(node or Node())
        if node is None and nodes:
            problems = (_unknown_node(name, nodes),)
        pods = inputs.objects.objects(POD)
        own_pods = self._own_pods(name)(pods)
        own = self._own_entries(ranges, own_pods, inputs.machine)
        facts = self._facts(inputs.machine, node, any(policy.interfaces for policy in policies))
        view = NodeView(name, pods, inputs.objects.objects(NAMESPACE), facts)
        resolved = self._resolver(policies, view, self._ports)
        config = chosen.config
        ipv6 = Known((), cluster=True)
        if "ip6" in self._families and not self._is_agent:
            ipv6 = self._ipv6(self._nodes_ipv6(nodes), own, config, inputs.machine)
            problems = problems if ipv6.cluster else (*problems, unknown_range(name))
        made = [
            self._expressible[family](
                self._family[family](
                    self._listed[family](config, family, ipv6.entries),
                    () if self._is_agent else own,
                    facts,
                    () if self._is_agent else resolved[family],
                    self._fallback(family, ipv6),
                )
            )
            for family in self._families
        ]
        intent = Intent(
            families=tuple(part for part, _ in made),
            node_name=name,
            random_fully=self._settings.random_fully,
            config=config,
            in_force=chosen.in_force,
            stands_in=bool(chosen.degraded),
            digest=self._digest(config),
            ports=self._ports,
        )
        missing = missing_addresses(policies, facts, name)
        refused = dict.fromkeys(problem for _, refused in made for problem in refused)
        return intent, (*problems, *missing, *port_problems(intent, len(own_pods)), *refused)

    def _fallback(self, family: Family, ipv6: Known) -> Fallback:
        if family == "ip6" and not ipv6.cluster:
            return Fallback("keep", rule=NO_IPV6_RANGE)
        return Fallback("masquerade", ports=self._ports)


def _expressible(
    refusals: Callable[[FamilyIntent], tuple[Problem, ...]], part: FamilyIntent
) -> tuple[FamilyIntent, tuple[Problem, ...]]:
    """Leave out what the back end cannot express, so that what is explained is what is written."""
    problems = refusals(part)
    if not problems:
        return part, ()
    refused = {problem.ref for problem in problems}
    policies = tuple(policy for policy in part.policies if policy.ref not in refused)
    return msgspec.structs.replace(part, policies=policies), problems


def _listed(config: Config, family: Family, ipv6: tuple[Entry, ...]) -> tuple[Entry, ...]:
    return (*listed_entries(config, family), *(ipv6 if family == "ip6" else ()))


def _ipv6(
    nodes: Mapping[ObjectRef, tuple[Entry, ...]], own: tuple[Entry, ...], config: Config, machine: Machine
) -> Known:
    return known(chain.from_iterable(nodes[ref] for ref in sorted(nodes)), own, config, machine)


def _new(chosen: ConfigTexts, inputs: Inputs) -> tuple[Problem, ...]:
    """Give the problems of a choice that are not the source's own, which are reported anyway."""
    return tuple(problem for problem in chosen.problems if problem not in inputs.objects.faults)


def _own_pods_of(node_name: str) -> mapped[ObjectRef, Pod, tuple[Entry, ...]]:
    return mapped(lambda ref, pod: from_pod(ref, pod) if is_own(pod, node_name) else None)


def _unknown_node(name: str, nodes: Table[ObjectRef, Node]) -> Problem:
    near = did_you_mean(name, sorted(ref.name for ref in nodes))
    message = f"there is no such Node{near}: give this node's name with --node-name"
    return Problem(ObjectRef(NODE.kind, name), "warning", "UnknownNode", "", message)


def _facts(machine: Machine, node: Node | None, with_routes: bool) -> NodeFacts:
    """Take the machine's addresses; without them, as from files alone, the internal ones that the Node tells."""
    local = tuple(address.address.ip for address in machine.addresses)
    if not local and node is not None:
        local = internal_addresses(node)
    broadcast = {address.broadcast for address in machine.addresses if address.broadcast is not None}
    routes = sorted(machine.routes, key=lambda route: -route.destination.prefixlen) if with_routes else ()
    return NodeFacts(local, tuple(sorted(broadcast)), tuple((route.destination, route.interface) for route in routes))
