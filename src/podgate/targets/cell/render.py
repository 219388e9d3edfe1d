"""render: a cell's state as a line for people.

Here: the words. Not here: how the value shows itself (``State.shown``, its maker's choice).
Invariant: a value is never printed, since it may hold what must not be seen.
"""

from podgate.targets.cell.state import State


def listing(state: State) -> str:
    """Give the line."""
    return "empty" if state.is_empty else state.shown or "a value without a description"
