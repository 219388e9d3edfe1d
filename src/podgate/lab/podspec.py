"""A Pod as the lab runs it: the fields that it honours, as frozen values with the API's defaults.

Here: the structs that a Pod's JSON decodes to. Pure.
Not here: which fields are not honoured (lab/fields.py), what is done with them (lab/pods.py and its neighbours).
Invariant: decoding never changes meaning: an absent field is the API server's default.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from podgate.lab.shapes import PodIP, Shape
from podgate.model.converting import without_nulls


class Metadata(Shape, frozen=True):
    """What the lab reads of an object's metadata."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None


class KeyRef(Shape, frozen=True):
    """One key of a ConfigMap or Secret."""

    key: str
    name: str = ""
    optional: bool = False


class FieldRef(Shape, frozen=True):
    """A field of the Pod itself, as ``status.podIP``."""

    field_path: str
    api_version: str = "v1"


class ResourceFieldRef(Shape, frozen=True):
    """A container's request or limit, divided by ``divisor`` and rounded up."""

    resource: str
    container_name: str = ""
    divisor: str | int = "1"


class ValueFrom(Shape, frozen=True):
    """Where the value of a variable comes from; exactly one field is set."""

    field_ref: FieldRef | None = None
    resource_field_ref: ResourceFieldRef | None = None
    config_map_key_ref: KeyRef | None = None
    secret_key_ref: KeyRef | None = None


class EnvVar(Shape, frozen=True):
    """A variable of the environment."""

    name: str
    value: str = ""
    value_from: ValueFrom | None = None


class NameRef(Shape, frozen=True):
    """A ConfigMap or Secret by name."""

    name: str = ""
    optional: bool = False


class EnvFrom(Shape, frozen=True):
    """All keys of a ConfigMap or Secret as variables."""

    prefix: str = ""
    config_map_ref: NameRef | None = None
    secret_ref: NameRef | None = None


class VolumeMount(Shape, frozen=True):
    """Where a volume shows in a container."""

    name: str
    mount_path: str
    read_only: bool = False
    sub_path: str = ""
    sub_path_expr: str = ""


class Exec(Shape, frozen=True):
    """A probe that runs a command."""

    command: tuple[str, ...] = ()


class HttpHeader(Shape, frozen=True):
    """A header that a probe sends."""

    name: str
    value: str


class HttpGet(Shape, frozen=True):
    """A probe by HTTP: any status from 200 to 399 is success."""

    port: int | str
    path: str = "/"
    host: str = ""
    scheme: Literal["HTTP", "HTTPS"] = "HTTP"
    http_headers: tuple[HttpHeader, ...] = ()


class TcpSocket(Shape, frozen=True):
    """A probe that connects."""

    port: int | str
    host: str = ""


class Probe(Shape, frozen=True):
    """When and how a container is asked. All times in seconds."""

    exec: Exec | None = None
    http_get: HttpGet | None = None
    tcp_socket: TcpSocket | None = None
    initial_delay_seconds: int = 0
    period_seconds: int = 10
    timeout_seconds: int = 1
    success_threshold: int = 1
    failure_threshold: int = 3


class Hook(Shape, frozen=True):
    """What is done before a container is asked to end; ``sleep`` has ``seconds``."""

    exec: Exec | None = None
    http_get: HttpGet | None = None
    sleep: Mapping[Literal["seconds"], int] | None = None


class Lifecycle(Shape, frozen=True):
    """What accompanies a container's life."""

    pre_stop: Hook | None = None


class Capabilities(Shape, frozen=True):
    """Capabilities to add to and to drop from the runtime's default set, without ``CAP_``."""

    add: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()


class SecurityContext(Shape, frozen=True):
    """A container's rights. None leaves the Pod's or the runtime's own default."""

    run_as_user: int | None = None
    run_as_group: int | None = None
    run_as_non_root: bool | None = None
    privileged: bool = False
    read_only_root_filesystem: bool = False
    allow_privilege_escalation: bool = True
    capabilities: Capabilities = Capabilities()


class Sysctl(Shape, frozen=True):
    """A kernel setting of the Pod's network namespace."""

    name: str
    value: str


class PodSecurityContext(Shape, frozen=True):
    """The rights of all containers of a Pod."""

    run_as_user: int | None = None
    run_as_group: int | None = None
    run_as_non_root: bool | None = None
    supplemental_groups: tuple[int, ...] = ()
    fs_group: int | None = None
    sysctls: tuple[Sysctl, ...] = ()


class Port(Shape, frozen=True):
    """A named port, which a probe may refer to."""

    container_port: int
    name: str = ""


class Resources(Shape, frozen=True):
    """Requests and limits: quantities by the resource's name."""

    requests: Mapping[str, str | int | float] | None = None
    limits: Mapping[str, str | int | float] | None = None


