"""The joints: what sources, features, targets and the engine know of each other.

Here: the protocols and the values that pass between them. Not here: any code that does something.
Invariant: data flows one way (source -> Inputs -> Compiled -> Step -> target); what travels back is a Signal, a refused
key, a Problem or a status, each a value.
"""

import argparse
from collections.abc import AsyncIterator, Callable, Collection, Hashable, Iterable, Mapping
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from podgate.model.files import FileContent, FileWatch
from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.machine import Machine
from podgate.model.problems import Problem, Problems
from podgate.model.snapshot import Snapshot, Watch
from podgate.observe.answers import Page
from podgate.observe.metrics import Measured, Reading

Key = Hashable
"""Names one part of a state towards a target: a set element, a table, an Envoy resource. Its text is for messages."""

T_co = TypeVar("T_co", covariant=True)
S = TypeVar("S")
P = TypeVar("P", bound="Plan")
S_contra = TypeVar("S_contra", contravariant=True)
States_contra = TypeVar("States_contra", contravariant=True)
StatesT = TypeVar("StatesT")


class Inputs(Frozen, frozen=True):
    """Everything that a compile may look at.

    Attributes:
        objects: the Kubernetes objects.
        files: node-local configuration by path.
        machine: this node's own machine.
        kept: what an earlier compile asked to keep (the last good configuration), by name.
        refused: what targets refuse now of what was compiled before, with the reasons.
    """

    objects: Snapshot = Snapshot()
    files: Mapping[str, FileContent] = {}
    machine: Machine = Machine()
    kept: Mapping[str, bytes] = {}
    refused: Mapping[Key, str] = {}


class Compiled(Frozen, Generic[StatesT], frozen=True):
    """What a compile gives.

    Attributes:
        states: the feature's own frozen class, one field per step.
        problems: complaints by object.
        problem_of: what is wrong with whose object when a target refuses a key for a reason; None where it is nobody's.
        keep: bytes to write (0600, atomically) once all steps have committed; read back as ``Inputs.kept``.
        wanted: single objects to fetch by name.
        degraded: why the feature is not ready although its steps committed; empty when it is.
        holds: True where nobody knows what should be, so that nothing is written and what is in force stays;
            ``degraded`` says why.
        isolates: True where an object with errors takes nothing from the others, and most objects are other people's:
            questions are answered in spite of errors.
    """

    states: StatesT
    problems: Problems = Problems()
    problem_of: Callable[[Key, str], Problem | None] = lambda _key, _why: None
    keep: Mapping[str, bytes] = {}
    wanted: frozenset[ObjectRef] = frozenset()
    degraded: str = ""
    holds: bool = False
    isolates: bool = False

    def refusals(self, refused: Mapping[Key, str]) -> tuple[Problem, ...]:
        """Give what refused keys mean to objects."""
        found = (self.problem_of(key, why) for key, why in refused.items())
        return tuple({problem: None for problem in found if problem is not None})


class Plan(Protocol):
    """The difference between two states of one target; falsy when there is none, and prints itself for people."""

    def __bool__(self) -> bool: ...

    def brief(self) -> str:
        """Say in one line, by counts, what it does: for a log, where its text is long."""

    def touches(self) -> Collection[Key]:
        """Give the keys that it touches, of those that the target may refuse one by one."""

    def without(self, refused: Collection[Any], /) -> "Plan":
        """Give what is left without keys that were refused; falsy when they were all that it was to do."""


class Source(Protocol[T_co]):
    """Gives the newest value of one field of Inputs, again and again."""

    def values(self) -> AsyncIterator[T_co]:
        """Give the first value as soon as it is whole, then each one that differs."""
        ...


class SourceError(Exception):
    """The outside world failed a source; the message says what, where and what to do."""


class ApplyError(Exception):
    """A target's state is unknown after a failure; the message holds numbered lines around the failing one.

    Attributes:
        reason: a CamelCase word from a small fixed set, for metrics.
        wait: seconds for which nothing is tried again, whatever changes meanwhile; 0 leaves that to the engine.
    """

    def __init__(self, message: str, reason: str = "ApplyFailed", wait: float = 0.0) -> None:
        super().__init__(message)
        self.reason = reason
        self.wait = wait


class Drifted(Frozen, frozen=True):
    """Somebody else changed what is ours; ``what`` says which part, for the log."""

    what: str


class Refused(Frozen, frozen=True):
    """A remote receiver refused one key after it was applied."""

    key: Any
    why: str


