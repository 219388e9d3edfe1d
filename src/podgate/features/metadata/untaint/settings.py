"""settings: the options of ``podgate metadata untaint``.

Here: the fields, whose annotations are the flags' help. Not here: the proxy's options (metadata/settings.py).
Invariant: objects come from an API alone, since a Node's taints are there.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from podgate.commandline.options import (
    ALL_PAGES_ADDR,
    CONTEXT,
    KUBECONFIG_OF_AGENT,
    Option,
    empty_mistakes,
    kube_mistakes,
)
from podgate.model.frozen import Frozen
from podgate.observe.listen import listen_mistakes


class UntaintSettings(Frozen, frozen=True):
    """Whose taint is taken away, and once what is ready."""

    kubeconfig: Annotated[str | None, KUBECONFIG_OF_AGENT] = None
    context: Annotated[str | None, CONTEXT] = None
    taint: Annotated[str, Option("the key of the taint", metavar="KEY")] = "podgate.dev/metadata-not-ready"
    namespace: Annotated[str, Option("where the proxies' Pods are", metavar="NS")] = "kube-system"
    selector: Annotated[str, Option("which Pods they are", metavar="LABELS")] = "k8s-app=metadata-proxy"
    metrics_addr: Annotated[str, ALL_PAGES_ADDR] = "127.0.0.1:10352"

    # What the composition root asks every agent's settings for, and what is always the same here.
    source: ClassVar[None] = None
    node_name: ClassVar[None] = None
    health_addr: ClassVar[str] = ""
    state_dir: ClassVar[str] = ""
    once: ClassVar[bool] = False
    clean_on_exit: ClassVar[bool] = False

    def mistakes(self) -> Iterator[str]:
        """Give what the types cannot say."""
        yield from kube_mistakes(self.kubeconfig, self.context)
        yield from empty_mistakes({"--taint": self.taint, "--namespace": self.namespace, "--selector": self.selector})
        yield from listen_mistakes({"--metrics-addr": self.metrics_addr})
