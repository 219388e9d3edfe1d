"""What the verbs of a feature do, the same for every feature.

Here: run, render, plan, explain, check and clean over joints.Feature. Not here: parsing the command line (cli.py), any
feature or target by name.
Invariant: the verbs that only look read files alone: no state directory, no privileges, nothing written.
"""

import argparse
import asyncio
import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from podgate.engine.host import Host, Sources, Work
from podgate.engine.kept import KeptDirectory, kept_in
from podgate.engine.process import serve
from podgate.engine.reconcile import bring_to
from podgate.engine.single import AlreadyRunningError, only_one
from podgate.engine.status import Status
from podgate.joints import (
    Agent,
    Answered,
    ApplyError,
    Closable,
    Compiled,
    Feature,
    ForeignNat,
    Inputs,
    QuestionError,
    SourceError,
    Step,
)
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.nodes import NODE
from podgate.model.machine import Machine
from podgate.model.problems import Problem
from podgate.model.snapshot import Absent, Snapshot
from podgate.model.tally import tally
from podgate.observe.answers import Page
from podgate.observe.listen import Listen, parse_listen
from podgate.observe.logs import stderr_log
from podgate.observe.requests import RequestCounts
from podgate.observe.showing import complain, show, tell
from podgate.sources.earlier import FOLDER
from podgate.sources.files import FileSource, load_files
from podgate.sources.locate import Locator
from podgate.sources.machine import MachineSource, load_machine, node_name_of
from podgate.sources.netfilter import load_foreign_nat
from podgate.sources.origin import Api, Nowhere, Origin, access_of, follow, load, looked_at, origin, unasked

if TYPE_CHECKING:
    from podgate.telling import Telling

AnyAgent = Agent[Any, Any]
AnyFeature = Feature[Any, Any]
WHERE_THEN: Final = "--source, --kubeconfig or $KUBECONFIG says where they are"

_GARBAGE: Final = (50_000, 20, 100)
"""Frozen values hold no cycles: looking for some after every 700 of 100,000 objects only costs."""
_STARTING: Final = 10.0
"""Seconds after which it is looked for at all: 30,000 Services are loaded by then, and looking meanwhile took a
twentieth of that."""


class BadInput(Exception):  # noqa: N818 - it is the user's, and never shown by name
    """Input with errors; each line is one problem with its place."""


def perform(  # noqa: PLR0917 - what a command line is
    verb: str,
    feature: AnyFeature,
    settings: Any,
    asked: argparse.Namespace,
    environ: Mapping[str, str],
    program: str = "",
) -> int:
    """Do one verb; give the exit code. ``program`` is what its user called, where that is an old name."""
    program = program or f"podgate {feature.name} {verb}"
    if verb == "run":
        return run(program, feature, settings, environ)
    try:
        if verb == "clean":
            answered = asyncio.run(_clean(feature, settings))
        else:
            look = _looking(program, feature, settings, asked, environ)
            answered = _look(verb, feature, settings, asked, look)
            if look.unseen and verb in {"check", "explain"}:
                _remark(program, f"no Kubernetes objects were looked at ({', '.join(look.unseen)}): {WHERE_THEN}")
            if look.strange:
                _remark(program, look.strange)
    except (QuestionError, SourceError) as error:
        return _complain(asked, f"{program}: {error}", 2)
    except BadInput as error:
        return _complain(asked, str(error), 2)
    except AlreadyRunningError as error:
        return _complain(asked, f"{program}: {error}", 1)
    except ApplyError as error:
        return _complain(asked, f"{program}: {error}", 2 if verb == "plan" else 1)
    show(json.dumps(answered.data, indent=2) if asked.output == "json" else answered.text.rstrip("\n"))
    for left_out in answered.errors:
        _remark(program, left_out)
    return answered.code


def _looking(
    program: str, feature: AnyFeature, settings: Any, asked: argparse.Namespace, environ: Mapping[str, str]
) -> "Looking":
    """Read what is looked at. A kubeconfig that nobody gave is one that a file names: of a node, and maybe not here."""
    try:
        return Looking(feature, settings, environ, lambda said: _remark(program, said))
    except SourceError as error:
        file, unasked_for = getattr(settings, "config", None), getattr(asked, "kubeconfig", None) is None
        if not (file and unasked_for and settings.kubeconfig and str(error).startswith(f"{settings.kubeconfig}: ")):
            raise
        named = f"{file} names it (clientConnection.kubeconfig)"
        raise SourceError(f"{error}; {named}: give --source or --kubeconfig to look elsewhere") from error


