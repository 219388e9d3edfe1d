"""state: what a cell holds.

Here: the value and how it shows itself. Not here: the cell itself (apply.py), what the value means.
Invariant: a held value is frozen, so whoever took it before a swap keeps a whole one.
"""

from typing import Any

from podgate.model.frozen import Frozen


class State(Frozen, frozen=True):
    """What a cell holds.

    Attributes:
        value: a frozen value; None for an empty cell.
        shown: one line about the value, for plans and logs.
    """

    value: Any = None
    shown: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is held."""
        return self.value is None
