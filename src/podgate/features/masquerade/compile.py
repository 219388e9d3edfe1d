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
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, Final, Generic, NamedTuple, TypeVar

from podgate.features.masquerade.choosing import Chosen, choose
from podgate.features.masquerade.config import Config, default_entries, from_kept, kept_bytes, merge
from podgate.features.masquerade.intent import FamilyIntent, InForce, Intent, NodeFacts, Spans
from podgate.features.masquerade.own_pods import from_node, from_pod, internal_addresses, is_own, own_entries
from podgate.features.masquerade.prefixes import Entry, Span, family_of, kept, merged, resolve
from podgate.features.masquerade.reading import EMPTY_LIST, Reading, Text, read
from podgate.features.masquerade.settings import Settings
from podgate.joints import Compiled, Inputs
from podgate.model.frozen import ObjectRef, file_ref
from podgate.model.kinds.nodes import NODE, Node
from podgate.model.kinds.pods import POD, Pod
from podgate.model.machine import Family, IPAddress, Machine
from podgate.model.options import did_you_mean
from podgate.model.problems import Problem, problems_by_object
from podgate.model.table import Table, mapped

KEPT: Final = "config.json"
"""The name under which the last good configuration is kept."""

StatesT = TypeVar("StatesT")
T = TypeVar("T")


class _Remembered(Generic[T]):
    """A pure function that is called again only when an argument differs from the last call's."""

    def __init__(self, function: Callable[..., T]) -> None:
        self._function = function
        self._last: tuple[tuple[Any, ...], T] | None = None

    def __call__(self, *arguments: Any) -> T:
        if self._last is None or self._last[0] != arguments:
            self._last = (arguments, self._function(*arguments))
        return self._last[1]


class Decision(NamedTuple):
    """Which configuration is in force, and why not the one that was written."""

    config: Config
    in_force: InForce
    keep: bytes | None
    degraded: str
    problems: tuple[Problem, ...]


def families_on(_settings: Settings) -> tuple[Family, ...]:
    """Give the families that are masqueraded."""
    return ("ip",)


class Compiler(Generic[StatesT]):
    """Compiles one node's inputs, again and again.

    Args:
        settings: the options.
        to_states: makes the feature's states of an intent; called only when the intent differs.
    """

    def __init__(self, settings: Settings, to_states: Callable[[Intent], StatesT]) -> None:
        self._settings = settings
        self._families = families_on(settings)
        self._defaults = default_entries(all_reserved=settings.nomasq_all_reserved_ranges)
        self._readings: dict[Text, Reading] = {}
        self._merge = _Remembered(lambda *configs: merge(configs))
        self._from_kept = _Remembered(from_kept)
        self._kept_bytes = _Remembered(kept_bytes)
        self._digest = _Remembered(lambda config: hashlib.sha256(self._kept_bytes(config)).hexdigest()[:12])
        self._own_pods = _Remembered(_own_pods_of)
        self._from_node = _Remembered(from_node)
        self._own_entries = _Remembered(own_entries)
        self._facts = _Remembered(_facts)
        self._family = {family: _FamilyCompiler(family) for family in self._families}
        self._problems = _Remembered(lambda *problems: problems_by_object(problems))
        self._states = _Remembered(to_states)

    def __call__(self, inputs: Inputs) -> Compiled[StatesT]:
        """Compile the newest inputs."""
        decision = self.decide(inputs)
        intent, own_problems = self._intent(inputs, decision)
        return Compiled(
            states=self._states(intent),
            problems=self._problems(*inputs.objects.faults, *decision.problems, *own_problems),
            keep={} if decision.keep is None else {KEPT: decision.keep},
            degraded=decision.degraded,
        )

    def decide(self, inputs: Inputs) -> Decision:
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
            return Decision(config, chosen.in_force, self._kept_bytes(config), "", problems)
        return self._stand_in(inputs, problems)

    def _stand_in(self, inputs: Inputs, problems: tuple[Problem, ...]) -> Decision:
        data = inputs.kept.get(KEPT)
        if data is not None:
            last_good = self._from_kept(data, self._families)
            if last_good is not None:
                return Decision(last_good, "kept", data, "", problems)
            path = f"{self._settings.state_dir.rstrip('/')}/{KEPT}"
            message = "is not what podgate keeps there, and is not used: remove it"
            problems = (*problems, Problem(file_ref(path), "warning", "KeptUnusable", "", message))
        degraded = "the configuration is bad and no earlier one is known: the built-in list is in force"
        return Decision(Config(entries=self._defaults), "default", None, degraded, problems)

    def _read(self, texts: Iterable[Text]) -> list[Reading]:
        """Read each text, or remember what came of it; what is no longer there is forgotten."""
        self._readings = {
            text: self._readings.get(text) or read(text, self._defaults, self._families) for text in texts
        }
        return list(self._readings.values())

    def _join(self, chosen: Chosen, configs: list[Config]) -> Config:
        if not chosen.texts:
            return Config(entries=self._defaults)
        return configs[0] if chosen.texts[0].alone else self._merge(*configs)

    def _intent(self, inputs: Inputs, decision: Decision) -> tuple[Intent, tuple[Problem, ...]]:
        name = self._settings.node_name or inputs.machine.node_name
        nodes = inputs.objects.objects(NODE)
        node = nodes.get(ObjectRef(NODE.kind, name))
        ranges, problems = self._from_node(node or Node())
        if node is None and nodes:
            problems = (_unknown_node(name, nodes),)
        pods = self._own_pods(name)(inputs.objects.objects(POD))
        own = self._own_entries(ranges, pods, inputs.machine)
        facts = self._facts(inputs.machine, node)
        config = decision.config
        intent = Intent(
            families=tuple(self._family[family](config, own, facts) for family in self._families),
            node_name=name,
            random_fully=self._settings.random_fully,
            config=config,
            in_force=decision.in_force,
            digest=self._digest(config),
        )
        return intent, problems


