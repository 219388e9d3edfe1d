"""render: parameters as lines for people.

Here: the words. Not here: what is wanted.
Invariant: equal states give equal lines, in the order of the names.
"""

from podgate.targets.sysctl.state import State


def listing(state: State) -> str:
    """Give one line per parameter, as sysctl.conf has them: ``net/netfilter/nf_conntrack_max = 131072``."""
    rows = sorted(state.values.items())
    return "".join(f"{name} = {value}{'  # at least' if name in state.at_least else ''}\n" for name, value in rows)
