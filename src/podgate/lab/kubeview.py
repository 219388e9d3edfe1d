"""The objects of a Kubernetes API as a lab sees them: what is its own, with its writes already done. Pure.

Here: the newest of what watches and answers told, the writes that are on their way, which Nodes and Pods are ours.
Not here: requests (kubewrites.py), sending (kubestore.py).
Invariant: an object never goes back: what a watch tells late, from before an answer to one of our writes, does not
count; so a decision is never made twice.
"""

from collections.abc import Mapping
from typing import Final

from podgate.lab.controllers.writes import Objects, PutStatus, Write, performed
from podgate.lab.kinds import Object
from podgate.lab.kubewrites import TokenKey
from podgate.lab.podspec import decode_pod
from podgate.lab.validity import fault_of
from podgate.model.frozen import Frozen, ObjectRef

OWNER: Final = "lab.podgate.dev/lab"
"""The label of a Node or Host that says which lab it belongs to."""

OWNED: Final = ("Node", "Host")

_NEW: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""Taints that a Node has until its controller has seen it ready."""

_ACTED_ON: Final = frozenset({"Node", "Pod", "Host"})


class Pending(Frozen, frozen=True):
    """A write on its way, with a number to find it again."""

    number: int
    write: Write


class View:
    """The objects of one lab.

    Attributes:
        faults: objects that make no sense, with why; they are left out.
        pending: writes on their way, by object, in order.
    """

    def __init__(self, lab: str) -> None:
        self.faults: tuple[str, ...] = ()
        self.pending: dict[ObjectRef, tuple[Pending, ...]] = {}
        self._lab = lab
        self._told: Mapping[ObjectRef, Object] = {}
        self._answers: dict[ObjectRef, Object] = {}
        self._tokens: dict[TokenKey, str] = {}
        self._erased: set[str] = set()
        self._numbers = 0

    # --- what comes in ----------------------------------------------------------------------------------------

    def told(self, objects: Mapping[ObjectRef, Object]) -> None:
        """Take what the watches have now."""
        self._told = objects
        self._answers = {ref: obj for ref, obj in self._answers.items() if _is_newer(obj, objects.get(ref))}
        self._erased &= {obj["metadata"].get("uid", "") for obj in objects.values()}

    def submitted(self, write: Write) -> None:
        """Take a write of ours: from now on it counts as done."""
        self._numbers += 1
        self.pending[write.ref] = (*self.pending.get(write.ref, ()), Pending(self._numbers, write))

    def answered(self, entries: tuple[Pending, ...], obj: Object | None) -> None:
        """Take the API's answer to writes about one object: the object as it is now; None when they were refused."""
        ref = entries[0].write.ref
        numbers = {entry.number for entry in entries}
        rest = tuple(entry for entry in self.pending.get(ref, ()) if entry.number not in numbers)
        self.pending = {**self.pending, ref: rest}
        if not rest:
            del self.pending[ref]
        have = self.current(ref)
        if obj is not None and have is not None and _is_newer(obj, have):
            self._answers[ref] = obj

    def erased(self, obj: Object) -> None:
        """Take it that an object is gone for good, before the watch tells."""
        self._erased.add(obj["metadata"]["uid"])

    def token(self, key: TokenKey, text: str) -> None:
        """Take a token; an empty text forgets it."""
        if text:
            self._tokens[key] = text
        else:
            self._tokens.pop(key, None)

    # --- what is asked ----------------------------------------------------------------------------------------

    def current(self, ref: ObjectRef) -> Object | None:
        """Give an object as the API has it, for all that is known: without what is on its way."""
        return self._answers.get(ref) or self._told.get(ref)

    def expected(self, ref: ObjectRef) -> Object | None:
        """Give an object as it is with our writes done; None when there is none."""
        have = self.current(ref)
        if have is None or have["metadata"].get("uid") in self._erased:
            return None
        return performed({ref: have}, [entry.write for entry in self.pending.get(ref, ())]).get(ref)

    def seen(self, ref: ObjectRef, version: int) -> bool:
        """Whether an object is known at a resource version or a later one."""
        have = self.current(ref)
        return have is not None and version_of(have) >= version

    def objects(self) -> Objects:
        """Give the objects that concern this lab, with pending writes done, and its Pods' tokens."""
        base = {
            ref: self._answers.get(ref, obj)
            for ref, obj in self._told.items()
            if obj["metadata"].get("uid") not in self._erased
        }
        writes = [entry.write for entries in self.pending.values() for entry in entries]
        everything = performed(base, [write for write in writes if write.ref in base])
        own = self._own(everything)
        faults: list[str] = []
        kept: dict[ObjectRef, Object] = {}
        for ref, obj in everything.items():
            if not _concerns(ref, obj, own):
                continue
            fault = fault_of(obj) if ref.kind in _ACTED_ON else None
            if fault is None:
                kept[ref] = obj
            else:
                faults.append(f"{ref}: {fault.field}: {fault.message}")
        self.faults = tuple(faults)
        tokens = {key.ref: {"metadata": {"name": key.ref.name}, "token": text} for key, text in self._tokens.items()}
        return {**kept, **tokens}

    def _own(self, objects: Objects) -> frozenset[ObjectRef]:
        return frozenset(
            ref
            for ref, obj in objects.items()
            if ref.kind in OWNED and (obj["metadata"].get("labels") or {}).get(OWNER) == self._lab
        )


