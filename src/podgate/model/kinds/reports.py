"""NodeReport of podgate.dev: which objects of a feature one node applies, as that node's agent says.

Here: the struct and its Kind value. Not here: who writes and who counts them (targets/kubernetes/reports.py).
Invariant: one object per feature and node, written by that node's agent alone, so that no two ever contend for one.

Manifest: nodereports.podgate.dev in the customresourcedefinitions.yaml of each feature that reports.
"""

from typing import Final

from podgate.model.kinds.meta import OWN_GROUP, ApiStruct, ObjectMeta, own_kind


class Applied(ApiStruct, frozen=True, rename="camel", gc=False):
    """One object that a node has dealt with.

    Attributes:
        generation: its ``metadata.generation`` that is dealt with.
        instead: why the node does not do what it says, as a CamelCase word; empty where it does.
    """

    kind: str = ""
    name: str = ""
    namespace: str = ""
    generation: int = 0
    instead: str = ""


class NodeReport(ApiStruct, frozen=True, rename="camel", gc=False):
    """What one node applies of one feature."""

    metadata: ObjectMeta = ObjectMeta()
    feature: str = ""
    node: str = ""
    applied: tuple[Applied, ...] = ()


NODE_REPORT: Final = own_kind("NodeReport", "nodereports", NodeReport)
FEATURE_LABEL: Final = f"{OWN_GROUP}/feature"
"""On each report, so that a leader watches those of its own feature alone."""
