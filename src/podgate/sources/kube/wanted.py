"""Wanted: which streams fetch single objects by name. Pure.

Here: from the objects that a compile asks for to watches. Not here: running them (source.py).
Invariant: every wanted object is in exactly one watch, and the same objects give the same watches.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from podgate.model.frozen import ObjectRef
from podgate.model.snapshot import Kind, Watch

MOST_STREAMS: Final = 50
"""Above this number of objects there is one stream per namespace: API servers share their requests out fairly, and each
stream is one (KEP-1040)."""


def watches_for(refs: Iterable[ObjectRef], kinds: Mapping[str, Kind[Any]]) -> tuple[Watch, ...]:
    """Give the watches for single objects: one by name for each; above ``MOST_STREAMS``, one for each namespace.

    Objects of kinds that nobody declared are left out: there is no path to ask for them.
    """
    known = sorted(ref for ref in refs if ref.kind in kinds)
    if len(known) <= MOST_STREAMS:
        return tuple(Watch(kinds[ref.kind], ref.namespace, "", f"metadata.name={ref.name}") for ref in known)
    return tuple(
        Watch(kinds[kind], namespace) for kind, namespace in sorted({(ref.kind, ref.namespace) for ref in known})
    )
