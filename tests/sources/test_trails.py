"""Trails: the index says which paths an event concerns, and which directories are worth watching.

Here: histories of setting and dropping against a naive recount. Not here: where trails come from (test_reading.py).
Invariant: after any history the index equals one that was built fresh.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from podgate.sources.reading import Trail
from podgate.sources.trails import Trails

NAMES = st.sampled_from(["a", "b", "c"])
DIRECTORIES = st.sampled_from(["/", "/x", "/x/y"])
TRAILS = st.builds(
    Trail,
    lookups=st.lists(st.tuples(DIRECTORIES, NAMES), max_size=3).map(tuple),
    through=st.frozensets(DIRECTORIES),
    end=DIRECTORIES,
)
CHANGES = st.lists(st.tuples(NAMES, st.none() | st.tuples(TRAILS, st.booleans())), max_size=20)
Change = tuple[str, tuple[Trail, bool] | None]


@settings(max_examples=100, deadline=None)
@given(CHANGES)
def test_any_history_gives_the_index_of_what_is_left(history: list[Change]) -> None:
    trails, naive = Trails(), dict[str, tuple[Trail, bool]]()
    for path, change in history:
        if change is None:
            trails.drop(path)
            naive.pop(path, None)
        else:
            assert trails.set(path, change[0], listed=change[1]) is (naive.get(path) != change)
            naive[path] = change
    looked = {directory for trail, _ in naive.values() for directory, _ in trail.lookups}
    listed = {trail.end for trail, is_listed in naive.values() if is_listed}
    assert set(trails.contents) == looked | listed
    assert set(trails.through) == {directory for trail, _ in naive.values() for directory in trail.through}
    for directory in ("/", "/x", "/x/y"):
        assert trails.listing(directory) == sorted(
            path for path, (trail, is_listed) in naive.items() if is_listed and trail.end == directory
        )
        assert sorted(trails.leading_through(directory)) == sorted(
            path for path, (trail, _) in naive.items() if directory in trail.through
        )
        for name in ("a", "b", "c"):
            assert trails.looked_up(directory, name) == sorted(
                path for path, (trail, _) in naive.items() if (directory, name) in trail.lookups
            )
