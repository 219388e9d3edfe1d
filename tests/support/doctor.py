"""A cluster for ``podgate doctor``: a fake API server with podgate's kinds, and the command on it.

Here: kinds, reports, the call. Not here: what is in the cluster, which each test says.
Invariant: the command asks what it asks everywhere.
"""

from pathlib import Path

from podgate.admin.doctor.cli import main
from podgate.joints import Answered
from tests.support.fake_apiserver import FakeApiServer
from tests.support.fake_objects import Resource

FEATURES = {name: f"podgate.features.{name}.feature" for name in ("masquerade", "metadata")}
DEPLOY = Path(__file__).parents[2] / "deploy"
OWN = (
    Resource("apps", "v1", "DaemonSet", "daemonsets", True),
    Resource("podgate.dev", "v1alpha1", "MasqueradePolicy", "masqueradepolicies", False),
    Resource("podgate.dev", "v1alpha1", "MetadataPolicy", "metadatapolicies", False),
    Resource("podgate.dev", "v1alpha1", "NodeReport", "nodereports", False),
)
MOUNT = {"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}


def doctor(*words: str) -> Answered:
    """Examine masquerade and metadata."""
    return main(words, {}, FEATURES, ("metadata",), print)


def report(server: FakeApiServer, feature: str, node: str, name: str = "") -> None:
    """Put a report; by the name that its agent gives it unless another is given."""
    metadata = {"name": name or f"{feature}.{node}", "labels": {"podgate.dev/feature": feature}}
    server.put("nodereports", {"metadata": metadata, "feature": feature, "node": node})