class Container(Shape, frozen=True):
    """One container."""

    name: str
    image: str = ""
    command: tuple[str, ...] | None = None
    args: tuple[str, ...] | None = None
    working_dir: str = ""
    env: tuple[EnvVar, ...] | None = None
    env_from: tuple[EnvFrom, ...] | None = None
    ports: tuple[Port, ...] | None = None
    volume_mounts: tuple[VolumeMount, ...] | None = None
    resources: Resources | None = None
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    startup_probe: Probe | None = None
    lifecycle: Lifecycle | None = None
    security_context: SecurityContext | None = None
    restart_policy: str | None = None
    termination_message_path: str = "/dev/termination-log"

    @property
    def security(self) -> SecurityContext:
        """Its rights, or the defaults."""
        return self.security_context or SecurityContext()


class KeyToPath(Shape, frozen=True):
    """One key of a volume as a file; ``mode`` overrides the volume's."""

    key: str
    path: str
    mode: int | None = None


class ConfigMapVolume(Shape, frozen=True):
    """A ConfigMap as files."""

    name: str = ""
    items: tuple[KeyToPath, ...] | None = None
    default_mode: int = 0o644
    optional: bool = False


class SecretVolume(Shape, frozen=True):
    """A Secret as files."""

    secret_name: str = ""
    items: tuple[KeyToPath, ...] | None = None
    default_mode: int = 0o644
    optional: bool = False


class DownwardItem(Shape, frozen=True):
    """One field of the Pod as a file."""

    path: str
    field_ref: FieldRef | None = None
    resource_field_ref: ResourceFieldRef | None = None
    mode: int | None = None


class DownwardVolume(Shape, frozen=True):
    """Fields of the Pod as files."""

    items: tuple[DownwardItem, ...] = ()
    default_mode: int = 0o644


class TokenProjection(Shape, frozen=True):
    """A service account's token as a file; the lab's is readable but signs nothing."""

    path: str
    audience: str = ""
    expiration_seconds: int = 3600


class SecretProjection(Shape, frozen=True):
    """A Secret as part of a projected volume."""

    name: str = ""
    items: tuple[KeyToPath, ...] | None = None
    optional: bool = False


class Projection(Shape, frozen=True):
    """One source of a projected volume; exactly one field is set."""

    config_map: ConfigMapVolume | None = None
    secret: SecretProjection | None = None
    downward_api: DownwardVolume | None = msgspec.field(default=None, name="downwardAPI")
    service_account_token: TokenProjection | None = None


class ProjectedVolume(Shape, frozen=True):
    """Several sources in one folder."""

    sources: tuple[Projection, ...] = ()
    default_mode: int = 0o644


class EmptyDir(Shape, frozen=True):
    """A folder that lives as long as the Pod. The lab keeps both media in memory."""

    medium: str = ""
    size_limit: str | int | None = None


class HostPath(Shape, frozen=True):
    """A path of the node; ``type`` as DirectoryOrCreate says what must be there."""

    path: str
    type: str = ""


class Volume(Shape, frozen=True):
    """A volume; one source, or an empty folder."""

    name: str
    config_map: ConfigMapVolume | None = None
    secret: SecretVolume | None = None
    empty_dir: EmptyDir | None = None
    host_path: HostPath | None = None
    downward_api: DownwardVolume | None = msgspec.field(default=None, name="downwardAPI")
    projected: ProjectedVolume | None = None


class HostAlias(Shape, frozen=True):
    """A line of the Pod's /etc/hosts."""

    ip: str
    hostnames: tuple[str, ...] = ()


class PodSpec(Shape, frozen=True):
    """What a Pod asks for."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    volumes: tuple[Volume, ...] | None = None
    node_name: str = ""
    host_network: bool = False
    hostname: str = ""
    restart_policy: Literal["Always", "OnFailure", "Never"] = "Always"
    service_account_name: str = "default"
    termination_grace_period_seconds: int = 30
    security_context: PodSecurityContext | None = None
    host_aliases: tuple[HostAlias, ...] | None = None

    @property
    def security(self) -> PodSecurityContext:
        """The rights of all containers, or the defaults."""
        return self.security_context or PodSecurityContext()


class PodStatus(Shape, frozen=True):
    """What the lab reads of a Pod's status: the addresses that a controller gave it."""

    pod_ip: str = msgspec.field(default="", name="podIP")
    pod_ips: tuple[PodIP, ...] = msgspec.field(default=(), name="podIPs")

    @property
    def addresses(self) -> tuple[str, ...]:
        """The Pod's addresses, the primary one first."""
        return tuple(entry.ip for entry in self.pod_ips) or ((self.pod_ip,) if self.pod_ip else ())


class Pod(Shape, frozen=True):
    """A Pod."""

    metadata: Metadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.metadata.namespace or "default", self.metadata.name


def decode_pod(value: Mapping[str, Any]) -> Pod:
    """Decode a Pod; raises msgspec.ValidationError, whose message names the field, for a value of the wrong type."""
    return msgspec.convert(without_nulls(value), Pod)
