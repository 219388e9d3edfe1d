"""etcd of a control plane, asked by its own JSON gateway (etcd.io, "gRPC gateway"), and its data as files.

Here: forgetting its history, keeping what it holds, having that again. Not here: starting and stopping (cluster.py).
Invariant: where etcd forgot nothing, or does not come back, the test fails here.
"""

import base64
import json
import shutil
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from tests.support.cluster import PARTS, ControlPlane


def etcd(plane: ControlPlane, what: str, **fields: Any) -> str:
    """Ask etcd, and give its answer, also a refusal."""
    connection = HTTPConnection("127.0.0.1", plane.ports.etcd, timeout=60)
    try:
        connection.request("POST", f"/v3/{what}", json.dumps(fields), {"Content-Type": "application/json"})
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def compact(plane: ControlPlane) -> None:
    """Have etcd forget all but the newest of everything, and see that it did.

    An API server compacts every five minutes by itself.
    """
    now = int(json.loads(etcd(plane, "maintenance/status"))["header"]["revision"])
    etcd(plane, "kv/compaction", revision=now, physical=True)
    key = base64.b64encode(b"/registry/namespaces/default").decode()
    assert "has been compacted" in etcd(plane, "kv/range", key=key, revision=now - 1)


def keep(plane: ControlPlane, where: Path) -> None:
    """Copy what etcd holds, while it stands still."""
    plane.stop_part("etcd")
    shutil.copytree(plane.folder / "etcd", where)
    plane.start_part("etcd")


def restore(plane: ControlPlane, where: Path) -> None:
    """Have etcd hold what was kept, versions included: whoever watches may be ahead of it."""
    for part in reversed(PARTS):
        plane.stop_part(part)
    shutil.rmtree(plane.folder / "etcd")
    shutil.copytree(where, plane.folder / "etcd")
    for part in PARTS:
        plane.start_part(part)
