"""render: listening sockets as lines for people and values for programs.

Here: the words. Not here: what is served.
Invariant: equal states give equal lines, in the order of address and port.
"""

from podgate.targets.listeners.state import State


def listing(state: State) -> str:
    """Give one line per endpoint, as ``listen 127.0.0.1:988 (proxy)``."""
    return "".join(f"listen {endpoint}\n" for endpoint in sorted(state.endpoints))


def state_json(state: State) -> list[dict[str, str | int]]:
    """Give the endpoints as JSON."""
    return [
        {"address": endpoint.address, "port": endpoint.port, "serves": endpoint.serves}
        for endpoint in sorted(state.endpoints)
    ]