def _concerns(ref: ObjectRef, obj: Object, own: frozenset[ObjectRef]) -> bool:
    """Whether an object is the lab's business: of Nodes its own, of Pods theirs and those that wait for a node."""
    if ref.kind in OWNED:
        return ref in own
    if ref.kind == "Pod":
        node = (obj.get("spec") or {}).get("nodeName")
        return not node or ObjectRef("Node", node) in own
    return True


def version_of(obj: Object) -> int:
    """Give a resource version as a number: they may be compared within one kind (KEP-5504)."""
    text = str(obj["metadata"].get("resourceVersion", "0"))
    return int(text) if text.isdigit() else 0


def _is_newer(obj: Object, than: Object | None) -> bool:
    """Whether it is a later state of the same object; of one that is gone nothing is."""
    if than is None or obj["metadata"].get("uid") != than["metadata"].get("uid"):
        return False
    return version_of(obj) > version_of(than)


def merged(entries: tuple[Pending, ...]) -> tuple[Pending, ...]:
    """Give those of an object's next writes that one request can do: the first, or all statuses at the front."""
    count = 0
    while count < len(entries) and isinstance(entries[count].write, PutStatus):
        count += 1
    return entries[: max(count, 1)]


def tokens_wanted(objects: Objects) -> frozenset[TokenKey]:
    """Give the tokens that the Pods on our nodes mount."""
    found: set[TokenKey] = set()
    for ref, obj in objects.items():
        if ref.kind != "Pod" or not (obj.get("spec") or {}).get("nodeName"):
            continue
        pod = decode_pod(obj)
        for volume in pod.spec.volumes or ():
            for source in volume.projected.sources if volume.projected else ():
                wanted = source.service_account_token
                if wanted is not None:
                    key = (ref.namespace, pod.spec.service_account_name, ref.name, pod.metadata.uid, wanted.audience)
                    found.add(TokenKey(*key, wanted.expiration_seconds))
    return frozenset(found)


def unfinished(objects: Objects) -> tuple[str, ...]:
    """Say which Nodes, Deployments and DaemonSets are not yet as they should be, a line each."""
    lines: list[str] = []
    for ref, obj in objects.items():
        status, spec = obj.get("status") or {}, obj.get("spec") or {}
        if ref.kind == "Node":
            lines += [f"{ref}: has the taint {one['key']}" for one in spec.get("taints") or () if one["key"] in _NEW]
            continue
        if ref.kind == "Deployment":
            want, ready, fresh = spec.get("replicas", 1), "readyReplicas", "updatedReplicas"
            surplus = status.get("replicas", 0) > want
        elif ref.kind == "DaemonSet":
            want, ready, fresh = status.get("desiredNumberScheduled", 0), "numberReady", "updatedNumberScheduled"
            surplus = False
        else:
            continue
        if status.get("observedGeneration", 0) < obj["metadata"].get("generation", 0):
            lines.append(f"{ref}: not seen by its controller yet")
        elif surplus or status.get(ready, 0) < want or status.get(fresh, 0) < want:
            lines.append(f"{ref}: {status.get(ready, 0)} of {want} ready, {status.get(fresh, 0)} up to date")
    return tuple(lines)
