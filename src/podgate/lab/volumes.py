"""What volumes hold: the files of configMap, secret, downwardAPI and projected volumes, and where hostPaths lie.

Here: volume + objects -> file contents, as values. Pure.
Not here: writing them with the atomic ``..data`` swap (lab/volumewriter.py).
Invariant: equal objects give equal contents, so an unchanged volume is not written again.
"""

from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

from podgate.lab.kubewrites import token_ref
from podgate.lab.podenv import Objects, Surroundings, data_of, field, resource
from podgate.lab.podspec import DownwardVolume, HostPath, KeyToPath, Projection, TokenProjection, Volume
from podgate.lab.security import ConfigFault
from podgate.model.frozen import Frozen

MACHINE_PATHS: Final = ("/lib/modules", "/usr", "/etc/ssl", "/etc/ca-certificates", "/etc/pki", "/dev", "/sys", "/proc")
"""hostPaths that are the machine's own, read-only, when the machine has them; all others belong to the node."""


class Content(Frozen, frozen=True):
    """One file of a volume."""

    data: bytes
    mode: int = 0o644


Files = Mapping[str, Content]


def _picked(
    data: Mapping[str, bytes] | None,
    items: tuple[KeyToPath, ...] | None,
    mode: int,
    optional: bool,
    what: str,
) -> Files | ConfigFault:
    """Give the files of one ConfigMap or Secret. An object that is missing but optional has none."""
    if data is None:
        return {} if optional else ConfigFault("ContainerCreating", f"{what} not found")
    if items is None:
        return {key: Content(value, mode) for key, value in data.items()}
    files: dict[str, Content] = {}
    for item in items:
        if item.key in data:
            files[item.path] = Content(data[item.key], mode if item.mode is None else item.mode)
        elif not optional:
            return ConfigFault("ContainerCreating", f"{what} has no key {item.key!r}")
    return files


def _downward(volume: DownwardVolume, around: Surroundings, mode: int) -> Files | ConfigFault:
    files: dict[str, Content] = {}
    containers = {container.name: container for container in around.pod.spec.containers}
    for item in volume.items:
        value: str | ConfigFault = ""
        if item.field_ref:
            value = field(item.field_ref, around)
        elif item.resource_field_ref:
            named = containers.get(item.resource_field_ref.container_name)
            if named is None:
                return ConfigFault("ContainerCreating", f"downwardAPI {item.path}: resourceFieldRef names no container")
            value = resource(item.resource_field_ref, named)
        if isinstance(value, ConfigFault):
            return value
        files[item.path] = Content(value.encode(), mode if item.mode is None else item.mode)
    return files


def _token(projection: TokenProjection, around: Surroundings) -> Files | ConfigFault:
    """Give a token that says who it is for.

    In a cluster it is the API server's. A lab of its own has a token that nobody signed: only its own servers take it.
    """
    pod = around.pod
    if around.joined:
        found = around.objects.get(token_ref(pod.key[0], pod.metadata.name, pod.metadata.uid, projection.audience))
        if found is None:
            return ConfigFault("ContainerCreating", f"no token for {projection.audience or 'the API server'} yet")
        return {projection.path: Content(str(found["token"]).encode())}
    head = urlsafe_b64encode(b'{"alg":"none"}').rstrip(b"=")
    subject = f"system:serviceaccount:{pod.key[0]}:{pod.spec.service_account_name}"
    claims = f'{{"iss":"podgate-lab","sub":"{subject}","aud":["{projection.audience or "podgate-lab"}"]}}'
    return {projection.path: Content(head + b"." + urlsafe_b64encode(claims.encode()).rstrip(b"=") + b".", 0o600)}


def _projected(source: Projection, around: Surroundings, mode: int) -> Files | ConfigFault:
    namespace, objects = around.pod.key[0], around.objects
    if source.config_map:
        one = source.config_map
        data = data_of(objects, "ConfigMap", namespace, one.name)
        return _picked(data, one.items, mode, one.optional, f"ConfigMap {one.name}")
    if source.secret:
        secret = source.secret
        data = data_of(objects, "Secret", namespace, secret.name)
        return _picked(data, secret.items, mode, secret.optional, f"Secret {secret.name}")
    if source.downward_api:
        return _downward(source.downward_api, around, mode)
    if source.service_account_token:
        return _token(source.service_account_token, around)
    return {}


def contents(volume: Volume, around: Surroundings) -> Files | ConfigFault | None:
    """Give a volume's files; None for a volume that is a plain folder (emptyDir, hostPath)."""
    namespace = around.pod.key[0]
    if volume.config_map:
        one = volume.config_map
        data = data_of(around.objects, "ConfigMap", namespace, one.name)
        return _picked(data, one.items, one.default_mode, one.optional, f"ConfigMap {one.name}")
    if volume.secret:
        secret = volume.secret
        data = data_of(around.objects, "Secret", namespace, secret.secret_name)
        return _picked(data, secret.items, secret.default_mode, secret.optional, f"Secret {secret.secret_name}")
    if volume.downward_api:
        return _downward(volume.downward_api, around, volume.downward_api.default_mode)
    if volume.projected:
        files: dict[str, Content] = {}
        for source in volume.projected.sources:
            part = _projected(source, around, volume.projected.default_mode)
            if isinstance(part, ConfigFault):
                return part
            files |= part
        return files
    return None


def of_machine(path: HostPath) -> bool:
    """Whether a hostPath means the machine's own files, which no node can have apart."""
    return any(PurePosixPath(path.path).is_relative_to(own) for own in MACHINE_PATHS)


__all__ = ["MACHINE_PATHS", "Content", "Files", "Objects", "contents", "of_machine"]
