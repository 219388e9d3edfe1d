"""compile: objects and policy files to what the proxy's process is told. Pure.

Here: which policies are in force, and since when nothing better is known. Not here: reading them (metadata's
compile.py), the profile and its switches, which are the proxy's own options.
Invariant: until everything could be read once, everybody gets the strictest rules; after that, while anything cannot be
read, no policy that is in force goes away. One that is known to be deleted goes, whatever is wrong with others: what it
allowed was taken back.
"""

from collections.abc import Sequence

import msgspec

from podgate.features.metadata.compile import has_unread, is_forbidden, known_clients, known_ranges, policies_of
from podgate.features.metadata.filter import NamedPolicy
from podgate.features.metadata.policy import METADATA_POLICY
from podgate.features.metadata.watched import MOST_TOLD, Watched
from podgate.features.metadata.watcher.settings import WatchSettings
from podgate.joints import Compiled, Inputs
from podgate.model.frozen import Frozen
from podgate.model.kinds.pods import POD
from podgate.model.problems import Problem, problems_by_object
from podgate.model.snapshot import Absent
from podgate.targets.cell.state import State as Told

KEPT = "policies"
"""The entry of what is kept that holds the policies in force."""

NO_SOURCE = (
    "there is no source of Pods and policies, so everybody gets the strictest rules: give --source or --kubeconfig, or "
    "mount the Pod's account"
)
FORBIDDEN = (
    "the API forbids reading Pods or policies, so everybody gets the strictest rules: see deploy/metadata/per-pod"
)
UNREAD = "a policy cannot be read: everybody gets the strictest rules"
LAST_GOOD = "a policy cannot be used as written: what was in force before it stays"


class States(Frozen, frozen=True):
    """What the watching process wants: what the proxy's process is told."""

    told: Told


def compile_watched(settings: WatchSettings, inputs: Inputs) -> Compiled[States]:
    """Compile the newest inputs."""
    policies, problems = policies_of(settings.policy_path, inputs)
    kept = _kept(inputs)
    why = _why(inputs, broken=bool(problems), kept=kept is not None)
    if why:
        policies += _missing(inputs, policies, problems, kept or [])
    name = settings.node_name or inputs.machine.node_name
    clients = known_clients(inputs, name, policies)
    wrong = [each for each in (*inputs.objects.faults, *problems) if each.severity == "error"]
    strictest = why not in ("", LAST_GOOD)
    if why in (LAST_GOOD, UNREAD):
        why = f"{why}; {_first_of(wrong)}"
    watched = Watched(
        policies=tuple(policies),
        clients=clients,
        pod_ranges=known_ranges(inputs, name, clients),
        strictest=strictest,
        why=why,
        problems=tuple(wrong[:MOST_TOLD]),
        unheard=inputs.objects.unheard.get(POD.kind),
    )
    keep = {} if watched.strictest else {KEPT: msgspec.json.encode(watched.policies)}
    found = problems_by_object((*inputs.objects.faults, *problems))
    return Compiled(States(Told(watched, shown(watched))), found, keep=keep, degraded=why)


def _why(inputs: Inputs, *, broken: bool, kept: bool) -> str:
    """Say why what is in force is not what users wrote; empty when it is."""
    if is_forbidden(inputs):
        return FORBIDDEN
    if _has_no_source(inputs):
        return NO_SOURCE
    if broken or has_unread(inputs):
        return LAST_GOOD if kept else UNREAD
    return ""


def _first_of(problems: Sequence[Problem]) -> str:
    """Name the first of several, in a line, and say how many more there are."""
    first = problems[0]
    words = ": ".join(word for word in (str(first.ref), first.field, first.message) if word)
    return words if len(problems) == 1 else f"{words} (and {len(problems) - 1} more)"


def _kept(inputs: Inputs) -> list[NamedPolicy] | None:
    """Give what was in force; None where nothing was, or where it cannot be read, as what another version wrote."""
    try:
        return msgspec.json.decode(inputs.kept[KEPT], type=list[NamedPolicy]) if KEPT in inputs.kept else None
    except msgspec.DecodeError:
        return None


def _missing(
    inputs: Inputs, policies: Sequence[NamedPolicy], problems: Sequence[Problem], kept: Sequence[NamedPolicy]
) -> list[NamedPolicy]:
    """Give what was in force and may be what is broken; all of it while anything cannot be read."""
    names = {policy.name for policy in policies}
    missing = [policy for policy in kept if policy.name not in names]
    others = any(problem.ref.kind != METADATA_POLICY.kind for problem in problems)
    if others or has_unread(inputs) or is_forbidden(inputs) or _has_no_source(inputs):
        return missing
    broken = {str(problem.ref) for problem in problems}
    return [policy for policy in missing if policy.name in broken]


def _has_no_source(inputs: Inputs) -> bool:
    """Say whether objects were wanted and there is nowhere to get them from."""
    found = inputs.objects.kinds.get(POD.kind)
    return isinstance(found, Absent) and found.why == "no source"


def shown(watched: Watched) -> str:
    """Give the line about what the proxy's process is told."""
    pods = "Pods unknown" if watched.clients is None else f"{len(watched.clients)} addresses of Pods"
    words = [pods, f"policies: {', '.join(policy.name for policy in watched.policies) or 'none'}"]
    words += [f"Pods are in {' '.join(watched.pod_ranges)}"] if watched.pod_ranges else []
    return "; ".join([*words, *(["strictest rules for everybody"] * watched.strictest)])
