"""Validity: what an API server would refuse, for the kinds that the lab acts on. Pure.

Here: ``fault_of``: the first thing wrong with an object. Not here: types of fields alone (shapes.py), files and lines
(manifests.py).
Invariant: an object without a fault makes no controller fail or run in circles.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_address, ip_interface, ip_network
from typing import Final

from podgate.commandline.options import listed
from podgate.lab import podspec
from podgate.lab.clouds import cloud_of
from podgate.lab.kinds import LAB_GROUP, Object, group_of
from podgate.lab.limits import resource_faults
from podgate.lab.pods import PREFIX_LENGTH, SECONDARY, node_addresses
from podgate.lab.selecting import OPERATORS, matches
from podgate.lab.servicevalidity import endpoint_slice, service, service_cidr
from podgate.lab.shapes import (
    DaemonSet,
    Deployment,
    Host,
    LabelSelector,
    Node,
    Pod,
    PodSpec,
    ReplicaSet,
    Requirement,
    RollingUpdate,
    ShapeFault,
    Template,
    misfit,
    shape_fault,
    view,
)
from podgate.model.converting import without_nulls
from podgate.model.fieldpath import field_path

IP_ANNOTATION: Final = "lab.podgate.dev/ip"
"""On a Pod: the addresses that it shall have, with commas between: ``10.16.1.6`` or ``10.16.1.6,fd00::6``."""

_LOOSE: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.:_-]{0,251}[A-Za-z0-9])?", re.ASCII)
_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_SUBDOMAIN: Final = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*", re.ASCII
)
_NAMES: Final = {
    _LOOSE: "use letters, digits, '-' and '.', at most 253",
    _LABEL: "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and "
    "end with an alphanumeric character, at most 63",
    _SUBDOMAIN: "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and "
    "must start and end with an alphanumeric character, at most 253",
}
"""What a name may be, and the words of an API server (apimachinery, util/validation) for what it may not."""

_NAMED_LOOSELY: Final = frozenset({"rbac.authorization.k8s.io", "certificates.k8s.io"})
"""Groups whose names are parts of paths, as ``system:node``."""

_PERCENT: Final = re.compile(r"[0-9]{1,9}%", re.ASCII)
_EFFECTS: Final = frozenset({"NoSchedule", "NoExecute", "PreferNoSchedule"})

_Fault = ShapeFault


def fault_of(obj: Object) -> ShapeFault | None:
    """Give the first thing that is wrong with an object; None if it can be stored and acted on."""
    fault = shape_fault(obj) or next(_metadata(obj), None)
    if fault is not None:
        return fault
    check = _CHECKS.get((group_of(obj), obj["kind"]))
    return next(check(obj), None) if check else None


def _metadata(obj: Object) -> Iterator[ShapeFault]:
    metadata = obj["metadata"]
    name = metadata.get("name")
    if not name:
        hint = "the lab makes no names up: write name instead of generateName" if "generateName" in metadata else ""
        yield _Fault("metadata.name", f"the object has no name; {hint or 'add one'}")
    elif not (form := _form(obj)).fullmatch(name):
        yield _Fault("metadata.name", f'Invalid value: "{name}": {_NAMES[form]}')
    elif name.endswith(".status"):
        yield _Fault("metadata.name", f"{name!r} ends in '.status', which the lab's files use; choose another name")
    namespace = metadata.get("namespace", "")
    if namespace and not _LABEL.fullmatch(namespace):
        yield _Fault("metadata.namespace", f'Invalid value: "{namespace}": {_NAMES[_LABEL]}')


def _form(obj: Object) -> re.Pattern[str]:
    """Give what an object's name may be, by its kind."""
    group = group_of(obj)
    if group in _NAMED_LOOSELY:
        return _LOOSE
    return _LABEL if (group, obj["kind"]) in {("", "Namespace"), ("", "Service")} else _SUBDOMAIN


