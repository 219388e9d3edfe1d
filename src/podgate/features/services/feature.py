"""services, as the command line and the host know it.

Here: the declaration: what it needs, what it writes, how it answers. Not here: any decision about traffic.
Invariant: every verb looks at the same compiled value, so what is rendered, explained and checked is what is written.
"""

import argparse
import functools
import os
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from podgate.commandline.checked import checked_rows, checked_text, objects_seen, objects_text
from podgate.features.services.backends import Choice, States, StatesWriter, last_step
from podgate.features.services.check import check
from podgate.features.services.compile import Compiler, watches
from podgate.features.services.explain import Answer, Asker, answer_json, answer_line
from podgate.features.services.intent import FAMILIES
from podgate.features.services.layout import STICKY_IPS
from podgate.features.services.node import here_of
from podgate.features.services.proxy_unasked import UNASKED
from podgate.features.services.server.bootstrap import obstacle
from podgate.features.services.server.forgotten import ForgottenTarget
from podgate.features.services.server.leftovers import NOTHING, OURS_ALONE
from podgate.features.services.server.packets import packet_readings
from podgate.features.services.server.predecessor import (
    DEVICE_STAYS,
    IGNORED,
    NOTHING_LEFT,
    Left,
    PredecessorTarget,
)
from podgate.features.services.server.proxy_at_work import ProxyAtWork, pages_of
from podgate.features.services.server.proxy_file import Configured, configured_by
from podgate.features.services.server.rules import choose_backend, rule_steps
from podgate.features.services.server.serving import Serving, cell_of
from podgate.features.services.settings import Settings
from podgate.features.services.sticky import State as StickyState
from podgate.features.services.to_nftables import table_name
from podgate.features.services.to_sysctls import LOCALNET, sysctls_of
from podgate.features.services.to_sysctls import NAMES as SYSCTLS
from podgate.joints import Answered, Compiled, Feature, Inputs, Look, QuestionError, Served, Step
from podgate.kubeapi.access import AccessError
from podgate.kubeapi.credentials import load_kubeconfig
from podgate.linux.proc import may_lower_oom
from podgate.model.files import FileWatch
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.nodes import NODE
from podgate.model.kinds.pods import POD
from podgate.model.problems import Problem
from podgate.model.snapshot import Watch
from podgate.observe.answers import Page
from podgate.observe.metrics import Measured
from podgate.targets.cell.apply import CellTarget
from podgate.targets.cell.state import State as CellState
from podgate.targets.iptables.render import render
from podgate.targets.iptables.render import state_json as iptables_json
from podgate.targets.listeners.state import State as ListenersState
from podgate.targets.nftables.render import listing, state_json
from podgate.targets.sysctl.apply import SysctlTarget
from podgate.targets.sysctl.state import State as SysctlState


