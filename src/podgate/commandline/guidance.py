"""guidance: what ``--help`` says below the options: examples, exit codes, where the documentation is.

Here: its form, and the texts of all verbs and old names. Not here: options and their help (options.py and each
feature's settings), parsing (usage.py). Pure.
Invariant: a test runs the examples through the parsers, and compares the codes with docs/guide/exit-codes.md.
"""

from collections.abc import Mapping
from typing import Final

from podgate.model.frozen import Frozen


class Guidance(Frozen, frozen=True):
    """What a person should know who reads ``--help``.

    Attributes:
        page: the page of the documentation, in podgate's repository.
        codes: exit codes and when they are given.
        examples: commands without ``podgate``, each with what it is for.
    """

    page: str
    codes: Mapping[int, str] = {}
    examples: Mapping[str, str] = {}

    def __str__(self) -> str:
        """Show it as the end of a help."""
        lines = []
        if self.examples:
            width = max(map(len, self.examples))
            wide = width > _WIDEST
            for words, why in self.examples.items():
                lines += [f"  # {why}", f"  podgate {words}"] if wide else [f"  podgate {words:<{width}}  # {why}"]
            lines = [f"example{'s' if len(self.examples) > 1 else ''}:", *lines, ""]
        if self.codes:
            lines += ["exit codes:", *(f"  {code}  {when}" for code, when in self.codes.items()), ""]
        return "\n".join([*lines, f"documentation: {self.page}"])


_WIDEST: Final = 58

_LOGIN: Final = "a login to the API that cannot be used"
_BEHIND: Final = "an API server behind a Service that nobody leads to yet"

RUN: Final = {
    0: "stopped by a signal; with --once: all is written",
    1: "another agent runs here; with --once: something could not be written",
    2: f"wrong use, or {_LOGIN}",
}
RENDER: Final = {0: "printed", 2: "wrong use, or input that cannot be used"}
PLAN: Final = {0: "no difference", 1: "some", 2: "wrong use, bad input, or the system cannot be read"}
EXPLAIN: Final = {0: "answered", 2: "wrong use, bad input, or a question that cannot be understood"}
CHECK: Final = {0: "nothing found", 1: "findings", 2: "wrong use, or input that cannot be used"}
CLEAN: Final = {
    0: "removed, or nothing was there",
    1: "an agent runs here, or something could not be removed",
    2: "wrong use",
}
DOCTOR: Final = {0: "nothing is bad", 1: "something is", 2: "wrong use"}

_MASQUERADE: Final = "docs/guide/masquerade.md"
_METADATA: Final = "docs/guide/metadata.md"
_SERVICES: Final = "docs/guide/services.md"
_INSTALL: Final = "docs/guide/install.md"

