"""The untainting agent, as the command line and the host know it: ``podgate metadata untaint``.

Here: the declaration: what is watched, and the step that frees Nodes. Not here: any decision.
Invariant: it is the only part of podgate that may change Nodes, runs once per cluster, and has no right on any node.
"""

import os
from collections.abc import Callable
from typing import Any, Final

from podgate.features.metadata.untaint.compile import PROXY, States, compile_untaint
from podgate.features.metadata.untaint.settings import UntaintSettings
from podgate.joints import Agent, Compiled, Inputs, SourceError, Step
from podgate.kubeapi.connection import Connection
from podgate.model.files import FileWatch
from podgate.model.kinds.nodes import NODE
from podgate.model.snapshot import Watch
from podgate.observe.metrics import Measured
from podgate.sources.origin import Api, access_of, origin
from podgate.targets.kubernetes.taints import Taints
from podgate.targets.kubernetes.untainting import TaintsTarget

RESYNC: Final = 30.0
"""Seconds after which what is still to be freed is freed again: one event may show a taint that was taken away and set
anew meanwhile, which looks like the one that was seen before."""

SUMMARY = "Take the start-up taint away from each Node whose metadata proxy is ready."


class MetadataUntaint(Agent[UntaintSettings, States]):
    """Frees Nodes of the start-up taint."""

    name = "metadata_untaint"
    settings = UntaintSettings
    reports = False

    def watches(self, settings: UntaintSettings, node_name: str | None) -> tuple[Watch, ...]:  # noqa: ARG002 - of all nodes
        """Need all Nodes, and the proxies' Pods."""
        return (Watch(NODE), Watch(PROXY, namespace=settings.namespace, label_selector=settings.selector))

    def files(self, settings: UntaintSettings) -> tuple[FileWatch, ...]:  # noqa: ARG002 - none
        """Need no file."""
        return ()

    def compiler(self, settings: UntaintSettings) -> Callable[[Inputs], Compiled[States]]:
        """Give the compiler."""
        return lambda inputs: compile_untaint(settings.taint, inputs)

    def steps(self, settings: UntaintSettings) -> tuple[Step[States, Any, Any], ...]:
        """Free Nodes. Raises SourceError where there is no API."""
        found = origin(None, settings.kubeconfig, settings.context, os.environ)
        if not isinstance(found, Api):
            raise SourceError("a taint can be taken away in an API only: give --kubeconfig, or run it in a Pod")
        target = TaintsTarget(Connection(access_of(found, os.environ)))
        return (Step("taints", target, lambda states: states.free, Taints(), resync=_until_again),)

    def samples(self, states: States) -> tuple[Measured, ...]:
        """Count the Nodes that have the taint."""
        return (Measured("podgate_metadata_untaint_tainted_nodes", states.tainted, help="Nodes that have the taint."),)


def _until_again(states: States) -> float | None:
    return RESYNC if states.free.nodes else None


FEATURE = MetadataUntaint()
