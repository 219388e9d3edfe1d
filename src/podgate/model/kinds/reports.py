"""NodeReport of podgate.dev: which objects of a feature one node applies, as that node's agent says.

Here: the struct and its Kind value. Not here: who writes and who counts them (targets/kubernetes/reports.py).
Invariant: one object per feature and node, written by that node's agent alone, so that no two ever contend for one.

Manifest: nodereports.yaml in the folder of each feature that reports. Its bounds are the same, so that what is longer
is refused by the API, and by us where the API does not know them: each node may write reports, and one process reads
all of them.
"""

from typing import Annotated, ClassVar, Final

from msgspec import Meta

from podgate.model.kinds.meta import OWN_GROUP, ApiStruct, own_kind

MOST: Final = 1000
"""Objects that one report names."""

_Label = Annotated[str, Meta(max_length=63)]
_Name = Annotated[str, Meta(max_length=253)]


class ReportMeta(ApiStruct, frozen=True, rename="camel", gc=False):
    """What is read of a report's metadata."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0


class Applied(ApiStruct, frozen=True, rename="camel", gc=False):
    """One object that a node has dealt with.

    Attributes:
        generation: its ``metadata.generation`` that is dealt with.
        instead: why the node does not do what it says, as a CamelCase word; empty where it does.
    """

    kind: _Label = ""
    name: _Name = ""
    namespace: _Label = ""
    generation: int = 0
    instead: _Label = ""


class NodeReport(ApiStruct, frozen=True, rename="camel", gc=False):
    """What one node applies of one feature. Most nodes apply the same."""

    alike: ClassVar[str] = "applied"

    metadata: ReportMeta = ReportMeta()
    feature: _Label = ""
    node: _Name = ""
    applied: Annotated[tuple[Applied, ...], Meta(max_length=MOST)] = ()


NODE_REPORT: Final = own_kind("NodeReport", "nodereports", NodeReport)
FEATURE_LABEL: Final = f"{OWN_GROUP}/feature"
"""On each report, so that a leader watches those of its own feature alone."""
