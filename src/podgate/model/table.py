"""Table: an immutable mapping whose updates and derived tables cost what changed, not what there is.

Here: the mapping in shards, ``changes`` and the operators ``mapped``, ``grouped``, ``joined``, ``counted``, ``spread``.
Not here: any meaning of keys and values.
Invariant: a shard whose entries did not change is the same object before and after, so ``is`` proves equality and a
whole shard is skipped; a fresh operator on the same input gives an equal table (tests/model/test_table.py).
"""

from collections.abc import Callable, Hashable, ItemsView, Iterable, Iterator, Mapping
from itertools import compress, starmap
from operator import is_, is_not
from typing import Any, Final, Generic, NamedTuple, TypeVar, overload

_EACH: Final = 64
"""Shards in a group, and groups in a table: one change compares and copies so many of each."""

SHARDS: Final = _EACH * _EACH
"""How many shards a table has. A power of two: at 30,000 entries one change copies about 7 of them."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
W = TypeVar("W")
G = TypeVar("G", bound=Hashable)

_Shard = dict[K, V]
_Group = tuple[_Shard[K, V], ...]

_EMPTY_SHARD: Final[_Shard[Any, Any]] = {}
_EMPTY_GROUP: Final[_Group[Any, Any]] = (_EMPTY_SHARD,) * _EACH
_EMPTY: Final[tuple[_Group[Any, Any], ...]] = (_EMPTY_GROUP,) * _EACH
_MASK: Final = SHARDS - 1
_BITS: Final = _EACH.bit_length() - 1
_WITHIN: Final = _EACH - 1


class Change(NamedTuple, Generic[K, V]):
    """One key whose value differs between two tables; ``None`` where the key is absent."""

    key: K
    old: V | None
    new: V | None


class Table(Mapping[K, V]):
    """An immutable mapping in 4,096 shards. ``None`` is not a value: it stands for absence in changes and joins."""

    __slots__ = ("_groups", "_length")
    _groups: tuple[_Group[K, V], ...]
    _length: int

    def __init__(self) -> None:
        self._groups = _EMPTY
        self._length = 0

    @classmethod
    def of(cls, entries: Mapping[K, V] | Iterable[tuple[K, V]]) -> "Table[K, V]":
        """Make a table from a mapping or from pairs, where the last pair of a key wins."""
        return cls().updated(dict(entries))

    def _shard(self, index: int) -> _Shard[K, V]:
        return self._groups[index >> _BITS][index & _WITHIN]

    def updated(self, entries: Mapping[K, V], removed: Iterable[K] = ()) -> "Table[K, V]":
        """Give the table with ``entries`` set and ``removed`` gone; a key in both is set.

        An entry equal to the one that is there keeps the old object. Without any difference the same table returns.
        """
        touched: dict[int, dict[K, V]] = {}
        for key in removed:
            index = hash(key) & _MASK
            shard = touched.get(index, self._shard(index))
            if key in shard and key not in entries:
                if index not in touched:
                    shard = touched[index] = dict(shard)
                del shard[key]
        if not self._length:
            return self._replaced(_sharded(entries))
        for key, value in entries.items():
            index = hash(key) & _MASK
            shard = touched.get(index, self._shard(index))
            have = shard.get(key)
            if have is value or (have is not None and have == value):
                continue
            if index not in touched:
                shard = touched[index] = dict(shard)
            shard[key] = value
        return self._replaced(touched)

    def _replaced(self, touched: Mapping[int, dict[K, V]]) -> "Table[K, V]":
        """Give the table with some shards replaced by fresh ones, which the caller gives away."""
        if not touched:
            return self
        table: Table[K, V] = Table()
        table._length = self._length
        changed: dict[int, list[_Shard[K, V]]] = {}
        for index, shard in touched.items():
            number, within = index >> _BITS, index & _WITHIN
            group = changed.get(number)
            if group is None:
                group = changed[number] = list(self._groups[number])
            table._length += len(shard) - len(group[within])
            group[within] = shard or _EMPTY_SHARD
        groups = list(self._groups)
        for number, group in changed.items():
            groups[number] = tuple(group)
        table._groups = tuple(groups)
        return table

    def __getitem__(self, key: K) -> V:
        return self._shard(hash(key) & _MASK)[key]

    @overload
    def get(self, key: K, /) -> V | None: ...
    @overload
    def get(self, key: K, /, default: V | W) -> V | W: ...
    def get(self, key: K, /, default: Any = None) -> Any:
        """Give the value of a key, or ``default``; without the exception that Mapping's own costs for each absence."""
        return self._shard(hash(key) & _MASK).get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._shard(hash(key) & _MASK)

    def __iter__(self) -> Iterator[K]:
        for group in self._groups:
            if group is not _EMPTY_GROUP:
                for shard in group:
                    yield from shard

    def __len__(self) -> int:
        return self._length

    def items(self) -> ItemsView[K, V]:
        """Give the entries; without a look-up for each, which is felt at 100,000."""
        return _Items(self)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, Table):
            # Tuples pass over what is the same object.
            return self._length == other._length and self._groups == other._groups
        return NotImplemented

    def __hash__(self) -> int:
        return hash(frozenset(self.items()))

    def __repr__(self) -> str:
        return f"Table({dict(self)!r})"


