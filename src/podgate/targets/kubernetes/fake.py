"""A Kubernetes API in memory: does to its state what the real one would, as far as a plan can tell.

Here: the target for tests of features. Not here: requests and answers (tests/support/fake_apiserver.py).
Invariant: it refuses what the API refuses: status and labels of objects that are not there, fields that others own.
"""

from collections.abc import AsyncIterator, Iterable, Mapping

from podgate.joints import Key, Signal
from podgate.linux.waiting import silent
from podgate.model.frozen import ObjectRef
from podgate.targets.kubernetes.diff import Plan, diff
from podgate.targets.kubernetes.state import Fields, Notice, Part, State, Subject, state_of


class FakeKubernetes:
    """The API.

    Attributes:
        objects: the objects of others that are there.
        parts: what is ours.
        told: the Events, in order.
        owned: parts whose fields somebody else owns: they are refused unless forced.
    """

    def __init__(self, objects: Iterable[ObjectRef] = ()) -> None:
        self.objects = set(objects)
        self.parts: dict[Part, Fields] = {}
        self.told: list[tuple[Notice, Subject]] = []
        self.owned: set[Part] = set()

    async def read(self) -> State:
        """Give what is ours."""
        return state_of(self.parts.items())

    def diff(self, have: State, want: State) -> Plan:
        """Give the plan from one state to another."""
        return diff(have, want)

    async def apply(self, plan: Plan) -> Mapping[Key, str]:
        """Do it; give what is refused."""
        refused: dict[Key, str] = {}
        for part, fields in plan.applied:
            if not fields.own and part.ref not in self.objects and Part(part.ref) not in self.parts:
                refused[part] = f"404 NotFound: {part.ref} is not there"
            elif part in self.owned and not fields.force:
                refused[part] = "others own these fields"
            else:
                self.parts[part] = fields
        for part, _ in plan.released:
            self.parts.pop(part, None)
        self.told += [entry for entry in plan.notices if entry not in self.told]
        return refused

    def signals(self) -> AsyncIterator[Signal]:
        """Never say anything."""
        return silent()
