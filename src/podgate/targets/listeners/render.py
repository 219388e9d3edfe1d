"""render: listening sockets as lines for people and values for programs.

Here: the words. Not here: what is served.
Invariant: equal states give equal lines, in the order of address and port.
"""

from podgate.targets.listeners.state import State


def listing(state: State) -> str:
    """Give one line per address, as ``listen 127.0.0.1:988 (proxy)``."""
    return "".join(f"listen {where}\n" for where in sorted(state.addresses))


def state_json(state: State) -> list[dict[str, str | int]]:
    """Give the addresses as JSON."""
    return [{"address": where.address, "port": where.port, "serves": where.serves} for where in sorted(state.addresses)]