class _Items(ItemsView[K, V]):
    """The entries of a table, shard by shard."""

    _mapping: Table[K, V]

    def __iter__(self) -> Iterator[tuple[K, V]]:
        for group in self._mapping._groups:  # noqa: SLF001
            if group is not _EMPTY_GROUP:
                for shard in group:
                    yield from shard.items()


def _sharded(entries: Mapping[K, V]) -> dict[int, _Shard[K, V]]:
    """Sort entries into shards: all that a first table takes, which a start waits for."""
    found: dict[int, _Shard[K, V]] = {}
    for key, value in entries.items():
        index = hash(key) & _MASK
        shard = found.get(index)
        if shard is None:
            found[index] = {key: value}
        else:
            shard[key] = value
    return found


def _differing(old: Table[K, V], new: Table[K, W]) -> Iterator[tuple[int, dict[K, V], dict[K, W]]]:
    ones, others = old._groups, new._groups  # noqa: SLF001
    if is_(ones, others):
        return
    # Python compares nothing here: identical groups and shards are passed over in a microsecond.
    for number in compress(range(_EACH), map(is_not, ones, others)):
        before, after = ones[number], others[number]
        for within in compress(range(_EACH), map(is_not, before, after)):
            yield number << _BITS | within, before[within], after[within]


def changes(old: Table[K, V], new: Table[K, V]) -> Iterator[Change[K, V]]:
    """Give each key whose value differs, in no order: added (old None), removed (new None) or replaced."""
    return starmap(Change, _changes(old, new))


def _changes(old: Table[K, V], new: Table[K, V]) -> Iterator[tuple[K, V | None, V | None]]:
    for _, before, after in _differing(old, new):
        if not before:  # as of a whole first table
            for key, value in after.items():
                yield key, None, value
            continue
        for key, value in after.items():
            have = before.get(key)
            if have is not value and have != value:
                yield key, have, value
        for key, value in before.items():
            if key not in after:
                yield key, value, None


class mapped(Generic[K, V, W]):  # noqa: N801 - reads as a verb where it is used: prices = mapped(price)
    """Apply ``function(key, value)`` to each entry; None leaves the entry out. Keys stay."""

    def __init__(self, function: Callable[[K, V], W | None]) -> None:
        self._function = function
        self._input: Table[K, V] = Table()
        self._output: Table[K, W] = Table()

    def __call__(self, table: Table[K, V]) -> Table[K, W]:
        """Give the derived table, recomputing only entries that differ from the previous call's."""
        touched: dict[int, dict[K, W]] = {}
        for index, before, after in _differing(self._input, table):
            have = self._output._shard(index)  # noqa: SLF001
            shard: dict[K, W] = {}
            for key, value in after.items():
                known = before.get(key)
                if known is not None and (known is value or known == value):
                    kept = have.get(key)
                    if kept is not None:
                        shard[key] = kept
                    continue
                result = self._function(key, value)
                if result is not None:
                    shard[key] = result
            if shard != have:
                touched[index] = shard
        self._input, self._output = table, self._output._replaced(touched)  # noqa: SLF001
        return self._output


