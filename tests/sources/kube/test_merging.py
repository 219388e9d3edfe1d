"""Several watches of one kind as one entry: the union is what a fresh union would be."""

from hypothesis import given
from hypothesis import strategies as st

from podgate.kubeapi.answers import Refusal
from podgate.kubeapi.frames import Batch, Bookmark, Gone, Put
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.config import CONFIG_MAP, ConfigMap
from podgate.model.kinds.meta import ObjectMeta
from podgate.model.snapshot import Absent, Listed, Watch
from podgate.model.table import Table
from podgate.sources.kube.merging import Merging
from podgate.sources.kube.watching import Watching


def ref(name: str) -> ObjectRef:
    return ObjectRef("ConfigMap", name, "default")


def put(name: str, value: str = "") -> Put[ConfigMap]:
    return Put(ref(name), ConfigMap(ObjectMeta(name=name), {"v": value}))


def listed(*names: str) -> Watching:
    watching = Watching(Watch(CONFIG_MAP))
    watching.request(0)
    watching.batch(Batch((*map(put, names), Bookmark(initial_end=True)), "1"))
    return watching


def absent(code: int = 403) -> Watching:
    watching = Watching(Watch(CONFIG_MAP))
    for _ in range(3):
        watching.request(0)
        watching.refused(Refusal(code))
    return watching


def test_one_watch_is_its_own_table() -> None:
    watching, merging = listed("a"), Merging()
    entry = merging([watching])
    assert isinstance(entry, Listed)
    assert entry.objects is watching.objects
    assert merging([watching]) is entry


def test_a_kind_is_absent_only_when_no_watch_of_it_is_listed() -> None:
    merging = Merging()
    assert merging([absent(), absent(404)]) == Absent("forbidden")
    entry = merging([absent(), listed("a")])
    assert isinstance(entry, Listed)
    assert list(entry.objects) == [ref("a")]
    assert merging([absent(404)]) == Absent("not installed")


Writes = st.lists(st.tuples(st.integers(0, 2), st.sampled_from("abcd"), st.sampled_from(["", "1", "2"])), max_size=25)


@given(Writes)
def test_the_union_is_what_a_fresh_union_would_be(writes: list[tuple[int, str, str]]) -> None:
    watchings, merging = [listed("a"), listed("a", "b"), listed()], Merging()
    before = merging(watchings)
    for index, name, value in writes:
        changed = watchings[index].batch(Batch((put(name, value) if value else Gone(ref(name)),), "2"))
        entry = merging(watchings)
        fresh: dict[ObjectRef, ConfigMap] = {}
        for watching in reversed(watchings):
            fresh.update(watching.objects)
        assert isinstance(entry, Listed)
        assert entry.objects == Table.of(fresh)
        assert changed or entry is before
        before = entry