def _pod(obj: Object) -> Iterator[ShapeFault]:
    pod = view(obj, Pod)
    yield from _runnable(obj["spec"], "spec")
    yield from _pod_spec(pod.spec, "spec")
    field = field_path(("metadata", "annotations", IP_ANNOTATION))
    yield from _parsed(pod.metadata.annotations.get(IP_ANNOTATION, ""), ip_address, field, "an address, as 10.16.1.6")


def _parsed(text: str, read: Callable[[str], object], field: str, what: str) -> Iterator[ShapeFault]:
    for word in listed(text):
        try:
            read(word)
        except ValueError as error:
            yield _Fault(field, f"{word!r} is not {what}: {error}")


def _runnable(spec: Object, field: str) -> Iterator[ShapeFault]:
    """Check the types of what running the Pod needs, before anything runs."""
    whole = without_nulls(spec)
    fault = misfit(whole, podspec.PodSpec, field)
    if fault is not None:
        yield fault
    else:
        yield from (_Fault(where, why) for where, why in resource_faults(whole, field))


def _pod_spec(spec: PodSpec, field: str) -> Iterator[ShapeFault]:
    for index, toleration in enumerate(spec.tolerations):
        where = f"{field}.tolerations[{index}]"
        if toleration.operator not in {"Exists", "Equal"}:
            yield _Fault(f"{where}.operator", f"{toleration.operator!r} is not Exists or Equal")
        if toleration.effect and toleration.effect not in _EFFECTS:
            yield _Fault(f"{where}.effect", f"{toleration.effect!r} is not one of {', '.join(sorted(_EFFECTS))}")
        if not toleration.key and toleration.operator != "Exists":
            yield _Fault(where, "a toleration without a key needs operator: Exists")
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    rule = f"{field}.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    for index, term in enumerate(required.node_selector_terms if required else ()):
        yield from _requirements(term.match_expressions, f"{rule}[{index}].matchExpressions")
        yield from _requirements(term.match_fields, f"{rule}[{index}].matchFields")


def _requirements(requirements: tuple[Requirement, ...], field: str) -> Iterator[ShapeFault]:
    for index, one in enumerate(requirements):
        if one.operator not in OPERATORS:
            yield _Fault(f"{field}[{index}].operator", f"{one.operator!r} is not one of {', '.join(OPERATORS)}")
        elif bool(one.values) != (one.operator not in {"Exists", "DoesNotExist"}):
            needs = "no values" if one.values else "values"
            yield _Fault(f"{field}[{index}].values", f"the operator {one.operator} takes {needs}")


def _workload(obj: Object, selector: LabelSelector, template: Template) -> Iterator[ShapeFault]:
    yield from _runnable(obj["spec"]["template"]["spec"], "spec.template.spec")
    yield from _requirements(selector.match_expressions, "spec.selector.matchExpressions")
    if not selector.match_labels and not selector.match_expressions:
        yield _Fault("spec.selector", "an empty selector would select every Pod; add matchLabels")
    elif not matches(selector, template.metadata.labels):
        yield _Fault(
            "spec.template.metadata.labels", "the labels of the template do not match spec.selector; align them"
        )
    yield from _pod_spec(template.spec, "spec.template.spec")


def _counts(update: RollingUpdate, field: str, unavailable: int | str, surge: int | str) -> Iterator[ShapeFault]:
    """Check both numbers; the defaults are the kind's own."""
    values = {
        "maxUnavailable": unavailable if update.max_unavailable is None else update.max_unavailable,
        "maxSurge": surge if update.max_surge is None else update.max_surge,
    }
    for name, value in values.items():
        if isinstance(value, str) and not _PERCENT.fullmatch(value):
            yield _Fault(f"{field}.{name}", f"{value!r} is neither a number nor a percentage such as 25%")
    if all(value in {0, "0%"} for value in values.values()):
        yield _Fault(field, "maxUnavailable and maxSurge are both 0, so no update could ever move; raise one")


