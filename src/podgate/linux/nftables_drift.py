"""Drift: tells other programs' changes of our table from our own, by the kernel's notifications.

Here: transactions, whose they are, and what they changed, in words. Not here: the socket (targets/*/apply.py).
Invariant: a transaction is ours only if we know who sent it: our own socket, or an nft that we started, while it ran.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from podgate.linux.netlink import Message, text
from podgate.linux.nftables import NEW_RULE, TABLE, Event, beginning_of, event_in, generation_in

_SHOWN: Final = 4
_MANY: Final = 256
"""Changes of one transaction after which it is told of before its end: the kernel may have 10,000 rules to tell of."""

_PREPOSITIONS: Final = {"element": ("to", "from", "set"), "rule": ("to", "from", "chain")}


class Run:
    """An nft that we started. Its transactions lie in the generations after ``first`` up to ``last``.

    ``last`` is None while it runs: until it was reaped, its process id, which is its port, belongs to nobody else.
    """

    def __init__(self, port: int, first: int) -> None:
        self.port = port
        self.first = first
        self.last: int | None = None

    def made(self, port: int, generation: int) -> bool:
        """Say whether it made the transaction with this sender and number."""
        return port == self.port and self.first < generation and (self.last is None or generation <= self.last)


class Drift:
    """Reads notifications of one table, one transaction after the other.

    Args:
        family: of the table, as the kernel numbers it.
        table: its name.
        concerns: says whether a change matters, where a table is shared with other programs; without it all do.
        rule_added: told the chain of each rule that others add, also in place of one of ours.
    """

    def __init__(
        self,
        family: int,
        table: str,
        concerns: Callable[[Event], bool] = lambda _event: True,
        rule_added: Callable[[str], None] = lambda _chain: None,
    ) -> None:
        self._family = family
        self._table = table
        self._concerns = concerns
        self._rule_added = rule_added
        # The kernel names the table first, whatever changed.
        self._of_family, self._begins = bytes((family,)), text(TABLE, table)
        self._first = self._begins[2:4]
        self._open: list[Event] = []
        self._is_told = False  # of the open transaction
        self._alike: tuple[int, bytes] | None = None  # how the last message began, if it was of elements or a rule
        self._runs: deque[Run] = deque(maxlen=16)
        self._own_port: int | None = None

    def own_socket(self, port: int) -> None:
        """Take what this socket sends as ours; a port belongs to one socket as long as that is open."""
        self._own_port = port

    def run_started(self, port: int, generation: int) -> Run:
        """Take what the nft with this process id sends as ours, from the generation at its start on."""
        run = Run(port, generation)
        self._runs.append(run)
        return run

    def lost(self) -> None:
        """Forget a transaction whose end may never come."""
        self._open.clear()
        self._alike, self._is_told = None, False

    def foreign(self, messages: Iterable[Message]) -> str:
        """Say what others changed in the transactions that these notifications close; empty when nothing.

        Of a large one whose sender is none of us it is said before its end, and of what is left of it only which rules
        it added: all that it did is in force before the kernel tells of any.
        """
        events: list[Event] = []
        for message in messages:
            generation = generation_in(message)
            if generation is None:
                self._note(message)
                if len(self._open) >= _MANY and not self._is_told and not self._may_be_ours(message.port):
                    events.extend(self._open)
                    self._open.clear()
                    self._is_told = True
                continue
            if not self._is_ours(message.port, generation):
                events.extend(self._open)
            self.lost()
        for chain in dict.fromkeys(event.name for event in events if event.added and event.noun == "rule"):
            self._rule_added(chain)
        return describe(events)

    def _note(self, message: Message) -> None:
        """Note what changed; of many elements of one set, or rules of one chain, the first one tells of all."""
        kind, body = message.kind, message.body
        if (body[6:8] == self._first and not body.startswith(self._begins, 4)) or body[:1] != self._of_family:
            return
        if self._is_told and kind != NEW_RULE:  # what stands in place of ours must be known before all is read
            return
        alike = self._alike
        if alike is not None and kind == alike[0] and body.startswith(alike[1]):
            return
        event = event_in(message, self._family, self._table)
        if event and self._concerns(event):
            self._open.append(event)
        beginning = beginning_of(message)
        self._alike = (kind, beginning) if beginning else None

    def _may_be_ours(self, port: int) -> bool:
        """Say whether a sender is one of us, or has the process id of an nft that was."""
        return port == self._own_port or any(run.port == port for run in self._runs)

    def _is_ours(self, port: int, generation: int) -> bool:
        return port == self._own_port or any(run.made(port, generation) for run in self._runs)


def describe(events: Iterable[Event]) -> str:
    """Say in words what changed: ``the table was deleted``, ``elements deleted from set keep``."""
    # What a rule brings along has a name of the kernel's own, as __set0: the rule says it all.
    changed = dict.fromkeys(event for event in events if not event.name.startswith("__"))
    if any(event.noun == "table" and not event.added for event in changed):
        return "the table was deleted"
    parts = []
    for event in changed:
        verb = "added" if event.added else "deleted"
        if event.noun in _PREPOSITIONS:
            to, of, container = _PREPOSITIONS[event.noun]
            parts.append(f"{event.noun}s {verb} {to if event.added else of} {container} {event.name}")
        else:
            parts.append(f"{event.noun} {event.name} {'added or changed' if event.added else verb}")
    if len(parts) > _SHOWN:
        parts[_SHOWN:] = [f"and {len(parts) - _SHOWN} more changes"]
    return ", ".join(parts)
