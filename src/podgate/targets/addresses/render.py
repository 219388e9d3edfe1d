"""render: addresses as lines for people and values for programs.

Here: the words. Not here: what the addresses are for.
Invariant: equal states give equal lines, sorted.
"""

from podgate.targets.addresses.state import State


def listing(state: State) -> str:
    """Give one line per address, as ``169.254.169.252/32 on lo, scope host``."""
    return "".join(f"{line}\n" for line in sorted(map(str, state.assigned)))


def state_json(state: State) -> list[dict[str, str]]:
    """Give the addresses as JSON."""
    return [
        {"device": each.place.device, "address": str(each.place.address), "scope": each.scope}
        for each in sorted(state.assigned, key=str)
    ]
