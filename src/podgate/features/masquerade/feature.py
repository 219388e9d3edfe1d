"""masquerade, as the command line and the host know it.

Here: the declaration: what it needs, what it writes, how it answers; which back end this node's kubelet hints at.
Not here: any decision about traffic.
Invariant: every verb looks at the same compiled value, so what is rendered, explained and checked is what is written.
"""

import argparse
import functools
from collections.abc import Callable, Mapping
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import msgspec

from podgate.commandline.checked import checked_rows, checked_text, objects_seen, objects_text
from podgate.features.masquerade.backends import (
    BINARIES,
    FAMILIES,
    Backend,
    BackendCompiler,
    Choice,
    States,
    in_order,
    step_name,
    steps_before,
)
from podgate.features.masquerade.check import check
from podgate.features.masquerade.choosing import CONFIG_MAP_REF, file_watch
from podgate.features.masquerade.compile import KEPT
from podgate.features.masquerade.config import recover
from podgate.features.masquerade.explain import Unanswerable, answer_json, answer_line, explain
from podgate.features.masquerade.intent import STAND_IN
from podgate.features.masquerade.policy import MASQUERADE_POLICY
from podgate.features.masquerade.resolving import namespace_labels
from podgate.features.masquerade.senders import namespace_of, sender_of
from podgate.features.masquerade.settings import Settings
from podgate.features.masquerade.to_conntrack import judge_of
from podgate.features.masquerade.to_iptables import KEPT_CHAINS, OWNERS, kept_spans, recorded_chains
from podgate.features.masquerade.to_kubernetes import PolicyTelling
from podgate.features.masquerade.to_nftables import KEEP, TABLE
from podgate.joints import Answered, Compiled, Feature, Inputs, Look, QuestionError, Step
from podgate.linux.iptables import hinted_binary
from podgate.linux.tools import tool_version
from podgate.model.files import FileWatch
from podgate.model.kinds.config import CONFIG_MAP, NAMESPACE
from podgate.model.kinds.nodes import NODE
from podgate.model.kinds.pods import POD
from podgate.model.machine import Family, IPAddress
from podgate.model.snapshot import Watch
from podgate.observe.metrics import Measured
from podgate.targets.conntrack.apply import ConntrackFollower, Judge
from podgate.targets.iptables.apply import IptablesTarget
from podgate.targets.iptables.render import render
from podgate.targets.iptables.render import state_json as iptables_json
from podgate.targets.iptables.state import State as IptablesState
from podgate.targets.nftables.apply import NftablesTarget
from podgate.targets.nftables.render import listing, state_json
from podgate.targets.nftables.state import State


class Masquerade(Feature[Settings, States]):
    """Decides which Pod traffic leaves with the node's address; replaces ip-masq-agent."""

    name = "masquerade"
    settings = Settings
    tells = PolicyTelling()

    def __init__(self) -> None:
        # Looked up once, so that the compiler and the steps of a process agree whatever a kubelet does meanwhile.
        self._choice = functools.cache(choose_backend)

    def watches(self, settings: Settings, node_name: str | None) -> tuple[Watch, ...]:
        """Need one node's Pods or all, nodes, namespaces, policies, and the one ConfigMap unless a file was named."""
        pods = Watch(POD, field_selector=f"spec.nodeName={node_name}" if node_name else "")
        policies = (Watch(MASQUERADE_POLICY),) if settings.rules == "podgate" else ()
        watches = (Watch(NODE), pods, Watch(NAMESPACE), *policies)
        if settings.config is not None:
            return watches
        name = f"metadata.name={CONFIG_MAP_REF.name}"
        return (*watches, Watch(CONFIG_MAP, CONFIG_MAP_REF.namespace, field_selector=name))

    def files(self, settings: Settings) -> tuple[FileWatch, ...]:
        """Need the configuration file or directory."""
        return (file_watch(settings),)

    def compiler(self, settings: Settings) -> Callable[[Inputs], Compiled[States]]:
        """Give the compiler."""
        return BackendCompiler(settings, self._choice(settings.backend))

    def steps(self, settings: Settings) -> tuple[Step[States, Any, Any], ...]:
        """Write one state per family and back end. What is off or not chosen has steps too, which want nothing."""
        choice, recorded = self._choice(settings.backend), _recorded(settings.state_dir)
        return tuple(
            _step(choice, backend, family, recorded, cut_tcp=settings.cut_tcp)
            for backend in in_order(choice)
            for family in FAMILIES
        )

    def samples(self, states: States) -> tuple[Measured, ...]:
        """Count what is written."""
        name = "podgate_masquerade_entries"
        text = "Intervals in a set of the kernel, or rules in a chain."
        sets = [
            Measured(name, len(elements), (("family", state.family), ("set", set_name)), help=text)
            for state in (states.ip, states.ip6)
            for set_name, elements in sorted(state.elements.items())
        ]
        chains = [
            Measured(name, len(chain.rules), (("family", state.family), ("set", chain.name)), help=text)
            for state in states.iptables.values()
            for chain in state.chains
        ]
        return (*sets, *chains)

    def recover(self, read_back: Mapping[str, Any]) -> Mapping[str, bytes]:
        """Make the configuration out of our own rules, or of those that ip-masq-agent left.

        An empty list tells nothing: somebody may have emptied it. Nor does the built-in list, when it only stood in.
        """
        spans: dict[Family, list[tuple[int, int]]] = {}
        for family in FAMILIES:
            for state in read_back.values():
                found = None if getattr(state, "family", "") != family else _kept_of(state)
                if found and family not in spans:
                    spans[family] = found
        return {KEPT: recover(spans)} if "ip" in spans else {}

    def render(self, states: States) -> Answered:
        """Show the tables as ``nft -f`` takes them, or the chains as ``iptables-restore --noflush`` does."""
        if states.iptables:
            chains = [state for state in states.iptables.values() if state.chains]
            text = "\n".join(f"# {state.program}-restore --noflush\n{render(state)}" for state in chains)
            return Answered(text, {"tables": [iptables_json(state) for state in chains]})
        tables = [state for state in (states.ip, states.ip6) if state.present]
        text = "\n".join(listing(state) for state in tables)
        return Answered(text, {"tables": [state_json(state) for state in tables]})

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
        ours = {chain.name for state in compiled.states.iptables.values() for chain in state.chains}
        rules = [rule for rule in foreign.rules if rule.chain not in ours]
        findings = check(compiled.states.intent, look.inputs, rules)
        rows = checked_rows(compiled.problems, findings, look.where)
        done = "not read: " + foreign.unread if foreign.unread else "read"
        seen = objects_seen(look.inputs.objects)
        note = f"checked: configuration, {objects_text(seen, look.others())}; live rules of other programs: {done}"
        data = {"findings": rows, "objects": seen, "others": look.others(), "live_rules": done}
        return Answered(checked_text(rows, note), data, 1 if rows else 0)


