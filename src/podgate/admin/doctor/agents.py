"""Agents: which Pods and DaemonSets of a cluster are podgate's, and which nodes have none. Pure.

Here: from manifests and Pods, as plain maps, to agents, and findings about them. Not here: rights (rights.py), reading
objects (examining.py).
Invariant: an agent is known by what its container runs, so one that was renamed is found, and another's is not.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from podgate.commandline.findings import Finding
from podgate.model.frozen import Frozen, ObjectRef

Object = Mapping[str, Any]

PROGRAMS: Final = {"ip-masq-agent": "masquerade", "metadata-proxy": "metadata", "kube-proxy": "services"}
"""Programs that take the place of another project's, and the features that they are. Also those projects' images."""

A_MOMENT: Final = 60.0
"""Seconds that a new agent has until it is missed among those that report: thousands do at the same time."""

_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_NODE_NAME: Final = "metadata.name"
_SOURCE_VARIABLE: Final = "PODGATE_SOURCE"


class AgentContainer(Frozen, frozen=True):
    """What a container of a Pod, or of a DaemonSet's template, runs.

    Attributes:
        feature: as ``masquerade``.
        verb: ``run``, or another that stays.
        words: its further arguments.
        image: of the container.
        ours: it runs podgate; an image of the project whose place it takes may be that project's own.
        by_files: its environment leads to manifests, which come before its account's API.
    """

    feature: str
    verb: str
    words: tuple[str, ...]
    image: str
    ours: bool = True
    by_files: bool = False


class AgentPod(Frozen, frozen=True):
    """An agent's Pod.

    Attributes:
        node: where it is, or is to be; empty for not known.
        asks: it has a token for the API.
        account: namespace and name of its service account.
        trouble: why it is not ready; empty when it is.
        since: when it became ready, in seconds since 1970; 0 where nobody says.
        set: the DaemonSet that it belongs to; empty for none.
    """

    agent: AgentContainer
    ref: ObjectRef
    node: str
    asks: bool
    account: tuple[str, str]
    trouble: str = ""
    since: float = 0.0
    set: str = ""


class DaemonSet(Frozen, frozen=True):
    """A DaemonSet that has agents."""

    agents: tuple[AgentContainer, ...]
    ref: ObjectRef
    selector: Mapping[str, str] = {}


def agents_in(spec: Object, features: Iterable[str]) -> tuple[AgentContainer, ...]:
    """Give the agents among the containers of a Pod's spec."""
    known = set(features)
    return tuple(filter(None, (_agent(container, known) for container in spec.get("containers") or ())))


def _agent(container: Object, features: set[str]) -> AgentContainer | None:
    words = [str(word) for word in (*(container.get("command") or ()), *(container.get("args") or ()))]
    image = str(container.get("image", ""))
    for at, word in enumerate(words[:-1]):
        if word in features and words[at + 1] in {"run", "watch"}:
            by_files = any(each.get("name") == _SOURCE_VARIABLE for each in container.get("env") or ())
            return AgentContainer(word, words[at + 1], tuple(words[at + 2 :]), image, by_files=by_files)
    program = words[0].rpartition("/")[2] if container.get("command") else _last(image)
    if PROGRAMS.get(program) in features:
        given = words[1:] if container.get("command") else words
        return AgentContainer(PROGRAMS[program], "run", tuple(given), image, ours=False)
    return None


