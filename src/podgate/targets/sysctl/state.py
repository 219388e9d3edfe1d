"""state: parameters of the kernel and their values.

Here: the values. Not here: reading and writing them (apply.py), which are wanted (each feature).
Invariant: a parameter is named as below /proc/sys, with slashes, and its value is a whole number.
"""

from collections.abc import Mapping

from podgate.model.frozen import Frozen


class State(Frozen, frozen=True):
    """Parameters.

    Attributes:
        values: what they are, or should be; one that the kernel lacks is not in a state that was read.
        at_least: those of which more is right too; never lowered.
    """

    values: Mapping[str, int] = {}
    at_least: frozenset[str] = frozenset()
