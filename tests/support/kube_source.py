"""A running KubeSource in tests: its newest snapshot, and what it reported.

Here: starting and reading it. Not here: the server that it watches.
Invariant: the source is ended when the block is left, also when a test fails.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from podgate.kubeapi.access import Access
from podgate.kubeapi.connection import Connection, Limits
from podgate.model.frozen import ObjectRef
from podgate.model.snapshot import Kind, Listed, Snapshot, Watch
from podgate.sources.kube.source import KubeSource
from podgate.sources.kube.watching import Retrying
from tests.support.poll import poll_async

QUICK = Retrying(first=0.02, longest=0.1, between=0.01)
"""As in production, but for the waiting."""


class Running:
    """What the source said so far."""

    source: KubeSource

    def __init__(self) -> None:
        self.snapshots: list[Snapshot] = []
        self.troubles: dict[str, str] = {}
        self.reported: list[str] = []

    def report(self, watch: str, trouble: str) -> None:
        self.troubles[watch] = trouble
        if trouble and trouble not in self.reported:
            self.reported.append(trouble)

    @property
    def trouble(self) -> str:
        """What is wrong now, of all watches."""
        return "; ".join(trouble for trouble in self.troubles.values() if trouble)

    @property
    def newest(self) -> Snapshot:
        return self.snapshots[-1]

    def names(self, kind: Kind[Any]) -> set[str] | str:
        """Give the names of a kind's objects, or why there are none."""
        if not self.snapshots:
            return "no snapshot"
        entry = self.newest.kinds[kind.kind]
        return {ref.name for ref in entry.objects} if isinstance(entry, Listed) else entry.why

    def get(self, kind: Kind[Any], name: str, namespace: str = "default") -> Any:
        return self.newest.objects(kind).get(ObjectRef(kind.kind, name, namespace if kind.namespaced else ""))

    async def until(self, kind: Kind[Any], names: set[str] | str) -> None:
        """Wait for exactly these objects."""
        await poll_async(lambda: self.names(kind) == names)


@asynccontextmanager
async def running(
    url: str, *watches: Watch, silence: float = 90.0, access: Access | None = None
) -> AsyncIterator[Running]:
    """Run a source against a server."""
    connection = Connection(access or Access(url), Limits(silence=silence))
    found = Running()
    source = found.source = KubeSource(connection, watches, retrying=QUICK, report=found.report)

    async def follow() -> None:
        async for snapshot in source.values():
            found.snapshots.append(snapshot)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(follow())
        try:
            yield found
        finally:
            task.cancel()
