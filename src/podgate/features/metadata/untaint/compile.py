"""compile: Nodes and the proxies' Pods to the Nodes that are to be freed of the taint. Pure.

Here: who is ready, and what to remove from which Node. Not here: removing it (targets/kubernetes/untainting.py).
Invariant: a Node is freed only while its own proxy is ready. A Pod that is going counts for nothing, nor does one older
than the Node: it was on the machine that had the name before, and the API may show it as ready for a minute.
"""

from collections.abc import Iterator
from typing import Final

from podgate.joints import Compiled, Inputs
from podgate.model.frozen import Frozen
from podgate.model.kinds.meta import ApiStruct, ObjectMeta
from podgate.model.kinds.nodes import NODE
from podgate.model.problems import problems_by_object
from podgate.model.snapshot import Kind, Listed
from podgate.targets.kubernetes.taints import Tainted, Taints


class Condition(ApiStruct, frozen=True, rename="camel", gc=False):
    """One of a Pod's conditions."""

    type: str = ""
    status: str = ""


class ProxySpec(ApiStruct, frozen=True, rename="camel", gc=False):
    """Where it runs."""

    node_name: str = ""


class ProxyStatus(ApiStruct, frozen=True, rename="camel", gc=False):
    """How it fares."""

    conditions: tuple[Condition, ...] = ()


class ProxyPod(ApiStruct, frozen=True, rename="camel", gc=False):
    """A Pod, as far as it is looked at here: all nodes' proxies are, so it is little."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ProxySpec = ProxySpec()
    status: ProxyStatus = ProxyStatus()

    @property
    def is_ready(self) -> bool:
        """Whether it serves, and goes on serving."""
        ready = any((each.type, each.status) == ("Ready", "True") for each in self.status.conditions)
        return ready and self.metadata.deletion_timestamp is None


PROXY: Final[Kind[ProxyPod]] = Kind(
    group="", version="v1", kind="Pod", plural="pods", namespaced=True, decodes_to=ProxyPod
)


class States(Frozen, frozen=True):
    """Whose taint is to go, and how many Nodes have it."""

    free: Taints
    tainted: int = 0


def compile_untaint(key: str, inputs: Inputs) -> Compiled[States]:
    """Compile the newest inputs."""
    ready: dict[str, str] = {}
    for pod in inputs.objects.objects(PROXY).values():
        if pod.is_ready:
            ready[pod.spec.node_name] = max(_made(pod.metadata), ready.get(pod.spec.node_name, ""))
    nodes = inputs.objects.objects(NODE)
    own = {ref.name for ref, node in nodes.items() if ref.name in ready and ready[ref.name] >= _made(node.metadata)}
    tainted = frozenset(_tainted(key, inputs))
    free = Taints(frozenset(each for each in tainted if each.node in own))
    absent = [kind for kind in (NODE.kind, PROXY.kind) if not isinstance(inputs.objects.kinds.get(kind), Listed)]
    why = f"{' and '.join(absent)} cannot be listed: see deploy/metadata/startup-taint for the rights" if absent else ""
    return Compiled(States(free, len(tainted)), problems_by_object(inputs.objects.faults), degraded=why)


def _made(metadata: ObjectMeta) -> str:
    """Give when an object was made: in the API's form, to the second and in UTC, times compare as texts do."""
    return metadata.creation_timestamp or ""


def _tainted(key: str, inputs: Inputs) -> Iterator[Tainted]:
    for ref, node in inputs.objects.objects(NODE).items():
        places = tuple(index for index, taint in enumerate(node.spec.taints) if taint.key == key)
        if places:
            yield Tainted(ref.name, node.metadata.uid, key, places)
