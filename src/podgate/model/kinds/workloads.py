"""DaemonSets, as far as what they run and how much of it runs.

Here: the DaemonSet struct and its Kind value. Not here: which Pods they own; the lab's controllers read objects whole.
Invariant: a status that nobody wrote is None, so that it is never taken for zero of zero.
"""

from typing import Final

from podgate.model.kinds.meta import ApiStruct, ObjectMeta
from podgate.model.snapshot import Kind


class Container(ApiStruct, frozen=True, rename="camel", gc=False):
    """What a container runs."""

    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()


class TemplateSpec(ApiStruct, frozen=True, rename="camel", gc=False):
    """The Pods to be made."""

    containers: tuple[Container, ...] = ()


class Template(ApiStruct, frozen=True, rename="camel", gc=False):
    """The Pods to be made, with their labels."""

    metadata: ObjectMeta = ObjectMeta()
    spec: TemplateSpec = TemplateSpec()


class DaemonSetSpec(ApiStruct, frozen=True, rename="camel", gc=False):
    """What is wanted."""

    template: Template = Template()


class DaemonSetStatus(ApiStruct, frozen=True, rename="camel", gc=False):
    """How many nodes should have a Pod, have one, and have one that is ready; the first is None until it is known."""

    desired_number_scheduled: int | None = None
    current_number_scheduled: int = 0
    number_ready: int = 0


class DaemonSet(ApiStruct, frozen=True, rename="camel", gc=False):
    """A DaemonSet."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DaemonSetSpec = DaemonSetSpec()
    status: DaemonSetStatus = DaemonSetStatus()


DAEMON_SET: Final[Kind[DaemonSet]] = Kind(
    group="apps", version="v1", kind="DaemonSet", plural="daemonsets", namespaced=True, decodes_to=DaemonSet
)