GUIDES: Final = {
    "masquerade": Guidance(_MASQUERADE),
    "masquerade run": Guidance(
        _MASQUERADE,
        RUN,
        {
            "masquerade run": "as a DaemonSet does: deploy/masquerade",
            "masquerade run --config ./list.yaml --once": "write the rules, and end",
        },
    ),
    "masquerade render": Guidance(
        _MASQUERADE, RENDER, {"masquerade render --config ./list.yaml": "the rules of a list, before it is anywhere"}
    ),
    "masquerade plan": Guidance(
        _MASQUERADE, PLAN, {"masquerade plan --config ./list.yaml": "on a node: what a new list would change"}
    ),
    "masquerade explain": Guidance(
        _MASQUERADE,
        EXPLAIN,
        {"masquerade explain 10.70.0.2 198.51.100.7 --from shop/web": "who keeps its address, and by which entry"},
    ),
    "masquerade check": Guidance(
        _MASQUERADE,
        CHECK,
        {"masquerade check --config ./list.yaml --source ./manifests": "does the list forget Pods or nodes?"},
    ),
    "masquerade clean": Guidance(_MASQUERADE, CLEAN, {"masquerade clean": "on a node whose agent has ended"}),
    "metadata": Guidance(_METADATA),
    "metadata run": Guidance(
        _METADATA,
        {0: "stopped by a signal", 1: "another agent runs here, a port is taken", 2: "wrong use"},
        {
            "metadata run": "as a DaemonSet does: deploy/metadata",
            "metadata run --profile aws --audit": "on AWS, only saying what would be denied",
        },
    ),
    "metadata render": Guidance(
        _METADATA, RENDER, {"metadata render --policy ./rules.yaml": "the node's rules, and which policies count"}
    ),
    "metadata plan": Guidance(_METADATA, PLAN, {"metadata plan": "on a node: which rules would change"}),
    "metadata explain": Guidance(
        _METADATA,
        EXPLAIN,
        {
            "metadata explain -H 'Metadata-Flavor: Google' /computeMetadata/v1/instance/zone": "would it be answered?",
        },
    ),
    "metadata check": Guidance(
        _METADATA, CHECK, {"metadata check --policy ./rules.yaml": "policies that allow more than is meant"}
    ),
    "metadata clean": Guidance(_METADATA, CLEAN, {"metadata clean": "on a node whose proxy has ended"}),
    "metadata doctor": Guidance(
        _METADATA, DOCTOR, {"metadata doctor": "on a node: is the proxy in force, and for all?"}
    ),
    "metadata watch": Guidance(
        _METADATA,
        {0: "stopped by a signal", 1: "another one runs here", 2: RUN[2]},
        {"metadata watch --socket /run/podgate/watch.sock": "beside the proxy: deploy/metadata/per-pod"},
    ),
    "metadata untaint": Guidance(
        _METADATA,
        {0: "stopped by a signal", 1: "another one runs here", 2: RUN[2]},
        {"metadata untaint": "in one Pod of the cluster: deploy/metadata/startup-taint"},
    ),
    "metadata kube-up": Guidance(
        _METADATA,
        {0: "printed", 1: "the manifest has no place for what belongs into it", 2: "wrong use"},
        {
            "metadata kube-up": "NODE_LABELS and PROVIDER_VARS as lines of shell",
            "metadata kube-up manifest < daemonset.yaml": "the add-on's manifest, filled in",
        },
    ),
    "metadata kube-up migrate-labels": Guidance(
        _INSTALL,
        {
            0: "all have the label; with --dry-run: nothing to do",
            1: "some Nodes were refused; with --dry-run: something to do",
            2: "wrong use; with --dry-run: some would be refused",
            3: "the API did not let us in within --timeout",
        },
        {"metadata kube-up migrate-labels --dry-run": "which Nodes would get the label"},
    ),
    "services": Guidance(_SERVICES),
    "services run": Guidance(
        _SERVICES,
        {**RUN, 2: f"wrong use, {_LOGIN}, or {_BEHIND}"},
        {
            "services run --config /var/lib/kube-proxy/config.conf": "as kube-proxy's DaemonSet does: deploy/services",
        },
    ),
    "services render": Guidance(_SERVICES, RENDER, {"services render --source ./manifests": "the rules for Services"}),
    "services plan": Guidance(_SERVICES, PLAN, {"services plan": "on a node: which rules would change"}),
    "services explain": Guidance(
        _SERVICES,
        EXPLAIN,
        {
            "services explain 10.96.0.10:53/udp": "which endpoints a connection may go to",
            "services explain shop/web --from 198.51.100.7": "each port of a Service, from outside",
        },
    ),
    "services check": Guidance(
        _SERVICES, CHECK, {"services check --source ./manifests": "Services that lead nowhere, and why"}
    ),
    "services clean": Guidance(_SERVICES, CLEAN, {"services clean": "on a node whose agent has ended"}),
    "addon": Guidance(_INSTALL),
    "addon reconcile": Guidance(
        _INSTALL,
        {
            0: "the cluster is as the folder says, or stopped by a signal; with --dry-run: no difference",
            1: "it is not; with --dry-run: some difference",
            2: "wrong use; with --dry-run: it cannot be told",
            3: "the API did not let us in within --timeout",
        },
        {
            "addon reconcile ~/addons --mode Reconcile --dry-run": "what would be done",
            "addon reconcile ~/addons --mode Reconcile --once --wait": "do it, and wait until all is ready",
        },
    ),
    "doctor": Guidance(
        _INSTALL,
        DOCTOR,
        {
            "doctor": "the whole cluster of $KUBECONFIG",
            "doctor --feature masquerade --source deploy": "what manifests tell, without a cluster",
        },
    ),
}
"""What each help ends with, by the words after ``podgate``."""

OLD_NAMES: Final = {
    "ip-masq-agent": Guidance(
        _MASQUERADE,
        {
            0: "stopped by a signal, or -h",
            1: "a value that cannot be used, or another agent runs here",
            2: "no such flag",
        },
    ),
    "metadata-proxy": Guidance(
        _METADATA,
        {0: "stopped by a signal, or -h", 1: "a value that cannot be used, a port is taken", 2: "no such flag"},
    ),
    "kube-proxy": Guidance(
        _SERVICES,
        {
            0: "stopped by a signal, or --help, --version, --cleanup, --init-only, --write-config-to did what they say",
            1: "flags or a file that cannot be used, or work that failed",
            2: f"mode ipvs, which is not built, {_LOGIN}, or {_BEHIND}",
        },
    ),
}
"""The same of the programs whose places podgate takes."""
