"""render: states and plans as text that ``nft -f`` loads in one transaction.

Here: nft's language, and for people alone tables whose rules are code. Not here: running nft (program.py), what changes
and how a plan shows itself (diff.py).
Invariant: equal states give equal text, and loading a state's text gives that state whatever was there before; what a
name, a rule or a comment holds never becomes a command of its own: what could is a ValueError.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from podgate.targets.nftables.diff import ElementChange, Plan, by_key, check_names, element_texts, sorted_elements
from podgate.targets.nftables.elements import Data, Element
from podgate.targets.nftables.state import Chain, Rule, Set, State, comment_text, is_rule, is_verdict

_WIDTH: Final = 100
_MOST_DELETED: Final = 500
"""Elements above which a set is filled anew: nft 1.0.6 took 19 s to read the deletion of 5,000 intervals."""
_PER_COMMAND: Final = 5_000
"""Elements in one command: nft's messages point into lines, and an endless one helps nobody."""


def render(state: State) -> str:
    """Give the text that replaces the whole table; of an absent one, the text that takes it away.

    Raises:
        ValueError: a name, a rule or a verdict is none, or rules are code, which nft cannot read.
    """
    check_names(state)
    _check_text(state)
    table = f"table {state.family} {state.name}"
    lines = [f"{table} {{", "}", f"delete {table}"]
    if state.present:
        lines += ["", f"{table} {{", *_body(state), "}"]
    return "\n".join(lines) + "\n"


def _check_text(state: State) -> None:
    if state.has_code:
        raise ValueError(f"nft cannot load table {state.family} {state.name}: its rules do what nft cannot say")


def listing(state: State) -> str:
    """Give the table alone, as people read it; empty for an absent one.

    Raises:
        ValueError: a name, a rule or a verdict is none.
    """
    check_names(state)
    if not state.present:
        return ""
    return "\n".join((f"table {state.family} {state.name} {{", *_body(state), "}")) + "\n"


def state_json(state: State) -> dict[str, Any]:
    """Give the table as values for programs; elements are as nft reads them."""
    return {
        "family": state.family,
        "table": state.name,
        "present": state.present,
        "sets": [
            {
                "name": declared.name,
                "elements": element_texts(declared, sorted_elements(state.elements_of(declared.name))),
            }
            for declared in state.sets
        ],
        "chains": [
            {
                "name": chain.name,
                "hook": msgspec.to_builtins(chain.hook),
                "rules": [{"rule": rule.text, "comment": rule.comment} for rule in chain.rules],
            }
            for chain in state.chains
        ],
    }


def _body(state: State) -> Iterator[str]:
    parts = [[f'\tcomment "{comment_text(state.comment)}"']] if state.comment else []
    parts += [_set_lines(declared, state) for declared in state.sets]
    parts += [_chain_lines(chain) for chain in state.chains]
    for number, part in enumerate(parts):
        if number:
            yield ""
        yield from part


def _set_lines(declared: Set, state: State) -> list[str]:
    lines = [f"\t{_kind(declared)} {declared.name} {{", *(f"\t\t{line}" for line in _declaration(declared))]
    elements = sorted_elements(state.elements_of(declared.name))
    if elements:
        lines += _listed("elements = {", declared, elements, "\t\t")
    return [*lines, "\t}"]


def _chain_lines(chain: Chain) -> list[str]:
    lines = [f"\tchain {chain.name} {{"]
    if chain.hook:
        lines.append(f"\t\t{_hook(chain)}")
    return [*lines, *(f"\t\t{_rule(rule)}" for rule in chain.rules), "\t}"]


def _kind(declared: Set) -> str:
    return "map" if declared.data else "set"


def _declaration(declared: Set) -> Iterator[str]:
    yield f"type {' . '.join(declared.key)}" + (f" : {' . '.join(declared.data)}" if declared.data else "")
    if declared.flags:
        yield f"flags {', '.join(declared.flags)}"
    if declared.timeout:
        yield f"timeout {declared.timeout}s"
    if declared.size:
        yield f"size {declared.size}"
    if declared.comment:
        yield f'comment "{comment_text(declared.comment)}"'


def _hook(chain: Chain) -> str:
    hook = chain.hook
    if hook is None:
        return ""
    return f"type {hook.type} hook {hook.hook} priority {hook.priority}; policy {hook.policy};"