class Services(Feature[Settings, States]):
    """Leads Service addresses to endpoints; replaces kube-proxy.

    Args:
        clears: whether all of a kube-proxy that has stopped goes, when what is ours is taken away.
    """

    name = "services"
    settings = Settings

    def __init__(self, *, clears: bool = False) -> None:
        self._clears = clears
        # Steps and pages of a process look at the same things.
        self._serving = functools.cache(Serving)
        # Looked up once, so that the compiler and the steps of a process agree whatever a kubelet does meanwhile.
        self._choice = functools.cache(choose_backend)
        # Of the file that ``configured`` read, for ``check``: a pipe cannot be read again.
        self._noted: Mapping[Problem, str] = {}

    def configured(self, given: Mapping[str, Any], say: Callable[[str], None]) -> Mapping[str, Any]:
        """Complete the options by a KubeProxyConfiguration."""
        path = given.get("config")
        found = Configured(given, {}) if path is None else configured_by(path, given, say)
        self._noted = found.noted
        return found.options

    def watches(self, settings: Settings, node_name: str | None) -> tuple[Watch, ...]:
        """Need Services and EndpointSlices for this proxy, this node, and the ranges of cluster IPs.

        Questions may name a Pod, so they need Pods; an agent does not.
        """
        pods = () if node_name else (Watch(POD),)
        return (*watches(settings, node_name), *pods)

    def files(self, settings: Settings) -> tuple[FileWatch, ...]:  # noqa: ARG002 - none
        """Need none."""
        return ()

    def compiler(self, settings: Settings) -> Callable[[Inputs], Compiled[States]]:
        """Give the compiler."""
        compiler = Compiler(settings, StatesWriter(settings, self._choice(settings.backend)))
        return self._serving(settings).progress.compiler(compiler)

    def steps(self, settings: Settings) -> tuple[Step[States, Any, Any], ...]:
        """Write the rules of each family; serve health check node ports, and node ports on loopback addresses."""
        choice, serving = self._choice(settings.backend), self._serving(settings)
        proxy_at_work = ProxyAtWork(pages_of(settings.health_addr, settings.metrics_addr))
        cell: Step[States, Any, Any] = Step(
            "pages",
            CellTarget(serving.cell),
            lambda states: cell_of(states.intent),
            CellState(),
            essential=False,
            transient=True,
        )
        ports: Step[States, Any, Any] = Step(
            name="listeners",
            target=serving.target,
            want=lambda states: serving.listeners(states.intent),
            empty=ListenersState(),
            after=("pages",),
            # A port that somebody else held may be free by then.
            resync=lambda states: states.settings.sync_period,
            essential=False,
            transient=True,
        )
        wanted = sysctls_of(settings, os.cpu_count() or 1)
        parameters: Step[States, Any, Any] = Step(
            "sysctl",
            SysctlTarget(SYSCTLS),
            lambda _states: wanted,
            SysctlState(),
            # Packets may go to loopback addresses once those from elsewhere are dropped.
            after=(last_step(choice, "ip"),) if LOCALNET in wanted.values else (),
            essential=False,
        )
        rules = rule_steps(settings, choice, proxy_at_work, serving.passes, NOTHING if self._clears else OURS_ALONE)
        serving.packets = partial(packet_readings, choice, table_name(settings.service_proxy_name))
        return (
            *serving.progress.watching(rules, {last_step(choice, family): family for family in FAMILIES}),
            *_predecessor_step(settings, choice, proxy_at_work, NOTHING_LEFT if self._clears else IGNORED),
            cell,
            ports,
            *_forgotten_step(settings, choice),
            parameters,
            *_oom_step(settings.oom_score_adj),
        )

    def obstacle(self, settings: Settings, environ: Mapping[str, str], say: Callable[[str], None]) -> str:
        """Need the API server's own address, unless there are rules for its Service."""
        server = ""
        if settings.kubeconfig:
            try:
                server = load_kubeconfig(settings.kubeconfig, settings.context or "").server
            except AccessError:
                return ""  # whoever logs in says what is wrong with it
        return obstacle(environ, say, has_source=bool(settings.source), server=server)

    def instance(self, settings: Settings) -> str:
        """Have one per network namespace and name of a proxy."""
        return f"{self.name}-{settings.service_proxy_name}" if settings.service_proxy_name else self.name

    def pages(self, settings: Settings, served: Served) -> Mapping[str, Mapping[str, Page]]:
        """Serve kube-proxy's pages."""
        return self._serving(settings).pages(served)

    def samples(self, states: States) -> tuple[Measured, ...]:
        """Count Services and elements."""
        name, text = "podgate_services_elements", "Elements of a set or map in the kernel."
        services = Measured(
            "podgate_services_services",
            max((len(part.ports) for family in FAMILIES if (part := states.intent.of(family))), default=0),
            help="Services that this node serves.",
        )
        elements = [
            Measured(name, len(held), (("family", state.family), ("set", set_name)), help=text)
            for state in (states.ip, states.ip6)
            for set_name, held in sorted(state.elements.items())
        ]
        chains = [
            Measured(
                "podgate_services_chains",
                len(state.named),
                (("family", state.family), ("table", state.table)),
                help="Chains of iptables that are ours.",
            )
            for state in states.iptables.values()
        ]
        return (services, *elements, *chains)

    def recover(self, read_back: Mapping[str, Any]) -> Mapping[str, bytes]:  # noqa: ARG002 - nothing is kept
        """Recover nothing: while Services are not known, what is in the kernel stays."""
        return {}

    def render(self, states: States) -> Answered:
        """Show the tables as words: the kernel gets rules of nftables as expressions; chains as iptables takes them."""
        if states.iptables:
            held = [state for state in states.iptables.values() if state.named]
            text = "\n".join(f"# {state.program}-restore --noflush\n{render(state)}" for state in held)
            return Answered(text, {"tables": [iptables_json(state) for state in held]})
        tables = [state for state in (states.ip, states.ip6) if state.present]
        text = "\n".join(listing(state) for state in tables)
        return Answered(text, {"tables": [state_json(state) for state in tables]})

    def add_questions(self, parser: argparse.ArgumentParser) -> None:
        """Ask for destinations, and for who sends."""
        parser.add_argument(
            "destination",
            nargs="+",
            metavar="DESTINATION",
            help="where the connection goes: ADDRESS[:PORT[/PROTOCOL]], as 10.96.0.10:53/udp or [fd00::a]:443, or a"
            " Service's name, [NS/]NAME[:PORT[/PROTOCOL]]; without a port each of them",
        )
        parser.add_argument(
            "--from",
            dest="sender",
            metavar="[NS/]POD|node|ADDRESS",
            help="who opens it (default: some Pod of this node)",
        )

    def explain(self, asked: argparse.Namespace, compiled: Compiled[States], look: Look) -> Answered:
        """Say what happens to connections to some addresses."""
        inputs, settings = look.inputs, compiled.states.settings
        name = settings.node_name or inputs.machine.node_name
        here = here_of(name, inputs.objects.objects(NODE).get(ObjectRef(NODE.kind, name)), inputs.machine)
        asker = Asker(compiled.states.intent, inputs, here, asked.sender, compiled.problems)
        answers: list[Answer] = []
        errors: dict[str, str] = {}
        for text in asked.destination:
            try:
                answers += asker.answers(text)
            except QuestionError as error:
                errors[text] = str(error)
        if errors and not answers:
            raise QuestionError("\n".join(errors.values()))
        data = [answer_json(answer) for answer in answers]
        data += [{"destination": text, "error": error} for text, error in errors.items()]
        return Answered("\n".join(map(answer_line, answers)), data, 2 if errors else 0, tuple(errors.values()))

    def check(self, compiled: Compiled[States], look: Look) -> Answered:
        """Give findings from the objects, the options and the file that completed them."""
        noted = self._noted
        findings = check(compiled.states.intent, look.inputs, compiled.states.settings, look.written())
        rows = checked_rows(
            compiled.problems, (*noted, *findings), lambda problem: noted.get(problem) or look.where(problem)
        )
        seen = objects_seen(look.inputs.objects)
        note = f"checked: options, {objects_text(seen, look.others())}"
        data = {"findings": rows, "objects": seen, "others": look.others()}
        return Answered(checked_text(rows, note), data, 1 if rows else 0)