def choose_backend(wanted: str) -> Choice:
    """Say which back end ``--backend`` means on this node."""
    if wanted == "nftables":
        return Choice()
    hint = hinted_binary() if wanted in ("auto", "iptables") else None
    if wanted == "auto" and hint is None:
        return Choice()
    legacy = wanted == "iptables-legacy" or hint == "legacy"
    backend: Backend = "iptables-legacy" if legacy else "iptables-nft"
    return Choice(backend, tool_version(backend) or tool_version("iptables") or "")


def _recorded(state_dir: str) -> frozenset[str]:
    """Give the iptables chains that an earlier run wrote; a directory that cannot be read tells none."""
    try:
        return recorded_chains(Path(state_dir, KEPT_CHAINS).read_bytes())
    except OSError:
        return frozenset()


def _step(
    choice: Choice, backend: Backend, family: Family, recorded: frozenset[str], *, cut_tcp: bool
) -> Step[States, Any, Any]:
    name, after, chosen = step_name(backend, family), steps_before(choice, backend, family), backend == choice.backend
    followers = (ConntrackFollower(family, partial(_judge, family, cut_tcp)),) if chosen else ()
    binary = BINARIES.get(backend)

    def resync(states: States) -> float | None:
        # The kernel tells nobody what iptables-legacy does; a table of nf_tables in which nothing is wanted is watched.
        return states.intent.resync_seconds if chosen or binary == "legacy" else None

    if binary is None:
        table = NftablesTarget(family, TABLE)
        empty = State.absent(family, TABLE)
        return Step(name, table, lambda states: states.nftables_of(family), empty, after, followers, resync, chosen)
    chains = IptablesTarget(family, binary, OWNERS, recorded=recorded, clears=not chosen)

    def want(states: States) -> IptablesState:
        return msgspec.structs.replace(states.iptables_of(backend, family), recorded=recorded)

    nothing = IptablesState(family, binary, recorded=recorded)
    return Step(name, chains, want, nothing, after, followers, resync, chosen)


def _judge(family: Family, cut_tcp: bool, before: States, after: States, gap: bool) -> Judge | None:
    return judge_of(before.intent, after.intent, family, cut_tcp=cut_tcp, gap=gap)


def _kept_of(state: State | IptablesState) -> list[tuple[int, int]]:
    """Give what a state that was read back keeps, by a list that somebody wrote."""
    if isinstance(state, IptablesState):
        found = [spans for chain in state.chains if (spans := kept_spans(state, chain.name))]
        return [(span.first, span.last) for span in found[0]] if found else []
    if any(declared.name == KEEP and declared.comment == STAND_IN for declared in state.sets):
        return []
    return [
        (int.from_bytes(key[: len(key) // 2]), int.from_bytes(key[len(key) // 2 :])) for key in state.elements_of(KEEP)
    ]


def _address(text: str) -> IPAddress:
    try:
        return ip_address(text)
    except ValueError:
        raise QuestionError(f'"{text}" is not an IP address: write it as 10.70.0.2 or fd00::2') from None


FEATURE = Masquerade()
