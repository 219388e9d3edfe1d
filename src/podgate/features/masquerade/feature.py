"""masquerade, as the command line and the host know it.

Here: the declaration: what it needs, what it writes, how it answers. Not here: any decision.
Invariant: every verb looks at the same compiled value, so what is rendered, explained and checked is what is written.
"""

import argparse
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Any

from podgate.features.masquerade import check as checking
from podgate.features.masquerade.choosing import CONFIG_MAP_REF, file_watch
from podgate.features.masquerade.compile import KEPT, Compiler
from podgate.features.masquerade.config import recover
from podgate.features.masquerade.explain import Unanswerable, answer_json, explain
from podgate.features.masquerade.intent import Intent
from podgate.features.masquerade.settings import Settings
from podgate.features.masquerade.to_nftables import KEEP, TABLE, Writer
from podgate.joints import Answered, Compiled, Inputs, Look, QuestionError, Sample, Step
from podgate.model.files import FileWatch
from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.kinds.config import CONFIG_MAP
from podgate.model.kinds.nodes import NODE
from podgate.model.kinds.pods import POD, Pod
from podgate.model.machine import IPAddress
from podgate.model.problems import Problem
from podgate.model.snapshot import Watch
from podgate.targets.nftables.apply import NftablesTarget
from podgate.targets.nftables.render import listing, state_json
from podgate.targets.nftables.state import State


class States(Frozen, frozen=True):
    """What masquerade wants: the intent, and one state per step."""

    intent: Intent
    ip: State


class Masquerade:
    """Decides which Pod traffic leaves with the node's address; replaces ip-masq-agent."""

    name = "masquerade"
    settings = Settings

    def watches(self, settings: Settings, node_name: str | None) -> tuple[Watch, ...]:
        """Need one node's Pods or all, the nodes, and the one ConfigMap unless a file was named."""
        pods = Watch(POD, field_selector=f"spec.nodeName={node_name}" if node_name else "")
        watches = (Watch(NODE), pods)
        if settings.config is not None:
            return watches
        name = f"metadata.name={CONFIG_MAP_REF.name}"
        return (*watches, Watch(CONFIG_MAP, CONFIG_MAP_REF.namespace, field_selector=name))

    def files(self, settings: Settings) -> tuple[FileWatch, ...]:
        """Need the configuration file or directory."""
        return (file_watch(settings),)

    def compiler(self, settings: Settings) -> Callable[[Inputs], Compiled[States]]:
        """Give the compiler."""
        ip = Writer("ip")
        return Compiler(settings, lambda intent: States(intent, ip(intent)))

    def steps(self, settings: Settings) -> tuple[Step[States, Any, Any], ...]:  # noqa: ARG002 - one back end so far
        """Write one nftables table per family."""
        return (
            Step(
                "nftables/ip",
                NftablesTarget("ip", TABLE),
                lambda states: states.ip,
                State.absent("ip", TABLE),
                resync=lambda states: states.intent.resync_seconds,
            ),
        )

    def samples(self, states: States) -> tuple[Sample, ...]:
        """Count what is written."""
        name = "podgate_masquerade_entries"
        text = "Intervals in a set of the kernel."
        return tuple(
            Sample(name, len(elements), (("family", state.family), ("set", set_name)), help=text)
            for state in (states.ip,)
            for set_name, elements in sorted(state.elements.items())
        )

    def recover(self, read_back: Mapping[str, Any]) -> Mapping[str, bytes]:
        """Make the configuration out of the set that our own table holds."""
        state = read_back.get("nftables/ip")
        if not isinstance(state, State) or not state.present:
            return {}
        spans = [(int.from_bytes(key[:4]), int.from_bytes(key[4:])) for key in state.elements_of(KEEP)]
        return {KEPT: recover({"ip": spans})}

    def render(self, states: States) -> Answered:
        """Show the tables as ``nft -f`` takes them."""
        return Answered(listing(states.ip), [state_json(states.ip)])

    def add_questions(self, parser: argparse.ArgumentParser) -> None:
        """Ask for destinations, and for who sends."""
        parser.add_argument("address", nargs="+", metavar="ADDRESS", help="destination address of the packet")
        parser.add_argument(
            "--from",
            dest="sender",
            metavar="[NS/]POD|ADDRESS",
            help="who sends it (default: a Pod of this node without labels)",
        )

    def explain(self, asked: argparse.Namespace, compiled: Compiled[States], look: Look) -> Answered:
        """Say what happens to packets to some addresses."""
        sender = None if asked.sender is None else _sender(asked.sender, look.inputs)
        lines, rows = [], []
        for text in asked.address:
            answer = explain(compiled.states.intent, _address(text), sender)
            if isinstance(answer, Unanswerable):
                raise QuestionError(answer.message)
            row = answer_json(answer, look.line)
            rows.append(row)
            lines.append("{address}: {action}, by {rule} ({source})".format(**row))
        return Answered("\n".join(lines), rows)

    def check(self, compiled: Compiled[States], look: Look) -> Answered:
        """Give findings from the files, and from live rules where they can be read."""
        foreign = look.foreign_nat(TABLE)
        findings = checking.check(compiled.states.intent, look.inputs, foreign.rules)
        warnings = tuple(problem for problems in compiled.problems.values() for problem in problems)
        rows = [_finding_json(problem, look) for problem in dict.fromkeys((*warnings, *findings))]
        done = "not read: " + foreign.unread if foreign.unread else "read"
        lines = ["{place}: {reason}: {message}".format(**row) for row in rows]
        lines.append(f"checked: configuration and objects; live rules of other programs: {done}")
        lines.append(f"{len(rows)} finding{'' if len(rows) == 1 else 's'}")
        return Answered("\n".join(lines), {"findings": rows, "live_rules": done}, 1 if rows else 0)


FEATURE = Masquerade()


def _finding_json(problem: Problem, look: Look) -> dict[str, str]:
    return {
        "object": str(problem.ref),
        "field": problem.field,
        "place": look.where(problem.ref, problem.field),
        "reason": problem.reason,
        "message": problem.message,
    }


def _address(text: str) -> IPAddress:
    try:
        return ip_address(text)
    except ValueError:
        raise QuestionError(f'"{text}" is not an IP address: write it as 10.70.0.2 or fd00::2') from None


def _sender(text: str, inputs: Inputs) -> IPAddress | Pod:
    """Read ``[NS/]POD`` or an address."""
    try:
        return ip_address(text)
    except ValueError:
        namespace, slash, name = text.rpartition("/")
    pods = inputs.objects.objects(POD)
    pod = pods.get(ObjectRef(POD.kind, name, namespace if slash else "default"))
    if pod is not None:
        return pod
    known = ", ".join(sorted(f"{ref.namespace}/{ref.name}" for ref in pods)) or "none"
    raise QuestionError(f'--from "{text}" is neither an address nor a Pod of the source on this node (Pods: {known})')
