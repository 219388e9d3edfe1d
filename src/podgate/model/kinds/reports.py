"""NodeReport of podgate.dev: which objects of a feature one node applies, as that node's agent says.

Here: the struct, how a report is called, its Kind value. Not here: who writes and who counts them
(targets/kubernetes/reports.py).
Invariant: one object per feature and node, written by that node's agent alone, so that no two ever contend for one.

Manifest: nodereports.yaml in the folder of each feature that reports. Its bounds are the same, so that what is longer
is refused by the API, and by us where the API does not know them: each node may write reports, and one process reads
all of them. Where no admission policy ties a node to its own report, it may write any number under any name.
"""

import hashlib
from typing import Annotated, ClassVar, Final

from msgspec import Meta

from podgate.model.kinds.meta import OWN_GROUP, ApiStruct, Bounds, own_kind
from podgate.model.snapshot import Kind

MOST: Final = 1000
"""Objects that one report names."""

_NAME_BYTES: Final = 253

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
    # Room for some 30,000 honest reports; of the longest that the API takes, a page is 16 MB.
    bounds: ClassVar[Bounds] = Bounds(page=16, size=8 << 20, faults=20)

    metadata: ReportMeta = ReportMeta()
    feature: _Label = ""
    node: _Name = ""
    applied: Annotated[tuple[Applied, ...], Meta(max_length=MOST)] = ()

    def misfit(self) -> str:
        """Say why it is no node's report; empty when it is called as that of its feature and node must be."""
        if self.metadata.name == report_name(self.feature, self.node):
            return ""
        return "no agent calls its report so, and it is not counted: delete it, and find out who made it"


class NodeName(ApiStruct, frozen=True, rename="camel", gc=False):
    """A Node, of which its name alone is needed: only nodes that there are report."""

    metadata: ReportMeta = ReportMeta()


def report_name(feature: str, node: str) -> str:
    """Name a node's report; a name that would be too long ends in a digest."""
    name = f"{feature}.{node}"
    if len(name) <= _NAME_BYTES:
        return name
    return f"{name[: _NAME_BYTES - 17].rstrip('-.')}.{hashlib.sha256(name.encode()).hexdigest()[:16]}"


NODE_REPORT: Final = own_kind("NodeReport", "nodereports", NodeReport)
NODE_NAME: Final = Kind("", "v1", "NodeName", "nodes", False, NodeName)
"""All Nodes, under a name of its own, beside the one Node that a feature watches."""
FEATURE_LABEL: Final = f"{OWN_GROUP}/feature"
"""On each report, so that a leader watches those of its own feature alone."""
