"""Kubeconfigs for tests: of a server that asks nobody who they are, and of a control plane behind a proxy.

Here: writing the files. Not here: the servers (fake_apiserver.py, cluster.py), logins (each test that needs one).
Invariant: nothing in them is secret.
"""

import json
from pathlib import Path

from tests.support.chaos_proxy import ChaosProxy
from tests.support.cluster import ControlPlane


def kubeconfig(folder: Path, server: str) -> str:
    """Write one for a server, with the context ``c``, and give its path."""
    path = folder / "kubeconfig"
    context = {"name": "c", "context": {"cluster": "c"}}
    cluster = {"name": "c", "cluster": {"server": server}}
    path.write_text(json.dumps({"current-context": "c", "contexts": [context], "clusters": [cluster]}))
    return str(path)


def through(proxy: ChaosProxy, plane: ControlPlane, folder: Path) -> Path:
    """Write a control plane's own, to be reached through a proxy, which has the login; give its path."""
    config = json.loads(plane.kubeconfig.read_text())
    config["clusters"][0]["cluster"], config["users"][0]["user"] = {"server": proxy.url}, {}
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    return path
