"""Which fields of a Pod the lab does not honour although a cluster would behave differently because of them.

Here: the comparison of a Pod's JSON with the structs of lab/podspec.py. Pure.
Not here: decoding.
Invariant: a field is honoured (it is in a struct), harmless (it is in the table below), or warned about by its path.
"""

import types
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, Union, get_args, get_origin

import msgspec

from podgate.lab.podspec import PodSpec

HARMLESS: Final = frozenset(
    {
        # Decided by the lab's controllers before a Pod gets here.
        "affinity", "nodeSelector", "tolerations", "priorityClassName", "priority", "preemptionPolicy", "schedulerName",
        "topologySpreadConstraints", "schedulingGates", "overhead",
        # True of every lab: nothing is pulled, there is one kind of machine, links to Services are off.
        "imagePullPolicy", "imagePullSecrets", "os", "enableServiceLinks", "automountServiceAccountToken",
        "serviceAccount", "runtimeClassName",
        # Seen by people and tools only.
        "terminationMessagePolicy", "protocol", "hostPort", "requests", "tty", "stdin", "stdinOnce",
        # No DNS server: documented for the whole lab.
        "dnsPolicy", "dnsConfig", "subdomain", "setHostnameAsFQDN",
        # Pods of a lab share a process namespace: documented for the whole lab.
        "hostPID", "shareProcessNamespace",
        # What a machine without those security modules does with them, too.
        "seccompProfile", "appArmorProfile", "seLinuxOptions", "fsGroupChangePolicy", "procMount",
    }
)  # fmt: skip
_DEFAULTS: Final[Mapping[str, Any]] = {"hostIPC": False, "mountPropagation": "None"}


def _struct_of(kind: Any) -> tuple[type[msgspec.Struct] | None, bool]:
    """Give the struct in an annotation, and whether it is in a sequence."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind, False
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        for part in get_args(kind):
            found = _struct_of(part)
            if found[0] is not None:
                return found
    if origin is tuple:
        return _struct_of(get_args(kind)[0])[0], True
    return None, False


def _limits(value: Mapping[str, Any], path: str, enforced: Collection[str]) -> Iterator[str]:
    if value and not enforced:
        yield f"{path} is not enforced by the lab"
    elif value:
        yield from (f"{path}.{name} is not enforced by the lab" for name in value if name not in enforced)


def _walk(
    value: Mapping[str, Any], struct: type[msgspec.Struct], path: str, enforced: Collection[str]
) -> Iterator[str]:
    known = {field.encode_name: field.type for field in msgspec.structs.fields(struct)}
    for name, item in value.items():
        here = f"{path}.{name}"
        if name == "limits" and isinstance(item, Mapping):
            yield from _limits(item, here, enforced)
        if name not in known:
            if item is not None and name not in HARMLESS and _DEFAULTS.get(name, ...) != item:
                yield f"{here} is not honoured by the lab"
            continue
        inner, many = _struct_of(known[name])
        if inner is None:
            continue
        for number, part in enumerate(item if many and isinstance(item, list | tuple) else [item]):
            if isinstance(part, Mapping):
                yield from _walk(part, inner, f"{here}[{number}]" if many else here, enforced)


def unhonoured(pod: Mapping[str, Any], enforced: Collection[str] = ()) -> tuple[str, ...]:
    """Give a sentence per field of a Pod that is not honoured; ``enforced``: resources whose limits are."""
    spec = pod.get("spec")
    return tuple(_walk(spec, PodSpec, "spec", enforced)) if isinstance(spec, Mapping) else ()
