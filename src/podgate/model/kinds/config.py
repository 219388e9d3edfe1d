"""Kinds that hold configuration, and the space that objects live in: ConfigMap and Namespace.

Here: the structs and their Kind values. Not here: Secret, whose bytes need podgate.model.secret.
Invariant: ``data`` is text by key, as the user wrote it; nothing of it is parsed here.
"""

from collections.abc import Mapping
from typing import Final

from podgate.model.kinds.meta import ApiStruct, ObjectMeta
from podgate.model.snapshot import Kind


class ConfigMap(ApiStruct, frozen=True, rename="camel", gc=False):
    """A ConfigMap; ``binaryData`` is not read."""

    metadata: ObjectMeta = ObjectMeta()
    data: Mapping[str, str] = {}


class Namespace(ApiStruct, frozen=True, rename="camel", gc=False):
    """A namespace: its labels are what selectors look at."""

    metadata: ObjectMeta = ObjectMeta()


CONFIG_MAP: Final[Kind[ConfigMap]] = Kind(
    group="", version="v1", kind="ConfigMap", plural="configmaps", namespaced=True, decodes_to=ConfigMap
)
NAMESPACE: Final[Kind[Namespace]] = Kind(
    group="", version="v1", kind="Namespace", plural="namespaces", namespaced=False, decodes_to=Namespace
)
