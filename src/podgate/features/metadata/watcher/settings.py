"""settings: the options of ``podgate metadata watch``.

Here: the fields, whose annotations are the flags' help. Not here: the proxy's options (metadata/settings.py).
Invariant: nothing here changes how a request is decided but the objects and files that it names.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from podgate.commandline.options import (
    ALL_PAGES_ADDR,
    CONTEXT,
    KUBECONFIG_OF_AGENT,
    NODE_NAME,
    Option,
    empty_mistakes,
    kube_mistakes,
)
from podgate.features.metadata.settings import SOCKET_PATH, is_socket_path
from podgate.model.frozen import Frozen
from podgate.observe.listen import listen_mistakes


class WatchSettings(Frozen, frozen=True):
    """What is followed, and who is told."""

    source: Annotated[
        str | None,
        Option(
            "read Kubernetes objects from this folder or file; without it --kubeconfig, $PODGATE_SOURCE, the Pod's own "
            "cluster, none",
            metavar="DIR|FILE",
        ),
    ] = None
    kubeconfig: Annotated[str | None, KUBECONFIG_OF_AGENT] = None
    context: Annotated[str | None, CONTEXT] = None
    objects: Annotated[bool, Option("follow Pods and MetadataPolicies; without them policy files alone count")] = True
    node_name: Annotated[str | None, NODE_NAME] = None
    policy: Annotated[
        str | None, Option("rules for everybody: a file or a folder of files, YAML or JSON", metavar="FILE|DIR")
    ] = None
    socket: Annotated[
        str | None,
        Option("the unix socket to serve the proxy at; without it lines go to the standard output", metavar="PATH"),
    ] = None
    metrics_addr: Annotated[str, ALL_PAGES_ADDR] = ""

    state_dir: Annotated[
        str, Option("where the last good policies are kept for the next start; empty for nowhere", metavar="DIR")
    ] = ""

    # What the composition root asks every feature's settings for, and what is always the same here.
    health_addr: ClassVar[str] = ""
    once: ClassVar[bool] = False
    clean_on_exit: ClassVar[bool] = False

    @property
    def policy_path(self) -> str | None:
        """The file or folder of rules; None without one."""
        return None if self.policy is None else self.policy.rstrip("/") or "/"

    def mistakes(self) -> Iterator[str]:
        """Give what the types cannot say."""
        yield from empty_mistakes({"--source": self.source, "--node-name": self.node_name, "--policy": self.policy})
        yield from kube_mistakes(self.kubeconfig, self.context)
        if self.socket is not None and not is_socket_path(self.socket):
            yield f'--socket "{self.socket}": {SOCKET_PATH}'
        yield from listen_mistakes({"--metrics-addr": self.metrics_addr})
