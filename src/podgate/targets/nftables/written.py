"""Written: tells the rules that podgate wrote from others that bear the same mark.

Here: which rules in the kernel are known as ours. Not here: reading them (apply.py), what a mark is (state.py). Pure.
Invariant: a rule that took the place of one of ours is not ours, whatever its comment says: what it does, as the kernel
gives it back, differs from what the kernel gave back after we wrote ours.

What was there before this process did not write it, but has nobody who would know better: it is taken as its marks say.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence


class Written:
    """Remembers the identities of our rules in one table (``linux.nftables.RuleInfo``)."""

    def __init__(self) -> None:
        self._table: int | None = None  # None: nothing is known, so marks are believed
        self._rules: frozenset[bytes] = frozenset()
        self._doubted: set[str] = set()

    def doubt(self, chain: str) -> None:
        """Note that others added a rule to a chain, perhaps in place of one of ours."""
        self._doubted.add(chain)

    def has(self, table: int, chain: str, rule: bytes) -> bool:
        """Say whether a rule may be what its mark says.

        Args:
            table: the table's handle.
            chain: the name of the rule's chain.
            rule: the rule's identity.
        """
        if chain in self._doubted:
            return False
        return self._table is None or (table == self._table and rule in self._rules)

    def was_read(self, table: int, rules: Iterable[bytes]) -> None:
        """Take what was read as ours, if nothing was known."""
        if self._table is None:
            self._table, self._rules = table, frozenset(rules)

    def was_filled(self, table: int, rules: Mapping[str, Sequence[bytes]], filled: Collection[str] | None) -> None:
        """Take the rules of the chains that were just filled as ours; others stay what they were.

        Args:
            table: the table's handle.
            rules: the identities of its rules, by chain, as they are now.
            filled: the chains; None: the whole table was made anew.
        """
        now = {chain: frozenset(found) for chain, found in rules.items()}
        if filled is None:
            self._table, self._rules = table, frozenset().union(*now.values())
            self._doubted.clear()
            return
        self._doubted = {chain for chain in self._doubted if chain in now and chain not in filled}
        if self._table is not None:
            before = self._rules if self._table == table else frozenset()
            ours = (found if chain in filled else found & before for chain, found in now.items())
            self._table, self._rules = table, frozenset().union(*ours)

    def forget(self) -> None:
        """Know nothing, since others may have changed the table while it was written."""
        self._table, self._rules = None, frozenset()