def _rule(rule: Rule) -> str:
    # What code does is told to people alone: its text is never a command, but it is one line.
    if not (rule.text.isprintable() if rule.code else is_rule(rule.text)):
        raise ValueError(f"{rule.text!r} is not the text of one rule: a quote or brace is open, or a character is odd")
    return f'{rule.text} comment "{rule.mark}"'


def _listed(head: str, declared: Set, elements: Sequence[tuple[Element, Data]], indent: str = "") -> Iterator[str]:
    """Show elements several to a line: a line is what a message of nft points to."""
    if declared.data == ("verdict",):
        for _, data in elements:
            if not isinstance(data, str) or not is_verdict(data):
                raise ValueError(f"{data!r} is not a verdict of map {declared.name}: write drop, or goto NAME")
    yield indent + head
    texts = element_texts(declared, elements)
    columns = max(1, _WIDTH // (max(map(len, texts)) + 2))
    for start in range(0, len(texts), columns):
        yield f"{indent}\t{', '.join(texts[start : start + columns])},"
    yield indent + "}"


def transaction(plan: Plan) -> str:
    """Give the text that does what the plan says, empty when there is nothing to do.

    Raises:
        ValueError: a name, a rule or a verdict is none, or rules are code, which nft cannot read.
    """
    if not plan:
        return ""
    check_names(plan.want)
    _check_text(plan.want)
    if plan.whole:
        return render(plan.want)
    return "\n".join(_commands(plan)) + "\n"


def _commands(plan: Plan) -> Iterator[str]:
    want = plan.want
    place = f"{want.family} {want.name}"
    sets = {declared.name: declared for declared in want.sets}
    if plan.wake:
        yield f"add table {place}"
    yield from (f"flush chain {place} {name}" for name in plan.flushed)
    for name, change in plan.elements.items():
        if _filled_anew(sets[name], change):
            yield f"flush {_kind(sets[name])} {place} {name}"
        else:
            yield from _element_commands(f"delete element {place} {name}", sets[name], by_key(change.removed))
    yield from (f"delete {_kind(declared)} {place} {declared.name}" for declared in plan.dropped_sets)
    yield from (f"delete chain {place} {name}" for name in plan.dropped_chains)
    for chain in plan.declared:
        yield f"add chain {place} {chain.name}" + (f" {{ {_hook(chain)} }}" if chain.hook else "")
    for declared in plan.new_sets:
        yield f"add {_kind(declared)} {place} {declared.name} {{ {'; '.join(_declaration(declared))}; }}"
        elements = sorted_elements(want.elements_of(declared.name))
        yield from _element_commands(f"add element {place} {declared.name}", declared, elements)
    for name, change in plan.elements.items():
        anew = _filled_anew(sets[name], change)
        added = sorted_elements(want.elements_of(name)) if anew else by_key(change.added)
        yield from _element_commands(f"add element {place} {name}", sets[name], added)
    for chain in plan.filled:
        yield from (f"add rule {place} {chain.name} {_rule(rule)}" for rule in chain.rules)


def _filled_anew(declared: Set, change: ElementChange) -> bool:
    """Whether nft had better flush and fill a set than delete from it.

    Besides many deletions that is the deletion of an interval which ends with the last value there is: of a verdict map
    nft 1.0.6 leaves it in place, and says that all went well.
    """
    half = len(change.removed[0][0]) // 2 if change.removed else 0
    to_the_end = declared.is_interval and any(key[half:] == b"\xff" * half for key, _ in change.removed)
    return to_the_end or len(change.removed) > _MOST_DELETED


def replaced_sets(plan: Plan) -> str:
    """Give the text that fills the sets whose elements change anew, whatever they hold.

    Raises:
        ValueError: a name, a rule or a verdict is none.
    """
    want = plan.want
    check_names(want)
    place = f"{want.family} {want.name}"
    sets = {declared.name: declared for declared in want.sets}
    lines: list[str] = []
    for name in plan.elements:
        lines.append(f"flush {_kind(sets[name])} {place} {name}")
        elements = sorted_elements(want.elements_of(name))
        lines += _element_commands(f"add element {place} {name}", sets[name], elements)
    return "\n".join(lines) + "\n"


def _element_commands(command: str, declared: Set, elements: Sequence[tuple[Element, Data]]) -> Iterator[str]:
    for start in range(0, len(elements), _PER_COMMAND):
        yield from _listed(f"{command} {{", declared, elements[start : start + _PER_COMMAND])
