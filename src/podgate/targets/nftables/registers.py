"""registers: runs a table's code on the first packet of a flow, as the kernel does, and tells all that may come of it.

Here: the way of a packet through base chains and hooks, and every draw of chance. Not here: single expressions
(evaluation.py), rules as text (grammar.py and model/packet.py). Pure.
Invariant: what the kernel would refuse is a ValueError, never a guess: a register that nothing was loaded into, a set
that is not there, a translation in the wrong hook.
"""

from collections.abc import Iterator, Mapping
from typing import Final, Literal

from podgate.model import packet as packets
from podgate.model.packet import Fate, Locality, Packet
from podgate.targets.nftables.evaluation import DynamicElements, Evaluation, Fork, Passing
from podgate.targets.nftables.state import Chain, State

_JUMPS: Final = 16
"""How deep nf_tables lets chains call each other (NFT_JUMP_STACK_SIZE)."""
_MOST_OUTCOMES: Final = 100_000

EntryHook = Literal["prerouting", "output"]


class Outcome(packets.Outcome, frozen=True):
    """What may come of a packet, and what was remembered.

    Attributes:
        memory: the elements of dynamic sets afterwards, to be given to ``flow`` for the next packet.
    """

    memory: DynamicElements = frozenset()


def flow(
    state: State,
    packet: Packet,
    locality: Locality,
    hook: EntryHook = "prerouting",
    *,
    mark: int = 0,
    memory: DynamicElements = frozenset(),
) -> frozenset[Outcome]:
    """Give all that may come of the first packet of a flow.

    It meets the base chains of its hook, then those of input, or of forward and postrouting, by where it goes after
    its destination was translated; a packet of this node those of output and postrouting, and if it goes to this node,
    of prerouting and input too, but for address translation, which knows the flow by then.

    Args:
        state: a table with code.
        packet: the packet; its interfaces may matter to rules.
        locality: which addresses are this node's.
        hook: where it enters: ``prerouting`` what came in, ``output`` what this node sends.
        mark: the packet's mark.
        memory: elements of dynamic sets: (name, key, data).

    Raises:
        ValueError: the kernel would refuse the code, or the packet has more than 100,000 outcomes.
    """
    if state.dormant or not state.present:
        raise ValueError(f"table {state.family} {state.name} is not in force: no packet meets it")
    if any(not rule.code for chain in state.chains for rule in chain.rules):
        raise ValueError(
            f"table {state.family} {state.name} has rules without code: follow packets by FakeNftables.trace"
        )
    outcomes: set[Outcome] = set()
    waiting: list[tuple[int, ...]] = [()]
    while waiting:
        draws = waiting.pop()
        walk = _Walk(state, packet, locality, Evaluation(state, packet, locality, draws, mark=mark, memory=memory))
        try:
            outcomes.add(walk.through(hook))
        except Fork as fork:
            waiting += [(*draws, number) for number in fork.numbers]
        if len(waiting) + len(outcomes) > _MOST_OUTCOMES:
            raise ValueError(f"{packet} has more than {_MOST_OUTCOMES} outcomes")
    return frozenset(outcomes)


class _Walk:
    """One packet, with one sequence of draws."""

    def __init__(self, state: State, packet: Packet, locality: Locality, machine: Evaluation) -> None:
        self._chains: Mapping[str, Chain] = {chain.name: chain for chain in state.chains}
        self._base = sorted((c for c in state.chains if c.hook), key=lambda c: c.hook.priority if c.hook else 0)
        self._packet = packet
        self._locality = locality
        self._machine = machine

    def through(self, entry: EntryHook) -> Outcome:
        """Give what comes of the packet."""
        machine = self._machine
        for hook in self._hooks(entry):
            verdict = self._hook(hook)
            if verdict != "accept":
                return Outcome(verdict, mark=machine.mark, memory=machine.memory)
        endpoint = (machine.destination, machine.dport) if machine.is_translated else None
        return Outcome("accept", endpoint, machine.is_masqueraded, machine.mark, machine.memory)

    def _hooks(self, entry: EntryHook) -> Iterator[str]:
        yield entry
        is_local = self._locality.type_of(self._machine.destination) == "local"
        if entry == "output":
            yield "postrouting"
            if is_local:
                yield "prerouting"
                yield "input"
        elif is_local:
            yield "input"
        else:
            yield "forward"
            yield "postrouting"

    def _hook(self, hook: str) -> Fate:
        """Go through the base chains of a hook."""
        machine = self._machine
        machine.enter(hook)
        for chain in self._base:
            place = chain.hook
            if place is None or place.hook != hook or (place.type == "nat" and machine.knows_translation(hook)):
                continue
            machine.passing = Passing(hook, place.type, place.priority)
            verdict = self._chain(chain, 0)
            if verdict in ("drop", "reject") or (verdict is None and place.policy == "drop"):
                return "reject" if verdict == "reject" else "drop"
        machine.leave(hook)
        return "accept"

    def _chain(self, chain: Chain, depth: int) -> str | None:
        """Give the last verdict of a chain, or None when the packet comes back from it."""
        if depth > _JUMPS:
            raise ValueError(f"chains call each other more than {_JUMPS} deep, last {chain.name}: is there a loop?")
        for rule in chain.rules:
            try:
                verdict = self._machine.run(rule.code)
            except ValueError as problem:
                raise ValueError(f"chain {chain.name}, rule `{rule.text}`: {problem}") from problem
            word, _, target = (verdict or "").partition(" ")
            if word in ("", "continue"):
                continue
            if word == "return":
                return None
            if word not in ("jump", "goto"):
                return word
            if target not in self._chains:
                raise ValueError(f"chain {chain.name} goes to {target}, which is not there")
            inner = self._chain(self._chains[target], depth + 1)
            if inner is not None or word == "goto":
                return inner
        return None


__all__ = ["DynamicElements", "Outcome", "flow"]