FEATURE = Services()

_OOM: Final = "oom_score_adj"


def _predecessor_step(
    settings: Settings, choice: Choice, at_work: Callable[[], Awaitable[str]], cleaned: Left
) -> tuple[Step[States, Any, Any], ...]:
    """Take kube-proxy's tables away; a proxy with a name of its own stands beside it."""
    if settings.service_proxy_name:
        return ()
    return (
        Step(
            name="kube-proxy",
            target=PredecessorTarget(at_work, shares=choice.backend != "nftables"),
            want=lambda _states: DEVICE_STAYS,
            empty=cleaned,
            after=tuple(last_step(choice, family) for family in FAMILIES),
            resync=lambda states: states.settings.sync_period,
            essential=False,
        ),
    )


def _forgotten_step(settings: Settings, choice: Choice) -> tuple[Step[States, Any, Any], ...]:
    """Look now and then, while some Service has affinity, whether clients find room in the map that remembers them."""
    if choice.backend != "nftables":
        return ()
    return (
        Step(
            name="affinity",
            target=ForgottenTarget(table_name(settings.service_proxy_name)),
            want=lambda _states: StickyState(),
            empty=StickyState(),
            resync=lambda states: states.settings.sync_period if _has_affinity(states) else None,
            essential=False,
            transient=True,
            recovers=False,
        ),
    )


def _has_affinity(states: States) -> bool:
    return any(STICKY_IPS in states.nftables_of(family).elements for family in FAMILIES)


def _oom_step(adjustment: int | None) -> tuple[Step[States, Any, Any], ...]:
    """Say how much rather the kernel should end this process than others, when it is out of memory (proc(5)).

    kube-proxy's default, which its files have unasked, is left out without a word where the right to it is missing.
    """
    if adjustment is None or (adjustment == UNASKED[_OOM] and not may_lower_oom()):
        return ()
    wanted = SysctlState({_OOM: adjustment})
    target = SysctlTarget((_OOM,), Path("/proc/self"))
    return (Step("oom", target, lambda _states: wanted, SysctlState(), essential=False, transient=True),)
