"""metadata, as the command line and the host know it.

Here: the declaration: what it needs, how it answers. Not here: any decision.
Invariant: every verb looks at the same compiled value, so what is rendered, explained and checked is what is decided.
"""

import argparse
from collections.abc import Callable
from typing import Any

import msgspec

from podgate.commandline.checked import checked_rows, checked_text, objects_seen, objects_text
from podgate.features.metadata.check import check
from podgate.features.metadata.clients import source_text
from podgate.features.metadata.compile import Compiler, file_watches, node_watches
from podgate.features.metadata.explain import Question, answer_json, answer_text, explain_all
from podgate.features.metadata.filter import Decider
from podgate.features.metadata.intent import Intent, NodeRules, rule_lines
from podgate.features.metadata.policy import METADATA_POLICY
from podgate.features.metadata.server.node import node_steps
from podgate.features.metadata.settings import Settings
from podgate.joints import Answered, Compiled, Feature, Inputs, Look, QuestionError, Step
from podgate.model.files import FileWatch
from podgate.model.kinds.pods import POD, pod_named, pod_names
from podgate.model.snapshot import Watch
from podgate.observe.metrics import Measured


class Metadata(Feature[Settings, Intent]):
    """Keeps the node's credentials on the cloud's metadata server out of Pods' reach; replaces metadata-proxy."""

    name = "metadata"
    settings = Settings

    def watches(self, settings: Settings, node_name: str | None) -> tuple[Watch, ...]:  # noqa: ARG002 - always the same
        """Need this node, its Pods and the policies."""
        return (*node_watches(node_name), Watch(METADATA_POLICY))

    def files(self, settings: Settings) -> tuple[FileWatch, ...]:
        """Need the policy file or folder."""
        return file_watches(settings.policy_path)

    def compiler(self, settings: Settings) -> Callable[[Inputs], Compiled[Intent]]:
        """Give the compiler."""
        return Compiler(settings, lambda intent: intent)

    def steps(self, settings: Settings) -> tuple[Step[Intent, Any, Any], ...]:
        """Write the node's rules alone; with --no-firewall too, so that those of an earlier run can be removed."""
        node = node_steps(_rules, backend=settings.backend)
        return (*node.after, *node.before)

    def samples(self, states: Intent) -> tuple[Measured, ...]:
        """Count the policies and the clients that are known."""
        name, text = "podgate_metadata_policies", "MetadataPolicies and policy files in force."
        clients = states.filter.clients or {}
        return (
            Measured(name, len(states.filter.policies), help=text),
            Measured("podgate_metadata_clients", len(clients), help="Addresses of Pods that are known."),
        )

    def render(self, states: Intent) -> Answered:
        """Show the filter as JSON, which the proxy's own process reads, and the node's rules."""
        lines = [*rule_lines(states.rules), f"policies: {', '.join(p.name for p in states.filter.policies) or 'none'}"]
        return Answered("\n".join(lines), msgspec.to_builtins({"filter": states.filter, "rules": states.rules}))

    def add_questions(self, parser: argparse.ArgumentParser) -> None:
        """Ask for requests, and for who sends them."""
        parser.add_argument("asked", nargs="+", metavar="URL-OR-PATH", help="what is asked for")
        parser.add_argument(
            "-H",
            "--header",
            dest="headers",
            action="append",
            default=[],
            metavar="'Name: value'",
            help="a header of the requests; may be given several times",
        )
        parser.add_argument("--method", default="GET", metavar="M", help="their method (default: GET)")
        parser.add_argument(
            "--from",
            dest="sender",
            metavar="[NS/]POD|ADDRESS",
            help="who sends them (default: somebody who is not known)",
        )

    def explain(self, asked: argparse.Namespace, compiled: Compiled[Intent], look: Look) -> Answered:
        """Say what becomes of some requests."""
        source, host_network = ("", False) if asked.sender is None else _sender(asked.sender, look.inputs)
        headers = tuple(asked.headers)
        questions = [Question(each, asked.method, headers, source, host_network) for each in asked.asked]
        answers = explain_all(Decider(compiled.states.filter), questions, compiled.states.allow_from)
        return Answered("\n".join(map(answer_text, answers)), [answer_json(answer) for answer in answers])

    def check(self, compiled: Compiled[Intent], look: Look) -> Answered:
        """Give findings from the policies and options."""
        findings = check(compiled.states)
        rows = checked_rows(compiled.problems, findings, look.where)
        seen = objects_seen(look.inputs.objects)
        note = f"checked: options and policy files, {objects_text(seen, look.others())}"
        data = {"findings": rows, "objects": seen, "others": look.others()}
        return Answered(checked_text(rows, note), data, 1 if rows else 0)


FEATURE = Metadata()


def _rules(states: Intent) -> NodeRules:
    return states.rules


def _sender(text: str, inputs: Inputs) -> tuple[str, bool]:
    """Give the address of ``[NS/]POD`` or of an address, and whether it is on the node's own network."""
    address = source_text(text)
    if address:
        return address, False
    pods = inputs.objects.objects(POD)
    pod = pod_named(text, pods)
    if pod is not None and (pod.addresses or pod.spec.host_network):
        return ("" if pod.spec.host_network else source_text(pod.addresses[0])), pod.spec.host_network
    if pod is not None:
        raise QuestionError(f'--from "{text}": this Pod has no address yet: give an address')
    known = pod_names(text, pods)
    raise QuestionError(f'--from "{text}" is neither an address nor a Pod of the source (Pods: {known})')
