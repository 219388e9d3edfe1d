"""A cluster for ``podgate doctor``: a fake API server with podgate's kinds, and the command on it.

Here: kinds, reports, a kubeconfig, the call. Not here: what is in the cluster, which each test says.
Invariant: the command asks what it asks everywhere.
"""

import json
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


def kubeconfig(tmp_path: Path, server: str) -> str:
    """Write one for a server, and give its path."""
    path = tmp_path / "kubeconfig"
    context = {"name": "c", "context": {"cluster": "c"}}
    cluster = {"name": "c", "cluster": {"server": server}}
    path.write_text(json.dumps({"current-context": "c", "contexts": [context], "clusters": [cluster]}))
    return str(path)