class grouped(Generic[G, K, V]):  # noqa: N801
    """Index a table by ``keys_of(key, value)``: each group is the table of the entries that named it."""

    def __init__(self, keys_of: Callable[[K, V], Iterable[G]]) -> None:
        self._keys_of = keys_of
        self._input: Table[K, V] = Table()
        self._output: Table[G, Mapping[K, V]] = Table()

    def __call__(self, table: Table[K, V]) -> Table[G, Mapping[K, V]]:
        """Give the index, rebuilding only groups that an entry joined, left or changed in."""
        members: dict[G, dict[K, V]] = {}
        for key, old, new in _changes(self._input, table):
            if old is not None:
                for group in self._keys_of(key, old):
                    self._joining(members, group).pop(key, None)
            if new is not None:
                for group in self._keys_of(key, new):
                    self._joining(members, group)[key] = new
        left = [group for group, entries in members.items() if not entries]
        for group in left:
            del members[group]
        self._input = table
        self._output = self._output.updated(members, removed=left)
        return self._output

    def _joining(self, members: dict[G, dict[K, V]], group: G) -> dict[K, V]:
        """Give what is in a group now, to be changed."""
        entries = members.get(group)
        if entries is None:
            entries = members[group] = dict(self._output.get(group, ()))
        return entries


class joined(Generic[K, V, W]):  # noqa: N801
    """Pair two tables by key: ``(left, right)``, with None for the side that lacks the key."""

    def __init__(self) -> None:
        self._left: Table[K, V] = Table()
        self._right: Table[K, W] = Table()
        self._output: Table[K, tuple[V | None, W | None]] = Table()

    def __call__(self, left: Table[K, V], right: Table[K, W]) -> Table[K, tuple[V | None, W | None]]:
        """Give the pairs, rebuilding only those with a side that changed."""
        touched: dict[int, dict[K, tuple[V | None, W | None]]] = {}
        indices = {index for index, _, _ in _differing(self._left, left)}
        indices.update(index for index, _, _ in _differing(self._right, right))
        for index in indices:
            shard, known = {}, self._output._shard(index)  # noqa: SLF001
            ones, others = left._shard(index), right._shard(index)  # noqa: SLF001
            for key, one in ones.items():
                shard[key] = _pair(known.get(key), one, others.get(key))
            for key, other in others.items():
                if key not in ones:
                    shard[key] = _pair(known.get(key), None, other)
            if shard != known:
                touched[index] = shard
        self._left, self._right = left, right
        self._output = self._output._replaced(touched)  # noqa: SLF001
        return self._output


def _pair(known: tuple[V | None, W | None] | None, one: V | None, other: W | None) -> tuple[V | None, W | None]:
    """Give the pair that is known where it is equal, else a new one."""
    pair = (one, other)
    return known if known is not None and known == pair else pair


class counted(Generic[G, K, V]):  # noqa: N801
    """Count how many entries name each of ``keys_of(key, value)``; what nobody names is not there."""

    def __init__(self, keys_of: Callable[[K, V], Iterable[G]]) -> None:
        self._keys_of = keys_of
        self._input: Table[K, V] = Table()
        self._output: Table[G, int] = Table()

    def __call__(self, table: Table[K, V]) -> Table[G, int]:
        """Give the counts, counting only entries that differ from the previous call's."""
        more: dict[G, int] = {}
        for key, old, new in _changes(self._input, table):
            if old is not None:
                for named in self._keys_of(key, old):
                    more[named] = more.get(named, 0) - 1
            if new is not None:
                for named in self._keys_of(key, new):
                    more[named] = more.get(named, 0) + 1
        counts = {group: self._output.get(group, 0) + change for group, change in more.items() if change}
        left = [group for group, count in counts.items() if not count]
        for group in left:
            del counts[group]
        self._input = table
        self._output = self._output.updated(counts, removed=left)
        return self._output


class spread(Generic[K, V, G, W]):  # noqa: N801
    """Make entries of several named tables out of each entry: ``function(key, value)`` gives (name, key, value).

    No two entries may make the same: when one of them leaves, it is gone. What may be shared is ``counted``.
    """

    def __init__(self, function: Callable[[K, V], Iterable[tuple[str, G, W]]]) -> None:
        self._function = function
        self._input: Table[K, V] = Table()
        self._output: dict[str, Table[G, W]] = {}

    def __call__(self, table: Table[K, V]) -> Mapping[str, Table[G, W]]:
        """Give the tables that ever had an entry, rebuilding only what came from entries that differ."""
        added: dict[str, dict[G, W]] = {}
        removed: dict[str, list[G]] = {}
        for source, old, new in _changes(self._input, table):
            if old is not None:
                for name, key, _ in self._function(source, old):
                    removed.setdefault(name, []).append(key)
            if new is not None:
                for name, key, value in self._function(source, new):
                    added.setdefault(name, {})[key] = value
        output = dict(self._output)
        for name in {**added, **removed}:
            output[name] = output.get(name, Table()).updated(added.get(name, {}), removed.get(name, ()))
        self._input, self._output = table, output
        return output