def _last(image: str) -> str:
    """Give the last part of an image's name, without tag and digest."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0]


def placed_in(pod: Object, features: Iterable[str]) -> Iterator[AgentPod]:
    """Give the agents of a Pod; one that has ended, or is going, has none."""
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    if status.get("phase") in {"Succeeded", "Failed"} or "deletionTimestamp" in metadata:
        return
    namespace = metadata.get("namespace") or "default"
    owners = (each for each in metadata.get("ownerReferences") or () if each.get("controller"))
    sets = [str(each["name"]) for each in owners if each.get("kind") == "DaemonSet"]
    mounts = (mount for each in spec.get("containers") or () for mount in each.get("volumeMounts") or ())
    asks = any(mount.get("mountPath") == _ACCOUNT for mount in mounts)
    for agent in agents_in(spec, features):
        yield AgentPod(
            agent=agent,
            ref=ObjectRef("Pod", metadata["name"], namespace),
            node=spec.get("nodeName") or _meant_for(spec),
            asks=asks,
            account=(namespace, spec.get("serviceAccountName") or "default"),
            trouble=_trouble(status),
            since=_ready_since(status),
            set=sets[0] if sets else "",
        )


def _meant_for(spec: Object) -> str:
    """Give the node that a DaemonSet made a Pod for, which is not there yet (it is in its affinity)."""
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    for term in affinity.get("nodeSelectorTerms") or ():
        for each in term.get("matchFields") or ():
            if each.get("key") == _NODE_NAME and each.get("values"):
                return str(each["values"][0])
    return ""


def _trouble(status: Object) -> str:
    """Say why a Pod is not ready."""
    conditions = {each.get("type"): each for each in status.get("conditions") or ()}
    if conditions.get("Ready", {}).get("status") == "True":
        return ""
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        ended = (container.get("lastState") or {}).get("terminated") or {}
        if waiting.get("reason"):
            code = f", last exit code {ended['exitCode']}" if "exitCode" in ended else ""
            return f"{container['name']}: {waiting['reason']}{code}"
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return str(scheduled.get("message") or "it is not scheduled")
    return "it runs and is not ready" if status.get("phase") == "Running" else "it has not started"


def _ready_since(status: Object) -> float:
    for each in status.get("conditions") or ():
        if each.get("type") == "Ready" and each.get("lastTransitionTime"):
            try:
                return datetime.fromisoformat(each["lastTransitionTime"]).timestamp()
            except ValueError:
                return 0.0
    return 0.0


def daemonset_of(obj: Object, features: Iterable[str]) -> DaemonSet | None:
    """Give a DaemonSet that has agents."""
    spec = ((obj.get("spec") or {}).get("template") or {}).get("spec") or {}
    agents = agents_in(spec, features)
    metadata = obj["metadata"]
    ref = ObjectRef("DaemonSet", metadata["name"], metadata.get("namespace") or "default")
    return DaemonSet(agents, ref, spec.get("nodeSelector") or {}) if agents else None


def of_feature(
    feature: str, pods: Iterable[AgentPod], sets: Iterable[DaemonSet]
) -> tuple[list[AgentPod], list[DaemonSet]]:
    """Give the Pods and DaemonSets that run one feature on nodes."""
    found = [each for each in pods if (each.agent.feature, each.agent.verb) == (feature, "run")]
    return found, [each for each in sets if any((a.feature, a.verb) == (feature, "run") for a in each.agents)]


def node_findings(
    feature: str, nodes: Sequence[Object], pods: Sequence[AgentPod], sets: Sequence[DaemonSet]
) -> Iterator[Finding]:
    """Say of a feature that is installed which nodes have no agent, a bad one, or two."""
    name = f"{feature}: nodes"
    good, left_out = 0, []
    by_node: dict[str, list[AgentPod]] = {}
    for pod in pods:
        by_node.setdefault(pod.node, []).append(pod)
    for node in nodes:
        metadata = node["metadata"]
        labels = metadata.get("labels") or {}
        if labels.get("kubernetes.io/os", "linux") != "linux":
            continue
        here = by_node.get(metadata["name"], [])
        sound = [each for each in here if not each.trouble]
        if len({each.set or str(each.ref) for each in here}) > 1:
            two = ", ".join(sorted(each.set or str(each.ref) for each in here))
            yield Finding(name, "bad", f"{metadata['name']} has more than one agent: {two}", "delete all but one")
        elif here and not sound:
            logs = f"kubectl logs -n {here[0].ref.namespace} {here[0].ref.name} says more"
            yield Finding(name, "bad", f"{metadata['name']}: {here[0].ref}: {here[0].trouble}", logs)
        elif here:
            good += 1
        elif missing := _missing(labels, sets):
            left_out.append((metadata["name"], missing))
        else:
            todo = f"kubectl describe -n {sets[0].ref.namespace} ds/{sets[0].ref.name} says more" if sets else ""
            yield Finding(name, "bad", f"{metadata['name']} has no agent", todo or "run one there")
    if left_out:
        shown = ", ".join(each for each, _ in left_out[:5]) + (" …" if len(left_out) > 5 else "")
        todo = f"where it should run: kubectl label node NAME {left_out[0][1]}"
        yield Finding(name, "off", f"{len(left_out)} not selected by {sets[0].ref}: {shown}", todo)
    yield Finding(name, "ok" if good or not nodes else "off", f"{good} of {len(nodes)} have a ready agent")


def silent_findings(feature: str, pods: Sequence[AgentPod], reported: Collection[str], now: float) -> Iterator[Finding]:
    """Say which nodes' agents seem well and have never reported: what they do comes from the API.

    Args:
        feature: its name.
        pods: its agents that report.
        reported: the nodes that have a report of it.
        now: seconds since 1970, by our clock, which may be behind the cluster's; one that is ready only just now, by
            either, may report in a moment.
    """
    well = [each for each in pods if each.node and not each.trouble]
    silent = [each for each in well if each.node not in reported]
    for each in silent:
        if abs(now - each.since) < A_MOMENT:
            seen = f"{each.node}: {each.ref} has just become ready, and has not reported yet"
            yield Finding(f"{feature}: reports", "unknown", seen, "look again in a minute")
            continue
        seen = f"{each.node}: {each.ref} has never reported, so it may not reach the API"
        todo = f"kubectl logs -n {each.ref.namespace} {each.ref.name} says why"
        yield Finding(f"{feature}: reports", "bad", seen, todo)
    if well and not silent:
        yield Finding(f"{feature}: reports", "ok", f"all {len(well)} ready agents have reported")


def _missing(labels: Mapping[str, str], sets: Sequence[DaemonSet]) -> str:
    """Give the first label that keeps a node out of every DaemonSet; empty when one selects it."""
    missing = [
        next((f"{key}={value}" for key, value in each.selector.items() if labels.get(key) != value), "")
        for each in sets
    ]
    return missing[0] if missing and all(missing) else ""


def image_findings(feature: str, agents: Iterable[AgentContainer], version: str) -> Iterator[Finding]:
    """Say which images a feature's agents run."""
    name = f"{feature}: version"
    images = sorted({agent.image for agent in agents if agent.image})
    others = sorted({agent.image for agent in agents if not agent.ours})
    if others:
        seen = f"{', '.join(others)}: may be the program whose place podgate takes"
        yield Finding(name, "unknown", seen, "its log says: podgate's begins with what it is")
    elif len(images) > 1:
        yield Finding(name, "bad", f"agents run {', '.join(images)}", "finish the update, or put all back to one image")
    elif images:
        yield Finding(name, "ok", f"agents run {images[0]}; this is podgate {version}")
