"""compile: inputs and settings to the intent of this node, and problems.

Here: objects, files and the machine. Not here: what the proxy's own process reads (assemble.py), the writers.
Invariant: until policies and Pods are known, and while a policy is broken, everybody gets the strictest rules.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Generic, TypeVar

import msgspec

from podgate.features.metadata.assemble import as_problems, filter_of
from podgate.features.metadata.clients import PodFacts, clients_of
from podgate.features.metadata.filter import Filter, NamedPolicy
from podgate.features.metadata.intent import Intent
from podgate.features.metadata.node_rules import node_rules
from podgate.features.metadata.policy import METADATA_POLICY
from podgate.features.metadata.settings import Settings
from podgate.features.metadata.spec import Mistake, PolicySpec, from_msgspec, mistakes
from podgate.joints import Compiled, Inputs
from podgate.model.documents import parse
from podgate.model.files import Directory, FileContent, FileWatch, Missing, Present, Unreadable
from podgate.model.frozen import ObjectRef, file_ref
from podgate.model.kinds.nodes import NODE
from podgate.model.kinds.pods import POD, Pod
from podgate.model.problems import Problem, problems_by_object
from podgate.model.snapshot import Absent, Listed

StatesT = TypeVar("StatesT")

FILES: Final = "*.[jy]*"
"""The names that count in a folder of policies: ``.json``, ``.yaml``, ``.yml``."""
_SUFFIXES: Final = (".json", ".yaml", ".yml")
_ENDED: Final = frozenset({"Succeeded", "Failed"})


def file_watches(settings: Settings) -> tuple[FileWatch, ...]:
    """Say which files are needed."""
    path = settings.policy_path
    return () if path is None else (FileWatch(path, FILES),)


class Compiler(Generic[StatesT]):
    """Compiles one node's inputs, again and again; equal intents are one object.

    Args:
        settings: the options.
        to_states: makes the feature's states of an intent; called only when the intent differs.
    """

    def __init__(self, settings: Settings, to_states: Callable[[Intent], StatesT]) -> None:
        self._settings = settings
        self._to_states = to_states
        self._last: tuple[Intent, StatesT] | None = None

    def __call__(self, inputs: Inputs) -> Compiled[StatesT]:
        """Compile the newest inputs."""
        intent, problems = intent_of(self._settings, inputs)
        if self._last is None or self._last[0] != intent:
            self._last = (intent, self._to_states(intent))
        degraded = "a policy cannot be read: everybody gets the strictest rules" if intent.filter.strictest else ""
        return Compiled(self._last[1], problems_by_object((*inputs.objects.faults, *problems)), degraded=degraded)


def intent_of(settings: Settings, inputs: Inputs) -> tuple[Intent, tuple[Problem, ...]]:
    """Give what is wanted on this node, and what is wrong."""
    name = settings.node_name or inputs.machine.node_name
    node = inputs.objects.objects(NODE).get(ObjectRef(NODE.kind, name))
    policies, problems = _policies(settings, inputs)
    filter_ = _filter(settings, inputs, name, policies, broken=bool(problems))
    rules = node_rules(settings, inputs.machine, None if node is None else node.metadata.labels)
    ranges = node.pod_ranges if node is not None else ()
    allowed = tuple(map(str, settings.allowed_networks))
    return Intent(name, filter_, rules, ranges, allowed), problems


def _filter(settings: Settings, inputs: Inputs, node_name: str, policies: list[NamedPolicy], *, broken: bool) -> Filter:
    """Give the filter, with this node's Pods where they can be had."""
    listed = isinstance(inputs.objects.kinds.get(POD.kind), Listed)
    clients = clients_of(_pods(inputs, node_name), policies) if listed else None
    return filter_of(settings, policies, clients, strictest=broken or _unknown(inputs))


def _unknown(inputs: Inputs) -> bool:
    """Say whether there are objects, or may be, that could not be read: a policy could be among them."""
    for kind in (POD.kind, METADATA_POLICY.kind):
        found = inputs.objects.kinds.get(kind)
        if isinstance(found, Absent) and found.why == "forbidden":
            return True
    kinds = ("File", METADATA_POLICY.kind)
    return any(fault.severity == "error" and fault.ref.kind in kinds for fault in inputs.objects.faults)


def _pods(inputs: Inputs, node_name: str) -> Iterator[PodFacts]:
    """Give the facts about this node's Pods that have a network, and so addresses, of their own."""
    pods: Iterable[tuple[ObjectRef, Pod]] = inputs.objects.objects(POD).items()
    for ref, pod in pods:
        here = pod.spec.node_name == node_name and not pod.spec.host_network
        if here and pod.status.phase not in _ENDED and pod.addresses:
            account = pod.spec.service_account_name or "default"
            yield PodFacts(ref.namespace, ref.name, account, pod.metadata.labels, pod.addresses)


def _policies(settings: Settings, inputs: Inputs) -> tuple[list[NamedPolicy], tuple[Problem, ...]]:
    found: list[NamedPolicy] = []
    problems: list[Problem] = []
    values = [(ref, policy.spec, "spec.") for ref, policy in sorted(inputs.objects.objects(METADATA_POLICY).items())]
    for path, content in _files(settings, inputs):
        read = _document(content)
        if isinstance(read, Mistake):
            problems += as_problems(file_ref(path), [read])
        else:
            inner = isinstance(read, dict) and "spec" in read
            values.append((file_ref(path), read["spec"] if inner else read, "spec." if inner else ""))
    for ref, value, below in values:
        spec = _spec(value)
        wrong = [spec] if isinstance(spec, Mistake) else list(mistakes(spec))
        problems += as_problems(ref, wrong, below)
        if isinstance(spec, PolicySpec) and not wrong:
            found.append(NamedPolicy(str(ref), spec))
    return found, tuple(problems)


def _files(settings: Settings, inputs: Inputs) -> list[tuple[str, FileContent]]:
    """Give the policy files with their paths."""
    path = settings.policy_path
    if path is None:
        return []
    content = inputs.files.get(path, Missing())
    if not isinstance(content, Directory):
        return [(path, content)]
    names = [name for name in content.names if name.endswith(_SUFFIXES)]
    return [(inside, inputs.files.get(inside, Missing())) for inside in (f"{path}/{name}" for name in names)]


def _document(content: FileContent) -> Any:
    """Read a file that holds one document; a Mistake when it cannot be."""
    match content:
        case Present(data):
            parsed = parse(data)
            if parsed.fatal is not None:
                return Mistake("", "BadSyntax", f"line {parsed.fatal.line}: {parsed.fatal.message}")
            if len(parsed.documents) != 1:
                return Mistake(
                    "", "BadSyntax", f"holds {len(parsed.documents)} documents; write one policy into a file"
                )
            return parsed.documents[0]
        case Unreadable(why):
            return Mistake("", "Unreadable", f"cannot be read ({why}): check its mode and owner")
        case Directory():
            return Mistake("", "Unreadable", "is a folder inside a folder of policies; only files are read there")
        case Missing():
            return Mistake("", "Missing", "is not there: create it, or leave --policy out")


def _spec(value: Any) -> PolicySpec | Mistake:
    try:
        return msgspec.convert(value, PolicySpec)
    except msgspec.ValidationError as error:
        return from_msgspec(str(error))