class Turned(Frozen, frozen=True):
    """What is known of the target holds no longer, as when we begin to lead; ``fault``: something is in the way."""

    what: str
    fault: bool = False


Signal = Drifted | Refused | Turned


class Target(Protocol[S, P]):
    """One thing that is programmed."""

    async def read(self) -> S:
        """Read back what is ours, in a process without memory."""
        ...

    def diff(self, have: S, want: S) -> P:
        """Give the plan from one state to another. Pure; falsy when they are equal; ``str(plan)`` is for people."""
        ...

    async def apply(self, plan: P) -> Mapping[Key, str]:
        """Do it. Gives refused keys with reasons; raises ApplyError when the state is unknown."""
        ...

    def signals(self) -> AsyncIterator[Signal]:
        """Tell what happens to the target from outside; ends only by cancellation."""
        ...


@runtime_checkable
class Closable(Protocol):
    """A target that keeps something open between its calls."""

    def close(self) -> None:
        """Close it; the next call opens another."""
        ...


class Follower(Protocol[States_contra, S_contra]):
    """Acts on a change of the feature's states, and has no desired state of its own: conntrack."""

    @property
    def from_start(self) -> bool:
        """Whether it acts on the first commit of a process too, when nobody knows what was there before."""
        ...

    async def follow(self, before: States_contra | None, after: States_contra, found: S_contra | None) -> str:
        """Act on a change that its step has committed, and say what was done; empty for nothing.

        Raising ApplyError has it retried, on its own.

        Args:
            before: what was committed earlier; None at the first commit of a process, which only a follower
                ``from_start`` is told of.
            after: what is committed now.
            found: what the step's target held in between, or before a start, where that was read back and was not what
                it should hold; None where nobody but this process changed anything.
        """
        ...


class Step(Frozen, Generic[StatesT, S, P], frozen=True):
    """One state and the target that it is applied to.

    Attributes:
        name: as ``nftables/ip``.
        want: picks this step's state out of the feature's states.
        empty: the state in which nothing is ours; what ``clean`` wants.
        after: steps that must have committed this generation first.
        resync: seconds between full reads when nothing happens, by the feature's states; None for never.
        essential: False for a step that only takes away what is not wanted any more: the feature is ready, and what
            is to be kept is kept, also while it fails.
        in_process: what it programs lives and dies with this process, as a socket: a refused key ends ``run`` with exit
            code 1.
        gap: seconds between the beginnings of two attempts, at least, by the feature's states; what changes in between
            is written together.
        transient: what it programs ends with this process, so there is nothing to plan or to clean.
        live: metrics of what it programs, read when somebody asks.
        spread: seconds, by the feature's states, of which an attempt waits a random part, so that many nodes do not
            write at once; what changes meanwhile is written with it.
        knows: says, by the feature's states, whether it is known what to want; until then nothing is read or written.
        recovers: whether what is read back may tell what was in force before a start (``Feature.recover``); a start
            waits for such a reading.
        committed: told of each pass that committed, at once: its generation, its seconds, and whether all was read back
            and compared, not changes alone.
        failed: told of each pass that failed, at once, and whether it was one of all.
    """

    name: str
    target: Target[S, P]
    want: Callable[[StatesT], S]
    empty: S
    after: tuple[str, ...] = ()
    followers: tuple[Follower[StatesT, S], ...] = ()
    resync: Callable[[StatesT], float | None] = lambda _states: None
    essential: bool = True
    in_process: bool = False
    live: Callable[[], Iterable[Reading]] = tuple
    spread: Callable[[StatesT], float] = lambda _states: 0.0
    knows: Callable[[StatesT], bool] = lambda _states: True
    recovers: bool = True
    transient: bool = False
    gap: Callable[[StatesT], float] = lambda _states: 0.0
    committed: Callable[[int, float, bool], None] = lambda _generation, _seconds, _whole: None
    failed: Callable[[bool], None] = lambda _whole: None


SettingsT = TypeVar("SettingsT")


class Answered(Frozen, frozen=True):
    """The answer of a verb that only looks: lines for people, values for programs, an exit code, and what has none."""

    text: str
    data: Any
    code: int = 0
    errors: tuple[str, ...] = ()


class Served(Protocol):
    """What a feature's own pages may ask of the process that serves them."""

    def behind(self) -> float:
        """Give the seconds for which some step that matters has not caught up with what was compiled; 0 for none."""
        ...

    def readings(self) -> Iterable[Reading]:
        """Give what ``/metrics`` shows."""
        ...

    def now(self) -> float:
        """Give the time, in seconds since 1970."""
        ...


