"""The fields that our manifests use, as the Kubernetes API reference (v1, apps/v1) has them.

Here: structs that refuse any other field, since a misspelt field is silently nothing in a cluster. Not here: values.
Invariant: a field is added here only together with a look into the API reference.
"""

from typing import Annotated, Literal

import msgspec


class Strict(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """Decodes known fields only, each with its type."""


class Metadata(Strict):
    name: str
    namespace: str
    labels: dict[str, str]


class TemplateMetadata(Strict):
    labels: dict[str, str]


class ServiceAccount(Strict):
    api_version: Literal["v1"]
    kind: Literal["ServiceAccount"]
    metadata: Metadata
    automount_service_account_token: bool


class ConfigMap(Strict):
    api_version: Literal["v1"]
    kind: Literal["ConfigMap"]
    metadata: Metadata
    data: dict[str, str]


class Requirement(Strict):
    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: list[str] = []


class Term(Strict):
    match_expressions: list[Requirement]


class NodeSelector(Strict):
    node_selector_terms: list[Term]


class NodeAffinity(Strict):
    required_during_scheduling_ignored_during_execution: NodeSelector


class Affinity(Strict):
    node_affinity: NodeAffinity


class Toleration(Strict):
    operator: Literal["Exists", "Equal"]
    key: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute", ""] = ""


class FieldRef(Strict):
    field_path: str


class ValueFrom(Strict):
    field_ref: FieldRef


class EnvVar(Strict):
    name: str
    value_from: ValueFrom


class HttpGet(Strict):
    host: str
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]
    path: str


class Probe(Strict):
    http_get: HttpGet
    period_seconds: Annotated[int, msgspec.Meta(ge=1)]
    timeout_seconds: Annotated[int, msgspec.Meta(ge=1)]
    failure_threshold: Annotated[int, msgspec.Meta(ge=1)] = 3


class Quantities(Strict):
    cpu: str
    memory: str


class Resources(Strict):
    requests: Quantities
    limits: Quantities | None = None


class Capabilities(Strict):
    add: list[str]
    drop: list[str]


class SeccompProfile(Strict):
    type: Literal["RuntimeDefault", "Localhost", "Unconfined"]


class SecurityContext(Strict):
    privileged: bool
    run_as_user: int
    run_as_group: int
    allow_privilege_escalation: bool
    read_only_root_filesystem: bool
    capabilities: Capabilities
    seccomp_profile: SeccompProfile


class VolumeMount(Strict):
    name: str
    mount_path: str
    read_only: bool = False


class Container(Strict):
    name: str
    image: str
    args: list[str]
    env: list[EnvVar]
    liveness_probe: Probe
    readiness_probe: Probe
    resources: Resources
    security_context: SecurityContext
    volume_mounts: list[VolumeMount]


class KeyToPath(Strict):
    key: str
    path: str


class ConfigMapVolume(Strict):
    name: str
    optional: bool
    items: list[KeyToPath]


class HostPath(Strict):
    path: str
    type: Literal["DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket"]


class Volume(Strict):
    name: str
    config_map: ConfigMapVolume | None = None
    host_path: HostPath | None = None


class PodSpec(Strict):
    service_account_name: str
    automount_service_account_token: bool
    host_network: bool
    dns_policy: Literal["Default", "ClusterFirst", "ClusterFirstWithHostNet", "None"]
    priority_class_name: str
    termination_grace_period_seconds: int
    tolerations: list[Toleration]
    affinity: Affinity
    containers: list[Container]
    volumes: list[Volume]


class Template(Strict):
    metadata: TemplateMetadata
    spec: PodSpec


class Selector(Strict):
    match_labels: dict[str, str]


class RollingUpdate(Strict):
    max_unavailable: str


class UpdateStrategy(Strict):
    type: Literal["RollingUpdate", "OnDelete"]
    rolling_update: RollingUpdate


class DaemonSetSpec(Strict):
    selector: Selector
    update_strategy: UpdateStrategy
    template: Template


class DaemonSet(Strict):
    api_version: Literal["apps/v1"]
    kind: Literal["DaemonSet"]
    metadata: Metadata
    spec: DaemonSetSpec
