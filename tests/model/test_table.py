"""The operators against a naive oracle, in random histories."""

from collections.abc import Iterable, Mapping

from hypothesis import given
from hypothesis import strategies as st

from podgate.model.table import SHARDS, Change, Table, changes, counted, grouped, joined, mapped, spread

Update = tuple[dict[str, int], set[str]]

keys = st.sampled_from([f"k{number}" for number in range(12)])
updates: st.SearchStrategy[Update] = st.tuples(
    st.dictionaries(keys, st.integers(0, 3), max_size=6), st.sets(keys, max_size=4)
)
histories = st.lists(updates, max_size=8)


def played(history: Iterable[Update]) -> Iterable[tuple[Table[str, int], dict[str, int]]]:
    """Give table and oracle after each update."""
    table: Table[str, int] = Table()
    oracle: dict[str, int] = {}
    for entries, removed in history:
        table = table.updated(entries, removed)
        oracle = {key: value for key, value in oracle.items() if key not in removed} | entries
        yield table, oracle


@given(histories)
def test_a_table_is_a_mapping(history: list[Update]) -> None:
    for table, oracle in played(history):
        assert dict(table) == oracle
        assert len(table) == len(oracle)
        assert table == Table.of(oracle)
        assert hash(table) == hash(Table.of(oracle))
        assert all(table[key] == oracle[key] and key in table for key in oracle)
        assert "other" not in table
        assert table.get("other") is None


@given(histories)
def test_an_update_without_a_difference_is_the_same_table(history: list[Update]) -> None:
    for table, oracle in played(history):
        assert table.updated(oracle) is table
        assert table.updated({}, ["not there"]) is table


@given(histories, updates)
def test_an_update_leaves_the_old_table_as_it_was(history: list[Update], update: Update) -> None:
    for table, oracle in played(history):
        table.updated(*update)
        assert dict(table) == oracle


@given(histories, histories)
def test_changes_lead_from_one_table_to_the_other(one: list[Update], two: list[Update]) -> None:
    old = Table.of([*played(one)][-1][1]) if one else Table[str, int]()
    new = [*played(two)][-1][0] if two else old
    found = list(changes(old, new))
    expected = {Change(key, old.get(key), new.get(key)) for key in {*old, *new} if old.get(key) != new.get(key)}
    assert set(found) == expected
    assert len(found) == len(expected)


def odd_doubled(key: str, value: int) -> int | None:
    return 2 * value if value % 2 else None


@given(histories)
def test_mapped_equals_a_fresh_one(history: list[Update]) -> None:
    operator = mapped(odd_doubled)
    for table, oracle in played(history):
        result = operator(table)
        assert dict(result) == {key: 2 * value for key, value in oracle.items() if value % 2}
        assert result == mapped(odd_doubled)(table)


def by_value_and_parity(key: str, value: int) -> tuple[str, ...]:
    return (f"value {value}", "odd" if value % 2 else "even")


@given(histories)
def test_grouped_equals_a_fresh_one(history: list[Update]) -> None:
    operator = grouped(by_value_and_parity)
    for table, oracle in played(history):
        result = operator(table)
        expected: dict[str, dict[str, int]] = {}
        for key, value in oracle.items():
            for group in by_value_and_parity(key, value):
                expected.setdefault(group, {})[key] = value
        assert dict(result) == expected
        assert result == grouped(by_value_and_parity)(table)


@given(histories)
def test_counted_equals_a_fresh_one(history: list[Update]) -> None:
    operator = counted(by_value_and_parity)
    for table, oracle in played(history):
        result = operator(table)
        named = [name for key, value in oracle.items() for name in by_value_and_parity(key, value)]
        assert dict(result) == {name: named.count(name) for name in named}
        assert result == counted(by_value_and_parity)(table)


def copies(key: str, value: int) -> Iterable[tuple[str, tuple[str, int], int]]:
    for number in range(value):
        yield ("all", (key, number), value)
    if value == 3:
        yield ("three", (key, 0), value)


@given(histories)
def test_spread_equals_a_fresh_one(history: list[Update]) -> None:
    operator = spread(copies)
    for table, oracle in played(history):
        result = operator(table)
        made = [entry for key, value in oracle.items() for entry in copies(key, value)]
        for name in ("all", "three"):
            assert dict(result.get(name, Table[tuple[str, int], int]())) == {
                key: value for which, key, value in made if which == name
            }
        assert {name: table for name, table in result.items() if table} == spread(copies)(table)


@given(histories, histories)
def test_joined_equals_a_fresh_one(left: list[Update], right: list[Update]) -> None:
    operator: joined[str, int, int] = joined()
    for (one, one_oracle), (two, two_oracle) in zip(played(left), played(right), strict=False):
        result = operator(one, two)
        assert dict(result) == {key: (one_oracle.get(key), two_oracle.get(key)) for key in {*one_oracle, *two_oracle}}


def test_one_change_recomputes_one_entry_and_keeps_the_other_results() -> None:
    seen: list[str] = []

    def function(key: str, value: int) -> tuple[int]:
        seen.append(key)
        return (value,)

    operator = mapped(function)
    table = Table.of({f"k{number}": number for number in range(5_000)})
    before = operator(table)
    seen.clear()
    after = operator(table.updated({"k7": -1}, ["k8"]))
    assert seen == ["k7"]
    assert after["k7"] == (-1,)
    assert after["k9"] is before["k9"]
    shards = [[shard for group in each._groups for shard in group] for each in (before, after)]
    assert len(shards[0]) == SHARDS
    assert sum(one is not two for one, two in zip(*shards, strict=True)) <= 2


def test_a_chain_of_operators_touches_only_the_shards_that_changed() -> None:
    table = Table.of({f"k{number}": number for number in range(3 * SHARDS)})
    tens: grouped[int, str, int] = grouped(lambda _key, value: [value // 10])
    sums: mapped[int, Mapping[str, int], int] = mapped(lambda _group, members: sum(members.values()))
    before = sums(tens(table))
    after = sums(tens(table.updated({"k15": 1_015})))
    assert {change.key for change in changes(before, after)} == {1, 101}


def test_values_keep_their_identity_when_equal_ones_come_in() -> None:
    words = ["a", "long", "text"]
    value, equal = "a long text", " ".join(words)
    assert value is not equal
    assert Table.of({"k": value}).updated({"k": equal})["k"] is value


def test_a_table_equals_only_tables() -> None:
    entries: Mapping[str, int] = {"a": 1}
    assert Table.of(entries) != Table.of({"a": 2})
    assert Table.of(entries) != "a"
    assert repr(Table.of(entries)) == "Table({'a': 1})"
