"""Cluster: what the API has of a set of add-ons, and doing the steps of a plan to it.

Here: requests, and what answers mean. Not here: what is to be done (plan.py), when (keeping.py).
Invariant: an object is deleted by the uid that was seen, never a later one of the same name.

Whether applying a manifest would change something is the API's own answer, to a dry run: it alone knows its defaults,
its spellings of a quantity, and what admission adds.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from podgate.admin.addons.folder import MODE_LABEL, Addon, Folder
from podgate.admin.addons.plan import WORKLOADS, AddonStep, Found, WantedAddon
from podgate.admin.addons.workloads import all_started, counted, is_ready, on_host, selected
from podgate.admin.reaching import Ask, listed
from podgate.kubeapi.answers import Refusal
from podgate.kubeapi.connection import Answer, UnreachableError
from podgate.kubeapi.discovery import kinds_of, kinds_request
from podgate.kubeapi.requests import Request, apply, create, delete, dry_run, get
from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.kinds.pods import POD
from podgate.model.snapshot import Kind, Watch
from podgate.model.spelling import did_you_mean
from podgate.targets.kubernetes.ownership import owned_parts
from podgate.targets.kubernetes.state import canonical

MANAGER: Final = "podgate-addons-"
"""Our field manager, before the name of a set of add-ons."""

_AT_ONCE: Final = 8
_API_WRITES: Final = ("managedFields", "resourceVersion", "generation", "creationTimestamp", "uid", "selfLink")


def _kinds(group: str, version: str, *names: str, namespaced: bool = True) -> Iterator[Kind[Any]]:
    for name in names:
        plural = f"{name.lower()[:-1]}ies" if name.endswith("y") else f"{name.lower()}s"
        yield Kind(group, version, name, plural, namespaced, dict)


REMOVED: Final = (
    *_kinds("", "v1", "ConfigMap", "Secret", "Service", "ServiceAccount"),
    *_kinds("apps", "v1", *WORKLOADS),
    *_kinds("batch", "v1", "Job", "CronJob"),
    *_kinds("policy", "v1", "PodDisruptionBudget"),
    *_kinds("networking.k8s.io", "v1", "NetworkPolicy"),
    *_kinds("rbac.authorization.k8s.io", "v1", "Role", "RoleBinding"),
    *_kinds("rbac.authorization.k8s.io", "v1", "ClusterRole", "ClusterRoleBinding", namespaced=False),
)
"""The kinds whose objects are removed when they left the folder. Not among them, since users' objects and data would go
with them: namespaces, definitions of kinds, volumes."""


class Survey(Frozen, frozen=True):
    """What is known of the cluster at one moment.

    Attributes:
        wanted: the add-ons whose kind the API has.
        found: objects of the API, each once.
        unlabelled: what stands in the folder without a mode, of the kinds that are removed.
        complaints: kinds that it does not have, and what it does not let us see: the folder is not whole then.
    """

    wanted: tuple[WantedAddon, ...]
    found: tuple[Found, ...]
    complaints: tuple[str, ...]
    unlabelled: frozenset[tuple[str, ObjectRef]] = frozenset()


class Cluster:
    """One API, and one set of add-ons in it.

    Args:
        ask: sends a request.
        name: the name of the set.
        namespace: where objects go that name none.
    """

    def __init__(self, ask: Ask, name: str, namespace: str) -> None:
        self._ask = ask
        self._manager = MANAGER + name
        self._namespace = namespace

    async def survey(self, folder: Folder) -> Survey:
        """Look at everything that a plan needs. Raises UnreachableError, also where the API is only busy."""
        kinds, complaints = await self._kinds_of({str(addon.body["apiVersion"]) for addon in folder.addons})
        wanted: list[WantedAddon] = []
        for addon in folder.addons:
            known = kinds.get(str(addon.body["apiVersion"]))
            if known is None:
                continue  # said once for all of its kinds
            kind = known.get(addon.kind)
            if kind is None:
                near = did_you_mean(addon.kind, known)
                complaints.append(f"{addon.place}: the API has no {addon.kind} in {addon.body['apiVersion']}{near}")
            else:
                wanted.append(WantedAddon(addon, kind, self._ref(addon, kind)))
        found: dict[tuple[str, ObjectRef], Found] = {}
        for each in await self._each(wanted, self._seen):
            if isinstance(each, Found):
                found[each.key] = each
        for more in await self._each(REMOVED, self._labelled):
            if isinstance(more, str):
                complaints.append(more)
            else:
                found.update({each.key: each for each in more if each.key not in found})
        unlabelled = frozenset(self._standing(folder))
        return Survey(tuple(wanted), tuple(found.values()), tuple(complaints), unlabelled)

    async def do(self, step: AddonStep) -> str:
        """Do one step; give why it was refused, or an empty text. Raises UnreachableError."""
        if step.found is not None:
            answer = await self._sent(delete(step.found.kind, step.ref, step.found.uid))
            return "" if not isinstance(answer, Refusal) or answer.code == 404 else str(answer)
        wanted = step.wanted
        if wanted is None:
            return ""
        if wanted.addon.mode == "EnsureExists":
            body = {**wanted.addon.body, "metadata": {**wanted.addon.body["metadata"], **_named(wanted)}}
            answer = await self._sent(_strict(create(wanted.kind, wanted.ref, body, self._manager)))
            return "" if not isinstance(answer, Refusal) or answer.code == 409 else str(answer)
        answer = await self._sent(self._apply(wanted))
        return _why(answer) if isinstance(answer, Refusal) else ""

    # --- looking ----------------------------------------------------------------------------------------------

    async def _kinds_of(self, versions: Iterable[str]) -> tuple[dict[str, Mapping[str, Kind[Any]]], list[str]]:
        found: dict[str, Mapping[str, Kind[Any]]] = {}
        complaints: list[str] = []
        for version in sorted(versions):
            answer = await self._sent(kinds_request(version))
            if isinstance(answer, Refusal):
                complaints.append(f"{version}: the API does not have it yet, or does not show it: {answer}")
            else:
                found[version] = kinds_of(version, answer)
        return found, complaints

    def _ref(self, addon: Addon, kind: Kind[Any]) -> ObjectRef:
        namespace = addon.body["metadata"].get("namespace") or self._namespace
        return ObjectRef(kind.kind, addon.name, namespace if kind.namespaced else "")

    def _standing(self, folder: Folder) -> Iterator[tuple[str, ObjectRef]]:
        """Give the keys of what stands in the folder without a mode."""
        removed = {(kind.group, kind.kind): kind for kind in REMOVED}
        for each in folder.unlabelled:
            if kind := removed.get((each.group, each.kind)):
                namespace = (each.namespace or self._namespace) if kind.namespaced else ""
                yield kind.group, ObjectRef(kind.kind, each.name, namespace)

    async def _seen(self, wanted: WantedAddon) -> Found | None:
        """Look at one object that is wanted."""
        answer = await self._sent(get(wanted.kind, wanted.ref))
        if isinstance(answer, Refusal):
            # What we may not see we may still be allowed to apply: the plan says "create" and the API says what it is.
            return None
        found = await self._with_pods(seen(wanted.kind, answer, self._manager), answer)
        if wanted.addon.mode == "EnsureExists" or found.going:
            return found
        fields = canonical(_fields(wanted.addon))
        if any(part.body == fields for _, part in owned_parts(answer, wanted.kind, self._manager)):
            return found
        would = await self._sent(dry_run(self._apply(wanted)))
        if isinstance(would, Refusal):
            return msgspec.structs.replace(found, differs=True, refused=_why(would))
        # The first apply changes who owns the fields, and maybe nothing else: it is done, so that they are ours.
        return msgspec.structs.replace(found, differs=not found.ours or _content(would) != _content(answer))

    async def _labelled(self, kind: Kind[Any]) -> list[Found] | str:
        """Look at the objects of a kind that have the label of mode Reconcile; or say why not."""
        items = await listed(self._ask_now, Watch(kind, label_selector=f"{MODE_LABEL}=Reconcile"))
        if isinstance(items, Refusal):
            return [] if items.code == 404 else f"{kind.kind}: what left the folder cannot be seen: {items}"
        return [seen(kind, item, self._manager) for item in items]

    async def _with_pods(self, found: Found, data: bytes) -> Found:
        """Look at the Pods of a workload that may have to start beside another one."""
        if found.ready or not found.on_host:
            return found
        obj = msgspec.json.decode(data)
        pods = await listed(self._ask_now, Watch(POD, found.ref.namespace, selected(obj)))
        started = not isinstance(pods, Refusal) and all_started(obj, map(msgspec.json.decode, pods))
        return msgspec.structs.replace(found, started=started)

    # --- asking -----------------------------------------------------------------------------------------------

    def _apply(self, wanted: WantedAddon) -> Request:
        return _strict(apply(wanted.kind, wanted.ref, _fields(wanted.addon), self._manager, force=True))

    async def _sent(self, request: Request) -> bytes | Refusal:
        answer = await self._ask_now(request)
        return answer.body if answer.refused is None else answer.refused

    async def _ask_now(self, request: Request) -> Answer:
        """Send; a refusal that says something about the API, not about this request, is a failure.

        A 500 is about the request: so an API server answers an apply with a field that is in no schema.
        """
        answer = await self._ask(request)
        if answer.refused is not None and answer.refused.code in {401, 429, 502, 503, 504}:
            raise UnreachableError(f"{request.what}: {answer.refused}")
        return answer

    @staticmethod
    async def _each(items: Iterable[Any], look: Callable[[Any], Any]) -> list[Any]:
        """Look at some things, a few at a time; results in order. Raises UnreachableError."""
        waiting = list(enumerate(items))[::-1]
        results: dict[int, Any] = {}

        async def work() -> None:
            while waiting:
                number, item = waiting.pop()
                results[number] = await look(item)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(_AT_ONCE, len(waiting))):
                    group.create_task(work())
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from failed
        return [results[number] for number in sorted(results)]


def seen(kind: Kind[Any], data: bytes, manager: str) -> Found:
    """Give what a plan needs to know of an object."""
    obj = msgspec.json.decode(data)
    metadata = obj["metadata"]
    labels = metadata.get("labels") or {}
    names = (str(each.get("manager", "")) for each in metadata.get("managedFields") or ())
    sets = sorted({name for name in names if name.startswith(MANAGER)})
    return Found(
        kind=kind,
        ref=ObjectRef(kind.kind, metadata["name"], metadata.get("namespace", "") if kind.namespaced else ""),
        uid=metadata["uid"],
        mode=labels.get(MODE_LABEL, ""),
        ours=manager in sets,
        owner="" if manager in sets or not sets else sets[0],
        controlled=any(each.get("controller") for each in metadata.get("ownerReferences") or ()),
        going="deletionTimestamp" in metadata,
        labels=labels,
        on_host=kind.kind in WORKLOADS and on_host(obj),
        ready=kind.kind in WORKLOADS and is_ready(obj),
        pods=counted(obj) if kind.kind in WORKLOADS else (0, 0),
    )


def _fields(addon: Addon) -> dict[str, Any]:
    """Give the fields that are ours: all but what names the object."""
    metadata = {key: part for key, part in addon.body["metadata"].items() if key not in {"name", "namespace"}}
    return {**{k: v for k, v in addon.body.items() if k not in {"apiVersion", "kind"}}, "metadata": metadata}


def _named(wanted: WantedAddon) -> dict[str, str]:
    return {"name": wanted.ref.name, **({"namespace": wanted.ref.namespace} if wanted.ref.namespace else {})}


def _strict(request: Request) -> Request:
    """Have a field that the API does not know refused, as kubectl does, instead of dropped in silence (KEP-2885)."""
    return msgspec.structs.replace(request, query=(*request.query, ("fieldValidation", "Strict")))


def _content(data: bytes) -> bytes:
    """Give what is in an object but for its status and what the API notes about writes."""
    obj = msgspec.json.decode(data)
    metadata = {key: part for key, part in obj["metadata"].items() if key not in _API_WRITES}
    return canonical({**{k: v for k, v in obj.items() if k != "status"}, "metadata": metadata})


def _why(refusal: Refusal) -> str:
    immutable = " (put a version into its name, and both exist until the new one is ready)"
    return f"{refusal}{immutable if 'immutable' in refusal.message else ''}"
