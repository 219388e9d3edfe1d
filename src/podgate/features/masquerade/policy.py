"""policy: the kind MasqueradePolicy of podgate.dev, as a source reads it.

Here: the struct and its Kind value. Not here: what a policy says (policies.py) and does on a node (resolving.py).
Invariant: ``spec`` is what the user wrote, field for field: a misspelt field must be found, since a policy that lost
its ``from`` would be one for everybody. The manifest is deploy/masquerade-policies/customresourcedefinition.yaml.
"""

from typing import Any, Final

from podgate.model.frozen import ObjectRef
from podgate.model.kinds.meta import ApiStruct, ObjectMeta, own_kind


class MasqueradePolicy(ApiStruct, frozen=True, rename="camel", gc=False):
    """Decides about some traffic before the ConfigMap does. ``spec`` is plain JSON."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Any = None


MASQUERADE_POLICY: Final = own_kind("MasqueradePolicy", "masqueradepolicies", MasqueradePolicy)


def policy_ref(name: str) -> ObjectRef:
    """Give the reference to a policy."""
    return ObjectRef(MASQUERADE_POLICY.kind, name)
