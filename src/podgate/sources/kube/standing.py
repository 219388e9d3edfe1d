"""Standing: whether a store is still the one that a watch has followed, from one small answer of it. Pure.

Here: the change that was heard last, where a store stands, what the two say together. Not here: when it is asked, and
what follows (watching.py).
Invariant: a store that only went on is never taken for an older one, however late the server is that answers: an answer
without a resource version in its question is as new as the store (KEP-2340).

A store that was restored from a snapshot goes on from the snapshot's version. Whoever watches since a later one hears
nothing of what it counts until then, and no error (kubernetes/kubernetes issues 107457 and 135452).
"""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from podgate.kubeapi.frames import Batch, Broken, Gone, NotAFrame, Put
from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.kinds.meta import ApiStruct

Verdict = Literal["same", "doubtful", "older"]
"""``doubtful``: what was told of last is gone, which an older state would show too, and a deletion."""


class Last(Frozen, frozen=True):
    """The change that a watch heard last: of which object, at which resource version, and whether it went then."""

    ref: ObjectRef
    version: str
    gone: bool = False


class Standing(Frozen, frozen=True):
    """Where a store stands.

    Attributes:
        resource_version: of the store, for the kind that it was asked for.
        versions: of the objects that were asked for, by name.
    """

    resource_version: str
    versions: Mapping[str, str] = {}


class _Meta(ApiStruct, frozen=True, rename="camel"):
    name: str = ""
    resource_version: str = ""


class _Item(ApiStruct, frozen=True, rename="camel"):
    metadata: _Meta = _Meta()


class _List(ApiStruct, frozen=True, rename="camel"):
    metadata: _Meta = _Meta()
    items: tuple[_Item, ...] | None = ()


_list: Final = msgspec.json.Decoder(_List)


def last_change(batch: Batch) -> Last | None:
    """Give the last change in a batch; None where it tells of no object, or not at which version."""
    for event in reversed(batch.events if batch.object_version else ()):
        if isinstance(event, Put | Gone):
            return Last(event.ref, batch.object_version, isinstance(event, Gone))
        if isinstance(event, Broken):
            return Last(event.problem.ref, batch.object_version)
    return None


def standing_of(body: bytes) -> Standing:
    """Read the answer; raises NotAFrame when it is no list."""
    try:
        found = _list.decode(body)
    except msgspec.DecodeError as error:
        raise NotAFrame(f"no list where a version was asked for: {error}") from error
    versions = {item.metadata.name: item.metadata.resource_version for item in found.items or ()}
    return Standing(found.metadata.resource_version, versions)


def judged(followed: str, last: Last | None, standing: Standing) -> Verdict:
    """Say whether a store is the one that was followed up to a resource version.

    Versions of one kind compare as numbers (KEP-5504); where they are none, nothing can be said against it.
    """
    known, now = _number(followed), _number(standing.resource_version)
    if known is None or now is None:
        return "same"
    if now < known:
        return "older"
    if last is None:
        return "same"
    # It may have been behind us and be ahead again: then it is the object that was changed last which gives it away.
    found = _number(standing.versions.get(last.ref.name, ""))
    if found is None:
        return "same" if last.gone else "doubtful"
    if found > known:
        return "same"  # changed since, as the watch will tell
    return "same" if not last.gone and found == _number(last.version) else "older"


def _number(version: str) -> int | None:
    return int(version) if version.isascii() and version.isdigit() else None
