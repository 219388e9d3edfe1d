"""diff: what takes the API from the state it has to the state it should have.

Here: the plan, as data, and how it shows itself to people. Not here: requests (render.py), doing it (apply.py).
Invariant: what did not change is not in the plan; nothing is in it while somebody else leads.
"""

from collections.abc import Collection

from podgate.model.frozen import Frozen
from podgate.model.table import changes
from podgate.model.tally import tally
from podgate.targets.kubernetes.state import Fields, Notice, Part, State, Subject


class Plan(Frozen, frozen=True):
    """Changes of fields and Events to send, each sorted by its key.

    Attributes:
        applied: parts that get new fields.
        released: parts that are no longer wanted, with what was ours in them.
        notices: what is to be told.
    """

    applied: tuple[tuple[Part, Fields], ...] = ()
    released: tuple[tuple[Part, Fields], ...] = ()
    notices: tuple[tuple[Notice, Subject], ...] = ()

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.applied or self.released or self.notices)

    def __str__(self) -> str:
        """Show one line per change."""
        lines = [f"apply {part}" for part, _ in self.applied]
        lines += [f"{'delete' if fields.own else 'release'} {part}" for part, fields in self.released]
        lines += [f"event {notice.reason} on {notice.ref}: {notice.message}" for notice, _ in self.notices]
        return "\n".join(lines)

    def brief(self) -> str:
        """Say in one line how much."""
        counts = {"part": len(self.applied), "released part": len(self.released), "event": len(self.notices)}
        return tally(counts)

    def touches(self) -> Collection[Part | Notice]:
        """Give the keys that the API may refuse one by one."""
        return [part for part, _ in (*self.applied, *self.released)] + [notice for notice, _ in self.notices]

    def without(self, refused: Collection[Part | Notice], /) -> "Plan":
        """Give what is left without these keys."""
        return Plan(
            tuple(each for each in self.applied if each[0] not in refused),
            tuple(each for each in self.released if each[0] not in refused),
            tuple(each for each in self.notices if each[0] not in refused),
        )


def diff(have: State, want: State) -> Plan:
    """Give the plan from one state to another."""
    if have.standby or want.standby:
        return Plan()
    applied: list[tuple[Part, Fields]] = []
    released: list[tuple[Part, Fields]] = []
    for change in changes(have.parts, want.parts):
        if change.new is not None:
            # How it would be taken is no difference: ``force`` is not read back.
            if change.old is None or (change.old.body, change.old.own) != (change.new.body, change.new.own):
                applied.append((change.key, change.new))
        elif change.old is not None:
            released.append((change.key, change.old))
    told = [(told.key, told.new) for told in changes(have.notices, want.notices) if told.new is not None]
    return Plan(tuple(sorted(applied, key=_key)), tuple(sorted(released, key=_key)), tuple(sorted(told, key=_notice)))


def _key(entry: tuple[Part, Fields]) -> Part:
    return entry[0]


def _notice(entry: tuple[Notice, Subject]) -> Notice:
    return entry[0]
