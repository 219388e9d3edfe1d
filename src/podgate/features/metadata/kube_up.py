"""kube_up: ``podgate metadata kube-up``, what the cluster scripts of kube-up did for metadata-proxy. Pure.

Here: node labels, provider variables and the add-on's manifest, by the scripts' own variables; which Nodes have the old
label alone. Not here: moving them to the new one, which needs an API (admin/relabelling.py); the rules that the boot
script made (to_iptables.py).
Invariant: with the same variables the manifest is what the scripts' sed commands make of it, or an error says why not;
a value never changes the manifest beyond its place.
"""

import argparse
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from podgate.commandline.guidance import GUIDES
from podgate.commandline.usage import Formatter, guessed
from podgate.features.metadata.node_rules import READY_LABEL
from podgate.model.frozen import Frozen

BEGIN: Final = "# BEGIN_PROMETHEUS_TO_SD"
END: Final = "# END_PROMETHEUS_TO_SD"
DEFAULTS: Final = {
    "PROMETHEUS_TO_SD_PREFIX": "custom.googleapis.com",
    "PROMETHEUS_TO_SD_ENDPOINT": "https://monitoring.googleapis.com/",
}
_HOLES: Final = {name: name.lower() for name in DEFAULTS}
_PLAIN: Final = re.compile(r"[A-Za-z0-9._~:/?=&%+-]+")
_VARIABLES: Final = ("ENABLE_METADATA_CONCEALMENT", "METADATA_CONCEALMENT_NO_FIREWALL")
OLD_NODES: Final = f"beta.kubernetes.io/metadata-proxy-ready=true,{READY_LABEL}!=true"
"""The Nodes that a cluster older than Kubernetes 1.16 labelled (cluster/gce, update-legacy-addon-node-labels)."""

MIGRATED: Final = {READY_LABEL: "true"}
"""The label that they need."""

_PARTS: Final = ("variables", "node-labels", "provider-vars", "manifest", "migrate-labels")


class KubeUpError(ValueError):
    """Something that the scripts would have taken in silence; the message says what to do."""


class Output(Frozen, frozen=True):
    """What the verb answers: standard output, standard error, exit code."""

    out: str = ""
    complaint: str = ""
    code: int = 0


def node_labels(environ: Mapping[str, str]) -> str:
    """Give NODE_LABELS with the label that the proxy's DaemonSet selects by, where concealment is on."""
    given = environ.get("NODE_LABELS", "")
    if not _is_on(environ, "ENABLE_METADATA_CONCEALMENT"):
        return given
    labels = [label for label in given.split(",") if label and label.partition("=")[0] != READY_LABEL]
    return ",".join((*labels, f"{READY_LABEL}=true"))


def provider_vars(environ: Mapping[str, str]) -> str:
    """Give PROVIDER_VARS with the variables that a node's boot script needs, where concealment is on."""
    given = environ.get("PROVIDER_VARS", "").split()
    if not _is_on(environ, "ENABLE_METADATA_CONCEALMENT"):
        return " ".join(given)
    return " ".join(dict.fromkeys((*given, *_VARIABLES)))


def manifest(text: str, environ: Mapping[str, str]) -> str:
    """Give the add-on's manifest: the block of prometheus-to-sd removed, or its holes filled.

    Raises:
        KubeUpError: the block does not end, or a value cannot stand in a manifest.
    """
    lines = text.splitlines(keepends=True)
    begins = [number for number, line in enumerate(lines) if BEGIN in line]
    ends = [number for number, line in enumerate(lines) if END in line]
    if len(begins) != len(ends) or any(begin > end for begin, end in zip(begins, ends, strict=True)):
        raise KubeUpError(f'the manifest has {len(begins)} lines "{BEGIN}" and {len(ends)} "{END}" in this order')
    on = _is_on(environ, "ENABLE_PROMETHEUS_TO_SD") and not _is_on(environ, "DISABLE_PROMETHEUS_TO_SD_IN_DS")
    if not on:
        gone = {number for begin, end in zip(begins, ends, strict=True) for number in range(begin, end + 1)}
        return "".join(line for number, line in enumerate(lines) if number not in gone)
    for variable, hole in _HOLES.items():
        value = environ.get(variable) or DEFAULTS[variable]
        if not _PLAIN.fullmatch(value):
            raise KubeUpError(f"{variable}={value!r} holds a character that does not belong into a manifest or address")
        text = value.join(re.split(r"\{\{ *" + hole + r" *\}\}", text))
    return text


def answer(words: Sequence[str], environ: Mapping[str, str], read: Callable[[], str]) -> Output:
    """Answer the command line; ``read`` gives the manifest, from standard input."""
    parser = _parser()
    try:
        asked = parser.parse_args(list(words))
    except argparse.ArgumentError as error:
        return Output("", f"podgate metadata kube-up: {guessed(str(error))}\n{parser.format_usage()}", 2)
    for name in (*_VARIABLES, "ENABLE_PROMETHEUS_TO_SD", "DISABLE_PROMETHEUS_TO_SD_IN_DS"):
        if environ.get(name, "") not in ("", "true", "false"):
            return Output("", f"podgate metadata kube-up: {name}={environ[name]!r}: write true or false\n", 2)
    if asked.help:
        return Output(parser.format_help())
    match asked.part:
        case "node-labels":
            return Output(f"{node_labels(environ)}\n")
        case "provider-vars":
            return Output(f"{provider_vars(environ)}\n")
        case "migrate-labels":
            return Output("", "podgate metadata kube-up: migrate-labels has to be the first word\n", 2)
        case "manifest":
            try:
                return Output(manifest(read(), environ))
            except KubeUpError as error:
                return Output("", f"podgate metadata kube-up manifest: {error}\n", 1)
        case _:
            labels, variables = shlex.quote(node_labels(environ)), shlex.quote(provider_vars(environ))
            return Output(f"NODE_LABELS={labels}\nPROVIDER_VARS={variables}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="podgate metadata kube-up",
        description="What the cluster scripts did for metadata-proxy, by their own variables: "
        f"{', '.join((*_VARIABLES, 'ENABLE_PROMETHEUS_TO_SD', 'DISABLE_PROMETHEUS_TO_SD_IN_DS', *DEFAULTS))}, "
        "NODE_LABELS and PROVIDER_VARS.",
        epilog=str(GUIDES["metadata kube-up"]),
        formatter_class=Formatter,
        add_help=False,
        allow_abbrev=False,
        exit_on_error=False,
    )
    parser.add_argument("-h", "--help", action="store_true", help="show this")
    parser.add_argument(
        "part",
        nargs="?",
        choices=_PARTS,
        default="variables",
        help="variables: both lists as lines of shell, to be evaluated (default); one of them alone; "
        "manifest: the add-on's manifest, read from standard input, with its holes filled or the block removed; "
        "migrate-labels (has options of its own): give Nodes with the old label the new one",
    )
    return parser


def _is_on(environ: Mapping[str, str], name: str) -> bool:
    return environ.get(name, "") == "true"
