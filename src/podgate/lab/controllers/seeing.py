"""Seeing: the objects of one kind as structs, and who owns what. Pure.

Here: ``Seen``, ``seen``, and the Pods of an owner. Not here: decisions.
Invariant: the order is that of names, so that whatever is decided in order is decided the same way each time.
"""

from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

from podgate.lab.controllers.writes import Objects
from podgate.lab.kinds import Object
from podgate.lab.shapes import Node, Pod, Shape, view
from podgate.model.frozen import ObjectRef

ShapeT = TypeVar("ShapeT", bound=Shape)


class Seen(NamedTuple, Generic[ShapeT]):
    """An object: its reference, its JSON, and what a controller reads of it."""

    ref: ObjectRef
    obj: Object
    value: ShapeT


def seen(objects: Objects, kind: str, shape: type[ShapeT]) -> tuple[Seen[ShapeT], ...]:
    """Give the objects of a kind, by namespace and name."""
    refs = sorted(ref for ref in objects if ref.kind == kind)
    found = (Seen(ref, objects[ref], view(objects[ref], shape)) for ref in refs)
    return tuple(sorted(found, key=lambda one: (one.ref.namespace, one.ref.name)))


def pods(objects: Objects) -> tuple[Seen[Pod], ...]:
    """Give all Pods."""
    return seen(objects, "Pod", Pod)


def nodes(objects: Objects) -> tuple[Seen[Node], ...]:
    """Give all Nodes."""
    return seen(objects, "Node", Node)


def pods_of(objects: Objects) -> dict[str, list[Seen[Pod]]]:
    """Give the Pods by the UID of their controller."""
    owned: dict[str, list[Seen[Pod]]] = {}
    for pod in pods(objects):
        if pod.value.metadata.controller_uid:
            owned.setdefault(pod.value.metadata.controller_uid, []).append(pod)
    return owned


def active(found: "list[Seen[Pod]]") -> "Iterator[Seen[Pod]]":
    """Give the Pods that run or will run: neither ended nor terminating."""
    return (pod for pod in found if not pod.value.ended and not pod.value.terminating)
