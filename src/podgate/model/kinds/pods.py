"""Pods, as far as their node and their addresses go.

Here: the Pod struct, its Kind value, names that users give. Not here: containers, volumes and what else the lab runs.
Invariant: addresses are the API's text; a Pod on the host network has its node's addresses.
"""

import difflib
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from podgate.model.frozen import ObjectRef
from podgate.model.kinds.meta import ApiStruct, ObjectMeta
from podgate.model.snapshot import Kind


class PodIP(ApiStruct, frozen=True, rename="camel", gc=False):
    """One address of a Pod."""

    ip: str = ""


class PodSpec(ApiStruct, frozen=True, rename="camel", gc=False):
    """``nodeName`` is empty until the Pod is scheduled; an empty ``serviceAccountName`` means ``default``."""

    node_name: str = ""
    host_network: bool = False
    service_account_name: str = ""


class PodStatus(ApiStruct, frozen=True, rename="camel", gc=False):
    """``podIP`` is the first of ``podIPs``. Use ``Pod.addresses``."""

    phase: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    pod_ips: tuple[PodIP, ...] = msgspec.field(default=(), name="podIPs")


class Pod(ApiStruct, frozen=True, rename="camel", gc=False):
    """A Pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def addresses(self) -> tuple[str, ...]:
        """The Pod's addresses, one per family at most: ``podIPs``, else ``podIP`` alone, else none."""
        if self.status.pod_ips:
            return tuple(entry.ip for entry in self.status.pod_ips)
        return (self.status.pod_ip,) if self.status.pod_ip else ()

    @property
    def has_ended(self) -> bool:
        """Whether all of it has run to the end: its addresses may already be another Pod's."""
        return self.status.phase in {"Succeeded", "Failed"}


POD: Final[Kind[Pod]] = Kind(group="", version="v1", kind="Pod", plural="pods", namespaced=True, decodes_to=Pod)


def pod_named(text: str, pods: Mapping[ObjectRef, Pod]) -> Pod | None:
    """Find a Pod as users name it, ``[NS/]POD``: without a namespace in ``default``."""
    namespace, slash, name = text.rpartition("/")
    return pods.get(ObjectRef(POD.kind, name, namespace if slash else "default"))


_SHOWN: Final = 3


def pod_names(text: str, pods: Iterable[ObjectRef]) -> str:
    """Give the names of Pods, for a message that says which there are; of many a few, and how many more.

    Args:
        text: a name that none of them has; those whose names are most like it come first, whatever their namespace.
        pods: the Pods.
    """
    names = sorted(f"{ref.namespace}/{ref.name}" for ref in pods)
    if len(names) <= _SHOWN:
        return ", ".join(names) or "none"
    by_name: dict[str, list[str]] = {}
    for name in names:
        by_name.setdefault(name.partition("/")[2], []).append(name)
    near = difflib.get_close_matches(text.rpartition("/")[2], by_name, n=_SHOWN)
    like = [name for each in near for name in by_name[each]]
    shown = (like or names)[:_SHOWN]
    return f"{', '.join(shown)} and {len(names) - len(shown)} more"
