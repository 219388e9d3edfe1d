"""Words for tests of one list and watch as a state machine: events of ConfigMaps, refusals, what is asked next.

Here: making and asking. Not here: servers (fake_apiserver.py, and the one of histories in test_watching_histories.py).
Invariant: nothing is sent; a watch is told what came of it by the test.
"""

from podgate.kubeapi.answers import Refusal
from podgate.kubeapi.frames import Batch, Bookmark, Gone, Put
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.config import CONFIG_MAP, ConfigMap
from podgate.model.kinds.meta import ObjectMeta
from podgate.model.snapshot import Watch
from podgate.sources.kube.standing import Standing
from podgate.sources.kube.watching import Watching

EXPIRED = Refusal(410, "Expired")
NO_STREAM = Refusal(500, "InternalError", "the storage feature RequestWatchProgress is disabled")
FORBIDDEN, MISSING = Refusal(403, "Forbidden"), Refusal(404, "NotFound")


def ref(name: str) -> ObjectRef:
    return ObjectRef("ConfigMap", name, "default")


def put(name: str, value: str = "") -> Put[ConfigMap]:
    return Put(ref(name), ConfigMap(ObjectMeta(name=name, namespace="default"), {"v": value}))


def end(version: str, *events: Put[ConfigMap] | Gone) -> Batch:
    return Batch((*events, Bookmark(initial_end=True)), version)


def fresh() -> Watching:
    return Watching(Watch(CONFIG_MAP))


def listed(*names: str, version: str = "5") -> Watching:
    watching = fresh()
    watching.request(0)
    watching.batch(end(version, *map(put, names)))
    return watching


def asks(watching: Watching) -> str:
    """Say what the next request is for, once it is known that the store stands where the watch does."""
    if watching.asks == "version":
        watching.request(0.5)
        watching.stands(Standing(watching.resource_version))
    query = watching.request(0.5).parameters()
    if "sendInitialEvents" in query:
        return "stream"
    return f"since {query['resourceVersion']}" if "watch" in query else f"page {query.get('continue', '')}".strip()


def names(watching: Watching) -> set[str]:
    return {found.name for found in watching.objects}
