"""Controllers: what a cluster's controllers, its scheduler and its address management would do, as one pure function.

Here: ``reconcile``: objects in, writes out. Not here: files, processes, time.
Invariant: it settles: once the writes are done, calling again gives fewer or none, and none in the end as long as
nobody else changes anything; and it ends in the same objects by whatever route they came about, but for the slice that
an endpoint stands in: that is kept.

The caller (the lab's daemon) loads, reconciles, performs, and does so again until there are no writes:

* ``Put(obj)`` by ``Store.put``, which sets the UID that a new object lacks;
* ``PutStatus(ref, status)`` by ``Store.put_status``;
* ``Remove(ref)`` by ``Store.delete``, which marks a running Pod; whoever runs it calls ``Store.remove`` in the end.

What it leaves to whoever runs Pods: ``phase``, ``containerStatuses``, ``startTime`` and the conditions ``Ready``,
``ContainersReady`` and ``Initialized``. A Pod may run once it has ``spec.nodeName`` and ``status.podIP``.
"""

from collections.abc import Callable, Iterable

from podgate.lab.controllers import (
    daemonsets,
    deployments,
    endpointslices,
    garbage,
    ipam,
    nodes,
    replicasets,
    scheduler,
    services,
)
from podgate.lab.controllers.writes import Objects, Put, PutStatus, Remove, Write, net, performed

Controller = Callable[[Objects], tuple[Write, ...]]

_ORDER = (
    garbage.reconcile,
    nodes.reconcile,
    ipam.ranges,
    deployments.reconcile,
    replicasets.reconcile,
    daemonsets.reconcile,
    scheduler.reconcile,
    ipam.reconcile,
    services.reconcile,
)

_SETTLED = (endpointslices.reconcile,)
"""What looks at Pods as the store has them: one that was just deleted is not gone, it terminates."""

_JOINED = (nodes.registered, ipam.ranges, scheduler.reconcile, ipam.reconcile)
"""What is left to a lab whose objects live in a real cluster: the scheduler's and the nodes' part."""


def reconcile(objects: Objects) -> tuple[Write, ...]:
    """Give what all controllers want to change.

    Args:
        objects: every object of the lab, valid (lab/validity.py), with its status under ``status``.

    Returns:
        At most one Put or Remove and one PutStatus per object; bodies before statuses. Each controller sees what the
        ones before it decided.
    """
    return _decided(objects, _ORDER) or _decided(objects, _SETTLED)


def reconcile_joined(objects: Objects) -> tuple[Write, ...]:
    """Give what a lab wants to change in a cluster that has controllers of its own."""
    return _decided(objects, _JOINED)


def _decided(objects: Objects, order: Iterable[Controller]) -> tuple[Write, ...]:
    writes: list[Write] = []
    for controller in order:
        wanted = controller(objects)
        writes += wanted
        objects = performed(objects, wanted)
    return net(writes)


__all__ = ["Objects", "Put", "PutStatus", "Remove", "Write", "reconcile", "reconcile_joined"]
