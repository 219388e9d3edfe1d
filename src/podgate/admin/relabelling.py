"""Relabelling: gives a label to the Nodes that a selector selects, as the cluster scripts did it at the start.

Here: ``podgate metadata kube-up migrate-labels``: waiting, the tries, what is said. Not here: which label
(features/metadata/kube_up.py).
Invariant: a Node that was deleted, or made anew, meanwhile is never made by us; a label that has another value is
overwritten.
"""

import argparse
import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from podgate.admin.reaching import NOT_IN_TIME, Ask, add_api, connection_to, let_in, listed
from podgate.commandline.usage import Parser, UsageError
from podgate.features.metadata.kube_up import MIGRATED, OLD_NODES
from podgate.joints import Answered
from podgate.kubeapi.answers import Refusal
from podgate.kubeapi.connection import AccessError, UnreachableError
from podgate.kubeapi.requests import dry_run, list_page
from podgate.model.frozen import Frozen
from podgate.model.kinds.meta import ref_of
from podgate.model.kinds.nodes import NODE, Node
from podgate.model.snapshot import Watch
from podgate.targets.kubernetes.render import apply_request
from podgate.targets.kubernetes.state import labels_of

TRIES: Final = 5
PAUSE: Final = 3.0
"""Seconds between two tries (cluster/gce, update-node-label)."""

MANAGER: Final = "podgate-kube-up"

_PROG: Final = "podgate metadata kube-up migrate-labels"

_node: Final = msgspec.json.Decoder(Node)


class Relabelled(Frozen, frozen=True):
    """What came of it.

    Attributes:
        done: the Nodes that got the label.
        refused: why others did not, by Node; the empty name is about the list of Nodes itself.
    """

    done: tuple[str, ...] = ()
    refused: Mapping[str, str] = {}


async def relabel(ask: Ask, selector: str, labels: Mapping[str, str], tell: Callable[[str], None]) -> Relabelled:
    """Label all Nodes that are selected, in five tries."""
    done: list[str] = []
    for left in reversed(range(TRIES)):
        refused = await _once(ask, selector, labels, done)
        if not refused or not left:
            return Relabelled(tuple(done), refused)
        for name, why in refused.items():
            tell(f"{f'Node {name}: ' if name else ''}{why}; {left} more {'tries' if left > 1 else 'try'}")
        await asyncio.sleep(PAUSE)
    raise AssertionError("the last try returns")


async def relabel_dry(ask: Ask, selector: str, labels: Mapping[str, str]) -> Relabelled:
    """Have the API say, in one try, which Nodes it would label and which it would refuse; nothing is changed."""
    would: list[str] = []
    refused = await _once(ask, selector, labels, would, dry=True)
    return Relabelled(tuple(would), refused)


async def _once(
    ask: Ask, selector: str, labels: Mapping[str, str], done: list[str], *, dry: bool = False
) -> Mapping[str, str]:
    """Label those that are selected now; give who was refused and why."""
    refused: dict[str, str] = {}
    try:
        nodes = await listed(ask, Watch(NODE, label_selector=selector))
        if isinstance(nodes, Refusal):
            return {"": f"list Node: {nodes}"}
        for node in map(_node.decode, nodes):
            part, fields = labels_of(ref_of(NODE, node.metadata), labels, force=True)
            request = apply_request(NODE, part, fields, MANAGER, node.metadata.uid)
            answer = await ask(dry_run(request) if dry else request)
            if answer.refused is None:
                done.append(node.metadata.name)
            else:
                refused[node.metadata.name] = str(answer.refused)
    except (UnreachableError, AccessError) as error:
        refused[""] = str(error)
    return refused


def main(words: Sequence[str], environ: Mapping[str, str], tell: Callable[[str], None]) -> Answered:
    """Do the verb. Raises UsageError, SourceError.

    Exit codes: 0 all Nodes have the label; 1 some were refused in every try; 3 the API did not let us in. With
    ``--dry-run`` 0 nothing to do, 1 something, 2 some would be refused.
    """
    asked = _parser().parse_args(list(words))
    if not asked.timeout >= 0:
        raise UsageError(f"{_PROG}: --timeout {asked.timeout:g}: write seconds, or 0 for ever")
    connection = connection_to(asked, environ, lambda said: tell(f"{_PROG}: {said}"))

    async def go() -> Answered:
        async with connection:
            return await migrated(connection.send, tell, asked.timeout, dry=asked.dry_run)

    return asyncio.run(go())


async def migrated(ask: Ask, tell: Callable[[str], None], seconds: float, *, dry: bool = False) -> Answered:
    """Wait for the API, at most ``seconds`` (0: for ever), and move metadata-proxy's label; ``dry`` only says it."""
    wrong = await let_in(ask, list_page(Watch(NODE), limit=1), tell, seconds, PAUSE)
    if wrong:
        text = f"the API did not let us in within {seconds:g} s: {wrong}"
        return Answered(text, {"errors": [text]}, NOT_IN_TIME)
    found = await (relabel_dry(ask, OLD_NODES, MIGRATED) if dry else relabel(ask, OLD_NODES, MIGRATED, tell))
    (label,) = (f"{key}={value}" for key, value in MIGRATED.items())
    lines = [f"Node {name}: {'would get ' if dry else ''}{label}" for name in found.done]
    no = "would not be labelled" if dry else "not labelled"
    lines += [f"{f'Node {name}' if name else 'Nodes'}: {no}: {why}" for name, why in found.refused.items()]
    text = "\n".join(lines) or f"no Node has the old label alone ({OLD_NODES}): nothing to do"
    data = {"label": label, "would_label" if dry else "labelled": found.done, "refused": found.refused}
    if dry:
        return Answered(text, data, 2 if found.refused else int(bool(found.done)))
    return Answered(text, data, int(bool(found.refused)))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog=_PROG,
        description=f"Give each Node of {OLD_NODES} the new label: waits for the API, then {TRIES} tries, "
        f"{PAUSE:g} s apart.",
        allow_abbrev=False,
        guided="metadata kube-up migrate-labels",
    )
    add_api(parser)
    told = "seconds to wait for the API; 0: for ever, as the scripts did (default)"
    parser.add_argument("--timeout", type=float, default=0.0, metavar="S", help=told)
    parser.add_argument("--dry-run", action="store_true", help="say what would be done: exit 0 nothing, 1 something")
    parser.add_argument("--output", choices=("text", "json"), default="text", help="for people or for programs")
    return parser