def run(program: str, agent: AnyAgent, settings: Any, environ: Mapping[str, str]) -> int:
    """Run an agent until it is told to stop; give the exit code. ``program`` is what its user called."""
    try:
        return _run(agent, settings, environ)
    except (SourceError, AlreadyRunningError, ApplyError) as error:
        tell(f"{program}: {error}")
        return 2 if isinstance(error, SourceError) else 1


def _remark(program: str, said: str) -> None:
    """Say something beside the answer."""
    tell(f"{program}: {said}")


def _complain(asked: argparse.Namespace, message: str, code: int) -> int:
    """Say what was wrong, in the form that was asked for."""
    complain(message, as_json=asked.output == "json")
    return code


class Looking:
    """The inputs of the verbs that only look, read once; ``remark`` is told where they come from unasked."""

    def __init__(
        self, feature: AnyFeature, settings: Any, environ: Mapping[str, str], remark: Callable[[str], None]
    ) -> None:
        node_name = node_name_of(settings.node_name, environ)
        watches = feature.watches(settings, None)
        found = looked_at(settings.source, settings.kubeconfig, settings.context, environ)
        # An answer of an API may take a while, or never come: whose it is comes first.
        if watches and (said := unasked(found, settings.source, settings.kubeconfig)):
            remark(said)
        self.unseen = sorted({watch.kind.kind for watch in watches}) if isinstance(found, Nowhere) else []
        snapshot, reader = load(found, watches, environ, getattr(settings, "state_dir", ""))
        files = load_files(feature.files(settings))
        self._locator = Locator(reader)
        self.strange = _strange(str(found), snapshot, reader.others) if reader else ""
        self.inputs = Inputs(snapshot, files, machine_of(load_machine(node_name), snapshot))

    def where(self, problem: Problem) -> str:
        """Give the place of what is wrong, the one that ``describe`` begins with."""
        return self._locator.place(problem, self.inputs.files)

    def line(self, ref: ObjectRef, field: str) -> int | None:
        """Give the line of a field in a file."""
        return self._locator.line(ref, field, self.inputs.files)

    def written(self) -> Mapping[ObjectRef, Any]:
        """Give objects as files have them."""
        return self._locator.written()

    def others(self) -> int:
        """Give how many objects of files nobody asked for."""
        return self._locator.others()

    def foreign_nat(self, ours: str) -> ForeignNat:
        """Read the address translation of others."""
        return load_foreign_nat(ours)

    def describe(self, problem: Problem) -> str:
        """Give a problem as a line."""
        return self._locator.describe(problem, self.inputs.files)


def _strange(path: str, snapshot: Snapshot, others: int) -> str:
    """Say that a source has no object that is looked at, which a wrong folder has not; empty where it has some."""
    if snapshot.unread or any(isinstance(each, Absent) or each.objects for each in snapshot.kinds.values()):
        return ""
    kinds = ", ".join(sorted(snapshot.kinds))
    beside = f" among its {others}" if others else ""
    return f"{path} has no object that is looked at ({kinds}){beside}: is --source right?"


def machine_of(here: Machine, snapshot: Snapshot) -> Machine:
    """Give this machine if it is the node that is asked about; of another node only what objects tell is known."""
    nodes = {ref.name: node for ref, node in snapshot.objects(NODE).items()}
    if not nodes:
        return here
    node = nodes.get(here.node_name)
    told = {address.address for address in node.status.addresses} if node else set()
    is_here = any(str(address.address.ip) in told for address in here.addresses)
    return here if is_here else Machine(node_name=here.node_name)


def origin_of(settings: Any, environ: Mapping[str, str]) -> Origin:
    """Say where an agent's objects come from."""
    return origin(settings.source, settings.kubeconfig, settings.context, environ)


