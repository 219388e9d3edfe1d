"""The ``run`` verb of a feature that serves connections itself, in a process that must stay small.

Here: composing such a feature with the host, without objects but what another process tells: no YAML, no Kubernetes, no
HTTP framework. Not here: ``run`` of every other feature (verbs.py), any feature by name, command lines (cli.py and the
drop-ins).
Invariant: a test lists what this module and a feature's server load; nothing heavy is among it.
"""

import asyncio
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any, Final, Protocol, cast

from msgspec.structs import replace

from podgate.engine.host import Host, Sources, Work
from podgate.engine.kept import Unkept
from podgate.engine.process import serve
from podgate.engine.single import AlreadyRunningError, only_one
from podgate.engine.status import Status
from podgate.joints import Compiled, Inputs, Source, Step
from podgate.model.files import FileContent, FileWatch
from podgate.model.frozen import Frozen
from podgate.model.problems import Problem
from podgate.model.snapshot import Snapshot
from podgate.observe.answers import Page
from podgate.observe.listen import Listen, parse_listen
from podgate.observe.logs import Log, stderr_log
from podgate.observe.metrics import Measured
from podgate.observe.showing import tell
from podgate.sources.constant import Constant
from podgate.sources.machine import MachineSource, node_name_of

_GARBAGE: Final = (700, 10, 10)
"""Python's own thresholds, which a start may have raised."""


class Server(Protocol):
    """What a feature declares for ``run`` in a small process. Its settings have ``metrics_addr`` and ``node_name``."""

    name: str

    @property
    def settings(self) -> type[Frozen]:
        """Its settings' class."""
        ...

    def objects(self, settings: Any, node_name: str, environ: Mapping[str, str]) -> Source[Snapshot] | None:
        """Give the source of what another process follows; None where nothing is followed, and files alone count."""
        ...

    def files(self, settings: Any) -> tuple[FileWatch, ...]:
        """Say which node-local files are needed."""
        ...

    def compiler(self, settings: Any) -> Callable[[Inputs], Compiled[Any]]:
        """Give a compiler."""
        ...

    def steps(self, settings: Any, log: Log) -> tuple[Step[Any, Any, Any], ...]:
        """Give the steps, those that serve among them."""
        ...

    def samples(self, states: Any) -> tuple[Measured, ...]:
        """Give the metrics of what was compiled."""
        ...


def run(server: Server, settings: Any, environ: Mapping[str, str]) -> int:
    """Run until SIGTERM; give the exit code: 1 when a port is taken, or another one runs on this node."""
    log = stderr_log(environ)
    node_name = node_name_of(settings.node_name, environ)
    # Nothing is kept, so no step needs to be read for what it tells of an earlier run.
    steps = tuple(replace(step, recovers=False) for step in server.steps(settings, log))
    objects = server.objects(settings, node_name, environ)
    # Where another process follows objects, it reads the files too.
    watches = server.files(settings) if objects is None else ()
    sources = Sources(objects or Constant(Snapshot()), _files(watches), MachineSource(node_name))
    work = Work(server.compiler(settings), steps, server.samples, lambda _states: {}, _describe)
    names = [step.name for step in steps]
    status = Status(server.name, names, log, live=lambda: chain.from_iterable(step.live() for step in steps))
    log.info("starting", feature=server.name, node=node_name)
    host = Host(work, sources, Unkept(), status)
    try:
        with only_one(server.name) as claim, asyncio.Runner(loop_factory=_new_loop()) as runner:
            code = runner.run(serve(host, claim, _pages(settings.metrics_addr, status), _GARBAGE))
    except AlreadyRunningError as error:
        tell(f"podgate {server.name} run: {error}")
        return 1
    log.info("stopped")
    return code


def _files(watches: tuple[FileWatch, ...]) -> Source[Mapping[str, FileContent]]:
    if not watches:
        return Constant({})
    from podgate.sources.files import FileSource  # noqa: PLC0415 - inotify costs a start memory and time

    return FileSource(watches)


def _describe(problem: Problem, inputs: Inputs) -> str:  # noqa: ARG001 - the host's signature
    """Give a problem as a line; finding the line in the file would load YAML."""
    return f"{problem.ref}{':' if problem.field else ''}{problem.field}: {problem.message}"


def _new_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Give what makes the event loop: uvloop where it is installed, or None for asyncio's own."""
    try:
        import uvloop  # noqa: PLC0415 - an extra: asyncio's loop does the same at half the speed
    except ImportError:
        return None
    return cast("Callable[[], asyncio.AbstractEventLoop]", uvloop.new_event_loop)


def _pages(metrics_addr: str, status: Status) -> dict[Listen, dict[str, Page]]:
    """Give the pages: metrics on any path that is no other page, as metadata-proxy did it."""
    if not metrics_addr:
        return {}
    pages = {"/healthz": status.healthz, "/readyz": status.readyz, "*": status.metrics}
    return {parse_listen(metrics_addr): pages}
