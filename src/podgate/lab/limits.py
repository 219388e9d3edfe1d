"""resources.limits and requests as the texts of cgroup files. Pure.

Here: a container's limits; which file of which cgroup version gets which text; where cgroups are, from two files of
/proc. Not here: making groups (lab/cgroups.py).
Invariant: a container gets the numbers that a kubelet would write for it; 0 is no limit.
"""

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, Final, Literal

from podgate.lab.podspec import Resources
from podgate.lab.quantities import quantity
from podgate.model.fieldpath import field_path
from podgate.model.frozen import Frozen

CONTROLLERS: Final = ("memory", "cpu")
"""What the lab can limit: the names of resources and of cgroup controllers are the same."""

_PERIOD: Final = 100_000  # Microseconds; the default of kernel and kubelet.
_LEAST_QUOTA: Final = 1_000  # Microseconds; the kernel refuses less (kernel/sched/core.c, min_cfs_quota_period).
_LEAST_SHARES, _MOST_SHARES = 2, 262_144
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")

CgroupVersion = Literal[1, 2]


class Limits(Frozen, frozen=True):
    """What a container may use; 0 is no limit.

    Attributes:
        memory: bytes.
        cpu: thousandths of a core.
        cpu_request: thousandths of a core that it shall get when there is not enough for all.
    """

    memory: int = 0
    cpu: int = 0
    cpu_request: int = 0


class Setting(Frozen, frozen=True):
    """A text for a file of a group. ``optional``: kernels without that file enforce the rest all the same."""

    file: str
    text: str
    optional: bool = False


class Hierarchy(Frozen, frozen=True):
    """Where a controller's groups are.

    Attributes:
        version: of cgroups.
        top: the folder that it is mounted on.
        own: the folder of the group that this process is in.
    """

    version: CgroupVersion
    top: str
    own: str

    @property
    def upwards(self) -> tuple[str, ...]:
        """The own group and those above it, the own one first."""
        path = PurePosixPath(self.own)
        return tuple(str(one) for one in (path, *path.parents) if one.is_relative_to(self.top))


def limits_of(resources: Resources | None) -> Limits:
    """Give a container's limits; a cpu limit without a request is the request, too, as in the API.

    Raises ValueError for what is no quantity.
    """
    limits = (resources.limits if resources else None) or {}
    requests = (resources.requests if resources else None) or {}
    cpu = limits.get("cpu", 0)
    return Limits(
        memory=math.ceil(quantity(limits.get("memory", 0))),
        cpu=math.ceil(quantity(cpu) * 1000),
        cpu_request=math.ceil(quantity(requests.get("cpu", cpu)) * 1000),
    )


def resource_faults(spec: Mapping[str, Any], field: str) -> Iterator[tuple[str, str]]:
    """Give what an API server would refuse of the resources in a PodSpec whose types are right: field and why."""
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(kind) or ()):
            yield from _faults(container.get("resources") or {}, f"{field}.{kind}[{index}].resources")


def _faults(resources: Mapping[str, Any], field: str) -> Iterator[tuple[str, str]]:
    limits: dict[str, Any] = {}
    given = [
        (bound, name, text) for bound in ("limits", "requests") for name, text in (resources.get(bound) or {}).items()
    ]
    for bound, name, text in given:
        here = f"{field}.{field_path((bound, name))}"
        try:
            number = quantity(text)
        except ValueError as error:
            yield here, str(error)
            continue
        if bound == "limits":
            limits[name] = number
        if number < 0:
            yield here, f"{text!r} is negative; write 0 or more"
        elif bound == "requests" and number > limits.get(name, math.inf):
            limit = resources["limits"][name]
            yield here, f"{text!r} is more than the limit, {limit!r}; lower it or raise the limit"


def settings(limits: Limits, controller: str, version: CgroupVersion) -> tuple[Setting, ...]:
    """Give what a controller is told about a container, in the order in which it must be written."""
    if controller == "memory":
        return _memory(limits.memory, version) if limits.memory else ()
    found: list[Setting] = []
    if limits.cpu_request:
        shares = min(max(limits.cpu_request * 1024 // 1000, _LEAST_SHARES), _MOST_SHARES)
        # The weight is the kubelet's conversion of the shares: 2..262144 becomes 1..10000.
        weight = 1 + (shares - 2) * 9999 // 262_142
        found.append(Setting("cpu.shares", f"{shares}") if version == 1 else Setting("cpu.weight", f"{weight}"))
    if limits.cpu:
        quota = max(limits.cpu * _PERIOD // 1000, _LEAST_QUOTA)
        if version == 1:
            found += [Setting("cpu.cfs_period_us", f"{_PERIOD}"), Setting("cpu.cfs_quota_us", f"{quota}")]
        else:
            found.append(Setting("cpu.max", f"{quota} {_PERIOD}"))
    return tuple(found)


def _memory(limit: int, version: CgroupVersion) -> tuple[Setting, ...]:
    """Limit memory, without swap beyond it; in version 2 the whole container is killed, as kubelets have it."""
    if version == 1:
        memory_and_swap = Setting("memory.memsw.limit_in_bytes", f"{limit}", optional=True)
        return Setting("memory.limit_in_bytes", f"{limit}"), memory_and_swap
    return (
        Setting("memory.max", f"{limit}"),
        Setting("memory.swap.max", "0", optional=True),
        Setting("memory.oom.group", "1", optional=True),
    )


def oom_kills(events: str) -> int:
    """Count the kills that ``memory.oom_control`` (version 1) or ``memory.events`` (version 2) tells of."""
    return sum(int(words[1]) for line in events.splitlines() if (words := line.split())[:1] == ["oom_kill"])


def hierarchies(mounts: str, membership: str) -> Mapping[str, Hierarchy]:
    """Give where each controller is that has a hierarchy; version 2 may turn out not to offer it.

    Args:
        mounts: the text of /proc/self/mountinfo.
        membership: the text of /proc/self/cgroup.
    """
    groups: dict[str, str] = {}
    for line in membership.splitlines():
        _, controllers, group = line.split(":", 2)
        groups |= dict.fromkeys(controllers.split(","), group)
    found: dict[str, Hierarchy] = {}
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        root, top = (_ESCAPED.sub(lambda match: chr(int(match[1], 8)), word) for word in before.split()[3:5])
        kind, _, options = after.split(" ", 2)
        if kind == "cgroup":
            for controller in (each for each in CONTROLLERS if each in options.split(",")):
                found[controller] = Hierarchy(1, top, _own(root, top, groups.get(controller, "/")))
        elif kind == "cgroup2":
            for controller in CONTROLLERS:
                found.setdefault(controller, Hierarchy(2, top, _own(root, top, groups.get("", "/"))))
    return found


def _own(root: str, top: str, group: str) -> str:
    """Give the folder of a group in a mount that shows the hierarchy from ``root`` downwards."""
    path = PurePosixPath(group)
    if ".." in path.parts or not path.is_relative_to(root):
        return top  # The own group is above what is mounted here, or beside it.
    return str(PurePosixPath(top, path.relative_to(root)))