class Agent(Protocol[SettingsT, StatesT]):
    """What is declared to the host, which runs it. Everything but ``steps`` is pure; what has a body here is usual.

    One whose own objects have a status also has ``tells`` (targets/kubernetes/reports.py).
    """

    name: str
    settings: type[SettingsT]

    def watches(self, settings: SettingsT, node_name: str | None) -> tuple[Watch, ...]:
        """Say which Kubernetes objects are needed on a node; None: for questions about any node."""
        ...

    def files(self, settings: SettingsT) -> tuple[FileWatch, ...]:
        """Say which node-local files are needed."""
        ...

    def compiler(self, settings: SettingsT) -> Callable[[Inputs], Compiled[StatesT]]:
        """Give a compiler: pure but for the memory of its table operators."""
        ...

    def steps(self, settings: SettingsT) -> tuple[Step[StatesT, Any, Any], ...]:
        """Give the steps, which hold the targets; nothing is opened before it is used."""
        ...

    def samples(self, states: StatesT) -> tuple[Measured, ...]:
        """Give the feature's own metrics."""
        ...

    def recover(self, read_back: Mapping[str, Any]) -> Mapping[str, bytes]:  # noqa: ARG002
        """Make ``Inputs.kept`` out of states that were read back, by step; empty where they tell nothing."""
        return {}

    def obstacle(self, settings: SettingsT, environ: Mapping[str, str], say: Callable[[str], None]) -> str:  # noqa: ARG002
        """Say why ``run`` cannot start here, and what to do; empty when it can. ``say`` is told what may go wrong."""
        return ""

    def instance(self, settings: SettingsT) -> str:  # noqa: ARG002
        """Name what one network namespace has one of: the feature, or what tells two of its agents apart."""
        return self.name

    def pages(self, settings: SettingsT, served: Served) -> Mapping[str, Mapping[str, Page]]:  # noqa: ARG002
        """Give pages of the feature's own, by address (``ADDR:PORT``) and path, instead of the usual ones there."""
        return {}


class Feature(Agent[SettingsT, StatesT], Protocol[SettingsT, StatesT]):
    """What a feature declares to the command line too: how it answers questions. Pure."""

    def configured(self, given: Mapping[str, Any], say: Callable[[str], None]) -> Mapping[str, Any]:  # noqa: ARG002
        """Complete the options of a command line by those in files that they name.

        Args:
            given: what the command line says, by the names of the settings.
            say: told what is taken and changes nothing; ``check`` gives that as findings.

        Raises:
            SettingsError: a file cannot be read, or used.
        """
        return given

    def render(self, states: StatesT) -> Answered:
        """Show the desired state."""
        ...

    def add_questions(self, parser: argparse.ArgumentParser) -> None:
        """Add what ``explain`` asks for to its parser."""
        ...

    def explain(self, asked: argparse.Namespace, compiled: Compiled[StatesT], look: "Look") -> Answered:
        """Answer a question. Raises QuestionError when it cannot be understood."""
        ...

    def check(self, compiled: Compiled[StatesT], look: "Look") -> Answered:
        """Give findings; exit code 1 when there are any."""
        ...


class QuestionError(Exception):
    """A question that cannot be answered; the message says why and what to ask instead."""


class Look(Protocol):
    """What the verbs that only look may ask for beside the compiled states."""

    inputs: Inputs

    def where(self, problem: Problem) -> str:
        """Give the place of what is wrong: ``PATH:LINE``, or ``Kind/NS/NAME:field`` of what is in no file."""

    def line(self, ref: ObjectRef, field: str) -> int | None:
        """Give the line of a field in a file."""

    def written(self) -> Mapping[ObjectRef, Any]:
        """Give objects as files have them, plain and with fields that no kind knows; empty where an API gives them."""

    def others(self) -> int:
        """Give how many objects the files have of which none was asked for; 0 where an API gives them."""

    def foreign_nat(self, ours: str) -> "ForeignNat":
        """Read the address translation on this machine, but for our own table."""


class ForeignRule(Frozen, frozen=True):
    """A rule in somebody else's table that may translate source addresses."""

    table: str
    chain: str
    text: str


class ForeignNat(Frozen, frozen=True):
    """What was found of others' rules; ``unread`` says what could not be read, and why."""

    rules: tuple[ForeignRule, ...] = ()
    unread: str = ""