def _look(verb: str, feature: AnyFeature, settings: Any, asked: argparse.Namespace, look: Looking) -> Answered:
    compiled = feature.compiler(settings)(look.inputs)
    problems = [problem for ref in sorted(compiled.problems) for problem in compiled.problems[ref]]
    errors = [problem for problem in problems if problem.severity == "error"]
    if errors and not compiled.isolates:
        raise BadInput("\n".join(look.describe(problem) for problem in problems))
    if compiled.holds:
        if look.unseen:
            raise BadInput(f"podgate {feature.name} {verb}: no objects to look at: give --source or --kubeconfig")
        # A source that cannot be read is why nothing is known, and says more than that nothing is.
        lines = [look.describe(problem) for problem in look.inputs.objects.unread]
        raise BadInput("\n".join(lines) or f"podgate {feature.name} {verb}: {compiled.degraded}")
    if verb == "explain" and compiled.isolates:
        return _explain(feature, asked, compiled, look, problems)
    if verb != "check":
        for problem in problems:
            tell(look.describe(problem))
    match verb:
        case "render":
            return feature.render(compiled.states)
        case "explain":
            return feature.explain(asked, compiled, look)
        case "check":
            return feature.check(compiled, look)
        case _:
            return asyncio.run(_plan(feature, settings, compiled))


def _explain(
    feature: AnyFeature, asked: argparse.Namespace, compiled: Compiled[Any], look: Looking, problems: list[Problem]
) -> Answered:
    """Answer beside complaints about whom the answer names, and about what is nobody's alone, as files and the node.

    The others may be thousands, and are counted.
    """
    for problem in problems:
        if not problem.ref.namespace:
            tell(look.describe(problem))
    answered: Answered = feature.explain(asked, compiled, look)
    others = 0
    for problem in problems:
        if problem.ref.namespace and f"{problem.ref.namespace}/{problem.ref.name}" in answered.text:
            tell(look.describe(problem))
        elif problem.ref.namespace:
            others += 1
    if others:
        tell(f"{tally({'complaint': others})} about other objects: podgate {feature.name} check shows all")
    return answered


async def _plan(feature: AnyFeature, settings: Any, compiled: Compiled[Any]) -> Answered:
    """Compare with the live system; changes nothing."""
    with _lasting(feature.steps(settings)) as steps:
        plans = [(step.name, step.target.diff(await step.target.read(), step.want(compiled.states))) for step in steps]
    rows = _step_rows(plans)
    text = "\n".join(f"{row['step']}:\n{row['plan']}" for row in rows if row["differs"]) or "no difference"
    differs = any(row["differs"] for row in rows)
    return Answered(text, {"differs": differs, "steps": rows}, int(differs))


def _step_rows(plans: Iterable[tuple[str, Any]]) -> list[dict[str, Any]]:
    """Give what there is to do, or was done, for programs, by step."""
    return [{"step": name, "differs": bool(plan), "plan": str(plan) if plan else ""} for name, plan in plans]


async def _clean(feature: AnyFeature, settings: Any) -> Answered:
    """Remove what is ours, and what was kept; a step that fails does not hold up the others."""
    with only_one(feature.instance(settings)), _lasting(feature.steps(settings)) as steps:
        plans = await _emptied(steps)
        # A feature that keeps nothing has no such option.
        state_dir = getattr(settings, "state_dir", "")
        forgot = bool(state_dir) and _forget(state_dir)
    rows = _step_rows(plans)
    lines = [f"{row['step']}: {row['plan']}" for row in rows if row["plan"]]
    lines += [f"{state_dir}: removed what was kept there"] if forgot else []
    data = {"differs": forgot or any(row["differs"] for row in rows), "steps": rows, "kept_removed": forgot}
    return Answered("\n".join(lines) or "nothing of ours was there", data)


@contextlib.contextmanager
def _lasting(steps: Iterable[Step[Any, Any, Any]]) -> Iterator[list[Step[Any, Any, Any]]]:
    """Give the steps whose work outlives a process; what their targets opened is closed afterwards."""
    lasting = [step for step in steps if not step.transient]
    try:
        yield lasting
    finally:
        for step in lasting:
            if isinstance(step.target, Closable):
                step.target.close()


