"""policy: the kind MetadataPolicy, as Kubernetes has it.

Here: the struct of the object and its Kind value. Not here: the spec, which files hold too (spec.py).
Invariant: the object decodes whatever its spec holds; compile.py reads that and complains about the field.
"""

from typing import Any, Final

from podgate.model.kinds.meta import ApiStruct, ObjectMeta, own_kind


class MetadataPolicy(ApiStruct, frozen=True, rename="camel", gc=False):
    """Rules for some Pods of the cluster, or for all."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Any = None


METADATA_POLICY: Final = own_kind("MetadataPolicy", "metadatapolicies", MetadataPolicy)
