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
from podgate.features.masquerade.explain import Unanswerable, answer_json, answer_line, explain
from podgate.features.masquerade.intent import Intent
from podgate.features.masquerade.policy import MASQUERADE_POLICY
from podgate.features.masquerade.resolving import namespace_labels
from podgate.features.masquerade.senders import namespace_of, sender_of
from podgate.features.masquerade.settings import Settings
from podgate.features.masquerade.to_nftables import KEEP, TABLE, Writer
from podgate.joints import Answered, Compiled, Inputs, Look, QuestionError, Sample, Step
from podgate.model.files import FileWatch
from podgate.model.frozen import Frozen
from podgate.model.kinds.config import CONFIG_MAP, NAMESPACE
from podgate.model.kinds.nodes import NODE
from podgate.model.kinds.pods import POD
from podgate.model.machine import Family, IPAddress
from podgate.model.problems import Problem
from podgate.model.snapshot import Watch
from podgate.targets.nftables.apply import NftablesTarget
from podgate.targets.nftables.render import listing, state_json
from podgate.targets.nftables.state import State


class States(Frozen, frozen=True):
    """What masquerade wants: the intent, and one state per step."""

    intent: Intent
    ip: State
    ip6: State


class Masquerade:
    """Decides which Pod traffic leaves with the node's address; replaces ip-masq-agent."""

    name = "masquerade"
    settings = Settings

    def watches(self, settings: Settings, node_name: str | None) -> tuple[Watch, ...]:
        """Need one node's Pods or all, nodes, namespaces, policies, and the one ConfigMap unless a file was named."""
        pods = Watch(POD, field_selector=f"spec.nodeName={node_name}" if node_name else "")
        watches = (Watch(NODE), pods, Watch(NAMESPACE), Watch(MASQUERADE_POLICY))
        if settings.config is not None:
            return watches
        name = f"metadata.name={CONFIG_MAP_REF.name}"
        return (*watches, Watch(CONFIG_MAP, CONFIG_MAP_REF.namespace, field_selector=name))

    def files(self, settings: Settings) -> tuple[FileWatch, ...]:
        """Need the configuration file or directory."""
        return (file_watch(settings),)

    def compiler(self, settings: Settings) -> Callable[[Inputs], Compiled[States]]:
        """Give the compiler."""
        ip, ip6 = Writer("ip"), Writer("ip6")
        return Compiler(settings, lambda intent: States(intent, ip(intent), ip6(intent)))

    def steps(self, settings: Settings) -> tuple[Step[States, Any, Any], ...]:  # noqa: ARG002 - one back end so far
        """Write one nftables table per family. A family that is off has a step too, which wants no table."""
        return (
            Step(
                "nftables/ip",
                NftablesTarget("ip", TABLE),
                lambda states: states.ip,
                State.absent("ip", TABLE),
                resync=lambda states: states.intent.resync_seconds,
            ),
            Step(
                "nftables/ip6",
                NftablesTarget("ip6", TABLE),
                lambda states: states.ip6,
                State.absent("ip6", TABLE),
                resync=lambda states: states.intent.resync_seconds,
            ),
        )

    def samples(self, states: States) -> tuple[Sample, ...]:
        """Count what is written."""
        name = "podgate_masquerade_entries"
        text = "Intervals in a set of the kernel."
        return tuple(
            Sample(name, len(elements), (("family", state.family), ("set", set_name)), help=text)
            for state in (states.ip, states.ip6)
            for set_name, elements in sorted(state.elements.items())
        )

    def recover(self, read_back: Mapping[str, Any]) -> Mapping[str, bytes]:
        """Make the configuration out of the sets that our own tables hold."""
        families: tuple[Family, ...] = ("ip", "ip6")
        spans: dict[Family, list[tuple[int, int]]] = {}
        for family in families:
            state = read_back.get(f"nftables/{family}")
            if isinstance(state, State) and state.present:
                spans[family] = [
                    (int.from_bytes(key[: len(key) // 2]), int.from_bytes(key[len(key) // 2 :]))
                    for key in state.elements_of(KEEP)
                ]
        return {KEPT: recover(spans)} if "ip" in spans else {}

    def render(self, states: States) -> Answered:
        """Show the tables as ``nft -f`` takes them."""
        tables = [state for state in (states.ip, states.ip6) if state.present]
        return Answered("\n".join(listing(state) for state in tables), [state_json(state) for state in tables])

    def add_questions(self, parser: argparse.ArgumentParser) -> None:
        """Ask for destinations, and for who sends."""
        parser.add_argument("address", nargs="+", metavar="ADDRESS", help="destination address of the packet")
        parser.add_argument(
            "--from",
            dest="sender",
            metavar="[NS/]POD|[NS/]LABEL=VALUE,…|ADDRESS",
            help="who sends it (default: a Pod of this node without labels)",
        )
        parser.add_argument(
            "--out",
            dest="interface",
            metavar="INTERFACE",
            help="the interface that it leaves through (default: what this machine's routes say)",
        )

    def explain(self, asked: argparse.Namespace, compiled: Compiled[States], look: Look) -> Answered:
        """Say what happens to packets to some addresses."""
        sender = None if asked.sender is None else sender_of(asked.sender, look.inputs)
        labels = namespace_labels(look.inputs.objects.objects(NAMESPACE), namespace_of(sender))
        lines, rows = [], []
        for text in asked.address:
            answer = explain(
                compiled.states.intent,
                _address(text),
                sender,
                namespace_labels=labels,
                interface=asked.interface,
            )
            if isinstance(answer, Unanswerable):
                raise QuestionError(answer.message)
            rows.append(answer_json(answer, look.line))
            lines.append(answer_line(answer, look.line))
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
