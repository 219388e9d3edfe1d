"""A container's environment, and the fields of a Pod as text.

Here: env, envFrom, the downward API, ``$(VAR)``. Pure.
Not here: where the environment is used (lab/workload.py).
Invariant: a reference that cannot be resolved and is not optional gives ``ConfigFault``, never an empty value.
"""

import math
import re
from base64 import b64decode
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from podgate.lab.podspec import Container, EnvVar, FieldRef, Pod, ResourceFieldRef
from podgate.lab.quantities import quantity
from podgate.lab.security import ConfigFault
from podgate.model.frozen import Frozen, ObjectRef

Objects = Mapping[ObjectRef, Mapping[str, Any]]

_REFERENCE: Final = re.compile(r"\$(\$|\(([^()$]*)\))")
_KEYED: Final = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]\Z")


class Surroundings(Frozen, frozen=True):
    """What a Pod's values depend on besides the Pod: the objects, and its node's addresses.

    ``joined``: the objects are in an API server, which also signs tokens.
    """

    pod: Pod
    objects: Objects
    host_ips: tuple[str, ...] = ()
    joined: bool = False


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """Replace ``$(VAR)`` of known variables; unknown ones stay as written and ``$$`` is a dollar (kubelet's rule)."""

    def value(match: re.Match[str]) -> str:
        if match.group(1) == "$":
            return "$"
        return variables.get(match.group(2), match.group(0))

    return _REFERENCE.sub(value, text)


def data_of(objects: Objects, kind: str, namespace: str, name: str) -> dict[str, bytes] | None:
    """Give the keys of a ConfigMap or Secret as bytes; None when there is no such object."""
    found = objects.get(ObjectRef(kind, name, namespace))
    if found is None:
        return None
    data: dict[str, bytes] = {}
    plain, encoded = ("data", "binaryData") if kind == "ConfigMap" else ("stringData", "data")
    for key, value in (found.get(encoded) or {}).items():
        with suppress(ValueError):  # Not base64: the key is missed by name where it is used.
            data[key] = b64decode(value)
    for key, value in (found.get(plain) or {}).items():
        data[key] = str(value).encode()
    return data


def field(reference: FieldRef, around: Surroundings) -> str | ConfigFault:
    """Give a field of the Pod as the downward API shows it."""
    pod, path = around.pod, reference.field_path
    metadata = pod.metadata
    simple = {
        "metadata.name": metadata.name,
        "metadata.namespace": pod.key[0],
        "metadata.uid": metadata.uid,
        "spec.nodeName": pod.spec.node_name,
        "spec.serviceAccountName": pod.spec.service_account_name,
        "status.podIP": (pod.status.addresses or ("",))[0],
        "status.podIPs": ",".join(pod.status.addresses),
        "status.hostIP": (around.host_ips or ("",))[0],
        "status.hostIPs": ",".join(around.host_ips),
    }
    if path in simple:
        return simple[path]
    keyed = _KEYED.match(path)
    if keyed:
        values = metadata.labels if keyed.group(1) == "labels" else metadata.annotations
        return (values or {}).get(keyed.group(2), "")
    if path in {"metadata.labels", "metadata.annotations"}:
        values = metadata.labels if path == "metadata.labels" else metadata.annotations
        return "\n".join(f'{key}="{_escaped(value)}"' for key, value in sorted((values or {}).items()))
    return ConfigFault("CreateContainerConfigError", f"fieldPath {path!r} is not one that the downward API has")


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def resource(reference: ResourceFieldRef, container: Container) -> str | ConfigFault:
    """Give a container's request or limit divided by the divisor, rounded up; 0 when it is not set."""
    kind, _, name = reference.resource.partition(".")
    wanted = container.resources
    values = (wanted.limits if kind == "limits" else wanted.requests) if wanted else None
    try:
        amount, divisor = quantity((values or {}).get(name, "0")), quantity(reference.divisor) or 1
    except ValueError as error:
        return ConfigFault("CreateContainerConfigError", f"container {container.name}: {reference.resource}: {error}")
    return str(math.ceil(amount / divisor))


def _value(variable: EnvVar, container: Container, around: Surroundings) -> str | ConfigFault | None:
    """Give the value of a variable with valueFrom; None leaves the variable out."""
    source = variable.value_from
    if source is None:
        return ""
    if source.field_ref:
        return field(source.field_ref, around)
    if source.resource_field_ref:
        return resource(source.resource_field_ref, container)
    kind, reference = (
        ("ConfigMap", source.config_map_key_ref) if source.config_map_key_ref else ("Secret", source.secret_key_ref)
    )
    if reference is None:
        return ConfigFault("CreateContainerConfigError", f"variable {variable.name}: valueFrom names no source")
    data = data_of(around.objects, kind, around.pod.key[0], reference.name)
    if data is not None and reference.key in data:
        return data[reference.key].decode(errors="replace")
    if reference.optional:
        return None
    what = (
        f"{kind} {reference.name} not found"
        if data is None
        else f"{kind} {reference.name} has no key {reference.key!r}"
    )
    return ConfigFault("CreateContainerConfigError", f"variable {variable.name}: {what}")


def environment(
    container: Container, around: Surroundings, base: Iterable[tuple[str, str]] = ()
) -> dict[str, str] | ConfigFault:
    """Give a container's environment: ``base``, then envFrom, then env; later ones win."""
    variables = dict(base)
    for entry in container.env_from or ():
        kind, reference = ("ConfigMap", entry.config_map_ref) if entry.config_map_ref else ("Secret", entry.secret_ref)
        if reference is None:
            continue
        data = data_of(around.objects, kind, around.pod.key[0], reference.name)
        if data is None and not reference.optional:
            return ConfigFault("CreateContainerConfigError", f"envFrom: {kind} {reference.name} not found")
        variables |= {
            f"{entry.prefix}{key}": value.decode(errors="replace") for key, value in sorted((data or {}).items())
        }
    for variable in container.env or ():
        if variable.value_from is None:
            variables[variable.name] = expanded(variable.value, variables)
            continue
        value = _value(variable, container, around)
        if isinstance(value, ConfigFault):
            return ConfigFault(value.reason, f"container {container.name}: {value.message}")
        if value is not None:
            variables[variable.name] = value
    return variables