def _daemonset(obj: Object) -> Iterator[ShapeFault]:
    spec = view(obj, DaemonSet).spec
    yield from _workload(obj, spec.selector, spec.template)
    yield from _counts(spec.update_strategy.rolling_update, "spec.updateStrategy.rollingUpdate", 1, 0)
    if spec.update_strategy.type not in {"RollingUpdate", "OnDelete"}:
        yield _Fault("spec.updateStrategy.type", f"{spec.update_strategy.type!r} is not RollingUpdate or OnDelete")


def _deployment(obj: Object) -> Iterator[ShapeFault]:
    spec = view(obj, Deployment).spec
    yield from _workload(obj, spec.selector, spec.template)
    yield from _counts(spec.strategy.rolling_update, "spec.strategy.rollingUpdate", "25%", "25%")
    if spec.strategy.type not in {"RollingUpdate", "Recreate"}:
        yield _Fault("spec.strategy.type", f"{spec.strategy.type!r} is not RollingUpdate or Recreate")


def _replicaset(obj: Object) -> Iterator[ShapeFault]:
    spec = view(obj, ReplicaSet).spec
    yield from _workload(obj, spec.selector, spec.template)


def _node(obj: Object) -> Iterator[ShapeFault]:
    node = view(obj, Node)
    for index, text in enumerate(node.spec.pod_cidrs):
        yield from _parsed(text, ip_network, f"spec.podCIDRs[{index}]", "a range, as 10.16.1.0/24")
    yield from _parsed(node.spec.pod_cidr, ip_network, "spec.podCIDR", "a range, as 10.16.1.0/24")
    if node.spec.pod_cidrs and node.spec.pod_cidr not in {"", node.spec.pod_cidrs[0]}:
        yield _Fault("spec.podCIDR", f"{node.spec.pod_cidr} is not the first of spec.podCIDRs; align them")
    for index, address in enumerate(node.status.addresses):
        if address.type in {"InternalIP", "ExternalIP"}:
            yield from _parsed(address.address, ip_address, f"status.addresses[{index}].address", "an address")
    try:
        node_addresses(obj)
    except ValueError as error:
        yield _Fault("metadata.annotations", f"{PREFIX_LENGTH} or {SECONDARY}: {error}")
    try:
        cloud_of(obj)
    except ValueError as error:
        yield _Fault("metadata.annotations", str(error))
    for index, taint in enumerate(node.spec.taints):
        if taint.effect not in _EFFECTS:
            yield _Fault(
                f"spec.taints[{index}].effect", f"{taint.effect!r} is not one of {', '.join(sorted(_EFFECTS))}"
            )


def _host(obj: Object) -> Iterator[ShapeFault]:
    spec = view(obj, Host).spec
    for index, text in enumerate(spec.addresses):
        yield from _parsed(text, ip_interface, f"spec.addresses[{index}]", "an address")
    yield from _parsed(spec.gateway, ip_address, "spec.gateway", "an address")
    for index, route in enumerate(spec.routes):
        yield from _parsed(route.to, ip_network, f"spec.routes[{index}].to", "a range, as 10.16.0.0/14")
        yield from _parsed(route.via, ip_address, f"spec.routes[{index}].via", "an address")


_CHECKS: Final[Mapping[tuple[str, str], Callable[[Object], Iterator[ShapeFault]]]] = {
    ("", "Pod"): _pod,
    ("", "Node"): _node,
    ("", "Service"): service,
    ("discovery.k8s.io", "EndpointSlice"): endpoint_slice,
    ("networking.k8s.io", "ServiceCIDR"): service_cidr,
    ("apps", "DaemonSet"): _daemonset,
    ("apps", "Deployment"): _deployment,
    ("apps", "ReplicaSet"): _replicaset,
    (LAB_GROUP, "Host"): _host,
}
