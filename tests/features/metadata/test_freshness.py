"""What counts of what was told, second by second: a limit of 60 s, and one thing that happens in each line."""

from collections.abc import Callable

import pytest

from podgate.features.metadata.filter import Client, NamedPolicy
from podgate.features.metadata.freshness import Knowledge
from podgate.features.metadata.spec import PolicySpec
from podgate.features.metadata.watched import Watched

LIMIT = 60.0
POLICIES = (NamedPolicy("p", PolicySpec(())),)
TOLD = Watched(POLICIES, {"10.0.0.1": Client("a/b", (0,))})
NO_PODS = Watched(POLICIES)

Event = Callable[[Knowledge, float], Knowledge]


def told(watched: Watched = TOLD, unheard: float | None = None) -> Event:
    said = Watched(watched.policies, watched.clients, unheard=unheard)
    return lambda known, now: known.told(said, now)


def alive(known: Knowledge, now: float) -> Knowledge:
    return known.alive(now)


def lost(known: Knowledge, _now: float) -> Knowledge:
    return known.without("it has ended")


def nothing(known: Knowledge, _now: float) -> Knowledge:
    return known


HISTORIES: dict[str, list[tuple[float, Event, str]]] = {
    "signs of life keep it fresh for ever": [
        (0, told(), "fresh"),
        *[(seconds, alive, "fresh") for seconds in range(50, 500, 50)],
    ],
    "a process that has ended, and one that comes back": [
        (0, told(), "fresh"),
        (10, lost, "fresh"),
        (59.9, nothing, "fresh"),
        (60, nothing, "forgotten"),
        (900, alive, "forgotten"),  # a new process, which knows nothing yet
        (901, told(), "fresh"),
    ],
    "a process that hangs": [
        (0, told(), "fresh"),
        (5, alive, "fresh"),
        (64.9, nothing, "fresh"),
        (65, nothing, "forgotten"),
    ],
    "an API that is away from a process that lives": [
        (0, told(), "fresh"),
        (100, told(unheard=10), "fresh"),
        (149, alive, "fresh"),
        (150, alive, "stale"),
        (700, alive, "stale"),
        (701, told(), "fresh"),
    ],
    "a proxy that starts while the API is long away": [(0, told(unheard=900), "stale"), (5, alive, "stale")],
    "a process that starts anew while the API is away": [
        (0, told(), "fresh"),
        (10, lost, "fresh"),
        (11, alive, "fresh"),
        (59, alive, "fresh"),
        (60, alive, "stale"),
        (300, alive, "stale"),
        (301, told(), "fresh"),
    ],
    "where no Pods are followed nothing grows old": [(0, told(NO_PODS), "fresh"), (900, lost, "fresh")],
    "nothing told": [(0, alive, "nothing"), (900, nothing, "nothing")],
}


def counts(known: Knowledge, now: float) -> str:
    found = known.counting(now, LIMIT)
    if found is None:
        return "nothing"
    assert found.policies == POLICIES
    if found.unheard is None or found.unheard < LIMIT:
        assert known.watched == found
        return "fresh"
    return "stale" if found.clients else "forgotten"


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_what_counts(history: list[tuple[float, Event, str]]) -> None:
    known, found = Knowledge(), []
    for now, event, _ in history:
        known = event(known, now).aged(now, LIMIT)
        found.append(counts(known, now))
    assert found == [expected for _, _, expected in history]


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_between_two_events_nothing_changes_but_at_a_turn(history: list[tuple[float, Event, str]]) -> None:
    known = Knowledge()
    ends = [now for now, _, _ in history[1:]] + [history[-1][0] + 1000]
    for (now, event, _), end in zip(history, ends, strict=True):
        known = event(known, now).aged(now, LIMIT)
        turn = known.turn(now, LIMIT)
        before = min(end, turn if turn is not None else end) - 0.001
        assert counts(known.aged(before, LIMIT), before) == counts(known, now)
