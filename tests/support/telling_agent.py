"""An agent that reads and writes an API as a feature's does, and leaves the kernel alone.

Here: the feature's own compiler and watches, the steps that tell, the host. Not here: the feature's own steps, in whose
place a test may give others.
Invariant: it asks the API for just what ``podgate FEATURE run`` asks for.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from podgate.engine.host import Host, Sources, Work
from podgate.engine.kept import KeptDirectory
from podgate.engine.status import Status
from podgate.joints import Step
from podgate.kubeapi.access import Access
from podgate.kubeapi.connection import Connection
from podgate.model.machine import Machine
from podgate.observe.logs import Log
from podgate.sources.constant import Constant
from podgate.sources.kube.source import KubeSource
from podgate.telling import telling


@asynccontextmanager
async def telling_agent(
    feature: Any, settings: Any, access: Access, node_name: str, log: Log, *, own: tuple[Step[Any, Any, Any], ...] = ()
) -> AsyncIterator[Status]:
    """Run it while the body runs; it gives its Lease back in the end."""
    told = telling(feature, feature.watches(settings, node_name), access, node_name)
    steps: tuple[Step[Any, Any, Any], ...] = told.steps(own)
    status = Status(feature.name, [step.name for step in steps], log, optional=_optional(steps))
    source = KubeSource(Connection(access), told.watches, report=status.watch)
    told.lead = source.lead
    work: Work[Any] = Work(
        told.compiler(feature.compiler(settings)), steps, lambda _: (), lambda _: {}, lambda problem, _: str(problem)
    )
    sources = Sources(source, Constant({}), Constant(Machine(node_name=node_name)))
    host = Host(work, sources, KeptDirectory(Path("/nonexistent")), status)
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(host.run(stop, listen={}))
        try:
            yield status
        finally:
            stop.set()
            await running


def _optional(steps: tuple[Step[Any, Any, Any], ...]) -> list[str]:
    return [step.name for step in steps if not step.essential]