class _FamilyCompiler:
    """One family's part of the intent. Tables are updated, so that unchanged shards stay the same objects."""

    def __init__(self, family: Family) -> None:
        self._family = family
        self._last = FamilyIntent(family)
        self._remembered = _Remembered(self._made)

    def __call__(self, config: Config, own: tuple[Entry, ...], facts: NodeFacts) -> FamilyIntent:
        self._last = self._remembered(config, own, facts)
        return self._last

    def _made(self, config: Config, own: tuple[Entry, ...], facts: NodeFacts) -> FamilyIntent:
        link_local = config.link_local(self._family)
        listed = (*config.entries, *(() if link_local is None else (link_local,)))
        intervals = resolve(entry for entry in listed if family_of(entry.network) == self._family)
        own_intervals = resolve(entry for entry in own if family_of(entry.network) == self._family)
        return FamilyIntent(
            family=self._family,
            own_pods=_updated(self._last.own_pods, merged((low, high) for low, high, _ in own_intervals)),
            keep=_updated(self._last.keep, kept(intervals)),
            own_intervals=own_intervals,
            intervals=intervals,
            facts=NodeFacts(_of(self._family, facts.local), _of(self._family, facts.broadcast)),
        )


def _updated(before: Spans, spans: tuple[Span, ...]) -> Spans:
    after = frozenset(spans)
    return before.updated(dict.fromkeys(spans, "keep"), removed=[span for span in before if span not in after])


def _of(family: Family, addresses: Iterable[IPAddress]) -> tuple[IPAddress, ...]:
    return tuple(address for address in addresses if family_of(address) == family)


def _new(chosen: Chosen, inputs: Inputs) -> tuple[Problem, ...]:
    """Give the problems of a choice that are not the source's own, which are reported anyway."""
    return tuple(problem for problem in chosen.problems if problem not in inputs.objects.faults)


def _own_pods_of(node_name: str) -> mapped[ObjectRef, Pod, tuple[Entry, ...]]:
    return mapped(lambda ref, pod: from_pod(ref, pod) if is_own(pod, node_name) else None)


def _unknown_node(name: str, nodes: Table[ObjectRef, Node]) -> Problem:
    near = did_you_mean(name, sorted(ref.name for ref in nodes))
    message = f"there is no such Node{near}: give this node's name with --node-name"
    return Problem(ObjectRef(NODE.kind, name), "warning", "UnknownNode", "", message)


def _facts(machine: Machine, node: Node | None) -> NodeFacts:
    """Take the machine's addresses; without them, as from files alone, the internal ones that the Node tells."""
    local = tuple(address.address.ip for address in machine.addresses)
    if not local and node is not None:
        local = internal_addresses(node)
    broadcast = {address.broadcast for address in machine.addresses if address.broadcast is not None}
    return NodeFacts(local, tuple(sorted(broadcast)))
