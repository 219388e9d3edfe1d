"""The watching process, as the command line and the host know it: ``podgate metadata watch``.

Here: the declaration: what is followed, and the step that tells the proxy. Not here: any decision.
Invariant: it asks for its own node's Pods alone; its own step writes nothing but lines for the proxy.
"""

from collections.abc import Callable
from typing import Any

from podgate.features.metadata.compile import file_watches, node_watches
from podgate.features.metadata.policy import METADATA_POLICY
from podgate.features.metadata.to_kubernetes import PolicyTelling
from podgate.features.metadata.watched import Watched
from podgate.features.metadata.watcher.compile import States, compile_watched
from podgate.features.metadata.watcher.sending import SendingTarget
from podgate.features.metadata.watcher.settings import WatchSettings
from podgate.joints import Agent, Compiled, Inputs, Step
from podgate.model.files import FileWatch
from podgate.model.snapshot import Watch
from podgate.observe.metrics import Measured
from podgate.targets.cell.state import State as Told

SUMMARY = "Follow Pods and MetadataPolicies for the proxy of this node, which has no room for them in its process."


class MetadataWatch(Agent[WatchSettings, States]):
    """Follows Pods and policies for the proxy."""

    name = "metadata_watch"
    settings = WatchSettings
    tells = PolicyTelling()

    def watches(self, settings: WatchSettings, node_name: str | None) -> tuple[Watch, ...]:
        """Need this node, its Pods and the policies."""
        if not settings.objects:
            return ()
        return (*node_watches(node_name), Watch(METADATA_POLICY))

    def files(self, settings: WatchSettings) -> tuple[FileWatch, ...]:
        """Need the policy file or folder."""
        return file_watches(settings.policy_path)

    def compiler(self, settings: WatchSettings) -> Callable[[Inputs], Compiled[States]]:
        """Give the compiler."""
        return lambda inputs: compile_watched(settings, inputs)

    def steps(self, settings: WatchSettings) -> tuple[Step[States, Any, Any], ...]:
        """Tell the proxy."""
        told: Step[States, Any, Any] = Step(
            "proxy", SendingTarget(settings.socket), lambda states: states.told, Told(), in_process=True
        )
        return (told,)

    def samples(self, states: States) -> tuple[Measured, ...]:
        """Count the policies and the clients that are known."""
        watched: Watched = states.told.value
        return (
            Measured("podgate_metadata_watch_policies", len(watched.policies), help="Policies in force."),
            Measured("podgate_metadata_watch_clients", len(watched.clients or ()), help="Addresses of Pods."),
        )


FEATURE = MetadataWatch()
