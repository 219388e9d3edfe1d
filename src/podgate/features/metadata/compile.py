"""compile: inputs and settings to the intent of this node, and problems.

Here: objects, files and the machine. Not here: what the proxy's own process reads (assemble.py), the writers.
Invariant: until policies and Pods are known, and while a policy is broken, everybody gets the strictest rules.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from podgate.features.metadata.assemble import as_problems, filter_of
from podgate.features.metadata.clients import PodFacts, clients_of, ranges_in_use
from podgate.features.metadata.filter import Client, Filter, NamedPolicy
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
from podgate.model.snapshot import Absent, Listed, Watch

StatesT = TypeVar("StatesT")

FILES: Final = "*.[jy]*"
"""The names that count in a folder of policies: ``.json``, ``.yaml``, ``.yml``."""
_SUFFIXES: Final = (".json", ".yaml", ".yml")


def file_watches(path: str | None) -> tuple[FileWatch, ...]:
    """Say which files are needed for a policy file or folder."""
    return () if path is None else (FileWatch(path, FILES),)


def node_watches(node_name: str | None) -> tuple[Watch, ...]:
    """Need this node and its Pods, and none of other nodes; None: of all nodes."""
    node = Watch(NODE, field_selector=f"metadata.name={node_name}" if node_name else "")
    return (node, Watch(POD, field_selector=f"spec.nodeName={node_name}" if node_name else "", dated=True))


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
    policies, problems = policies_of(settings.policy_path, inputs)
    filter_ = _filter(settings, inputs, name, policies, broken=bool(problems))
    rules = node_rules(settings, inputs.machine, None if node is None else node.metadata.labels)
    allowed = tuple(map(str, settings.allowed_networks))
    return Intent(name, filter_, rules, allowed), problems


def _filter(settings: Settings, inputs: Inputs, node_name: str, policies: list[NamedPolicy], *, broken: bool) -> Filter:
    """Give the filter, with this node's Pods where they can be had."""
    clients = known_clients(inputs, node_name, policies)
    strictest = broken or is_forbidden(inputs) or has_unread(inputs)
    return filter_of(settings, policies, clients, known_ranges(inputs, node_name, clients), strictest=strictest)


def known_clients(inputs: Inputs, node_name: str, policies: Sequence[NamedPolicy]) -> dict[str, Client] | None:
    """Give this node's Pods by address; None when there is no list of them."""
    listed = isinstance(inputs.objects.kinds.get(POD.kind), Listed)
    return clients_of(_pods(inputs, node_name), policies) if listed else None


def known_ranges(inputs: Inputs, node_name: str, clients: Mapping[str, Client] | None) -> tuple[str, ...]:
    """Give the node's Pod ranges, where its Pods show that they are in use."""
    node = inputs.objects.objects(NODE).get(ObjectRef(NODE.kind, node_name))
    return ranges_in_use(node.pod_ranges if node is not None else (), clients or ())


def is_forbidden(inputs: Inputs) -> bool:
    """Say whether Pods or policies must not be read."""
    found = [inputs.objects.kinds.get(kind) for kind in (POD.kind, METADATA_POLICY.kind)]
    return any(isinstance(each, Absent) and each.why == "forbidden" for each in found)


def has_unread(inputs: Inputs) -> bool:
    """Say whether something could not be read: a policy may be among it."""
    kinds = ("File", METADATA_POLICY.kind)
    return any(fault.severity == "error" and fault.ref.kind in kinds for fault in inputs.objects.faults)


def _pods(inputs: Inputs, node_name: str) -> Iterator[PodFacts]:
    """Give the facts about this node's Pods that have a network, and so addresses, of their own."""
    pods: Iterable[tuple[ObjectRef, Pod]] = inputs.objects.objects(POD).items()
    for ref, pod in pods:
        here = pod.spec.node_name == node_name and not pod.spec.host_network
        if here and not pod.has_ended and pod.addresses:
            account = pod.spec.service_account_name or "default"
            yield PodFacts(ref.namespace, ref.name, account, pod.metadata.labels, pod.addresses)


def policies_of(path: str | None, inputs: Inputs) -> tuple[list[NamedPolicy], tuple[Problem, ...]]:
    """Give the policies of the objects and of the files at a path, and what is wrong with those left out."""
    found: list[NamedPolicy] = []
    problems: list[Problem] = []
    values = [(ref, policy.spec, "spec.") for ref, policy in sorted(inputs.objects.objects(METADATA_POLICY).items())]
    for file, content in _files(path, inputs):
        read = _document(content)
        inner = isinstance(read, dict) and "spec" in read
        values.append((file_ref(file), read["spec"] if inner else read, "spec." if inner else ""))
    for ref, value, below in values:
        spec = value if isinstance(value, Mistake) else _spec(value)
        wrong = [spec] if isinstance(spec, Mistake) else list(mistakes(spec))
        problems += as_problems(ref, wrong, below)
        if isinstance(spec, PolicySpec) and not wrong:
            found.append(NamedPolicy(str(ref), spec))
    return found, tuple(problems)


def _files(path: str | None, inputs: Inputs) -> list[tuple[str, FileContent]]:
    """Give the policy files with their paths."""
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