async def _emptied(steps: Iterable[Step[Any, Any, Any]]) -> list[tuple[str, Any]]:
    """Bring every step to nothing; give what each did. Raises ApplyError with all failures, after all were tried."""
    plans: list[tuple[str, Any]] = []
    failures: list[str] = []
    for step in steps:
        try:
            plans.append((step.name, await bring_to(step, step.empty)))
        except ApplyError as error:
            failures.append(f"{step.name}: {error}")
    if failures:
        raise ApplyError("\n".join(failures))
    return plans


def _forget(state_dir: str) -> bool:
    """Remove what was kept; say whether there was anything."""
    try:
        forgot = KeptDirectory(Path(state_dir, FOLDER)).forget()
        return KeptDirectory(Path(state_dir)).forget() or forgot
    except OSError as error:
        message = f"{state_dir}: what was kept there cannot be removed ({error.strerror}): remove it by hand"
        raise ApplyError(message, "StateNotRemoved") from error


def _run(agent: AnyAgent, settings: Any, environ: Mapping[str, str]) -> int:
    log = stderr_log(environ)
    if obstacle := agent.obstacle(settings, environ, log.warning):
        raise SourceError(obstacle)
    node_name = node_name_of(settings.node_name, environ)
    watches = agent.watches(settings, node_name)
    found = origin_of(settings, environ)
    requests = RequestCounts()
    told = _telling(agent, settings, found, environ, requests)
    steps = agent.steps(settings) if told is None else told.steps(agent.steps(settings))
    optional = [step.name for step in steps if not step.essential]
    status = Status(agent.name, [step.name for step in steps], log, optional=optional, live=requests.readings)
    wanted = watches if told is None else told.watches
    following = follow(found, wanted, environ, status.watch, requests.answered, state_dir=settings.state_dir)
    locator = Locator(following.reader)
    if told is not None:
        told.lead = following.lead
    sources = Sources(
        objects=following.source,
        files=FileSource(agent.files(settings)),
        machine=MachineSource(node_name),
    )
    work = Work(
        compiler=agent.compiler(settings) if told is None else told.compiler(agent.compiler(settings)),
        steps=steps,
        samples=agent.samples if told is None else lambda states: agent.samples(states.own),
        recover=agent.recover,
        describe=lambda problem, inputs: locator.describe(problem, inputs.files),
        want=following.want,
    )
    log.info("starting", feature=agent.name, node=node_name, source=str(found))
    host = Host(work, sources, kept_in(settings.state_dir), status)
    with only_one(agent.instance(settings)) as claim:
        listen = {} if settings.once else _pages(agent, settings, status)
        code = asyncio.run(serve(host, claim, listen, _GARBAGE, starting=_STARTING, once=settings.once))
        if settings.clean_on_exit:
            asyncio.run(_emptied(steps))
            log.info("cleaned")
    log.info("stopped", rules="removed" if settings.clean_on_exit else "stay in force")
    return code


def _telling(
    agent: AnyAgent, settings: Any, found: Origin, environ: Mapping[str, str], requests: RequestCounts
) -> "Telling | None":
    """Give what is told in the API that objects come from; None where that is files, or it tells nothing."""
    if not isinstance(found, Api) or settings.once or not getattr(agent, "reports", True):
        return None
    from podgate.telling import telling  # noqa: PLC0415 - an agent without an API never loads what one needs

    node_name = node_name_of(settings.node_name, environ)
    return telling(
        agent, agent.watches(settings, node_name), access_of(found, environ), node_name, told=requests.answered
    )


def _pages(agent: AnyAgent, settings: Any, status: Status) -> dict[Listen, dict[str, Page]]:
    """Say which pages are served where; equal addresses share one server."""
    pages: dict[Listen, dict[str, Page]] = {}
    if settings.metrics_addr:
        pages.setdefault(parse_listen(settings.metrics_addr), {})["/metrics"] = status.metrics
    health = settings.health_addr or settings.metrics_addr
    if health:
        pages.setdefault(parse_listen(health), {}).update({"/healthz": status.healthz, "/readyz": status.readyz})
    for address, own in agent.pages(settings, status).items():
        pages.setdefault(parse_listen(address), {}).update(own)
    return pages
