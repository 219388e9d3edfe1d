"""docs/guide/install.md, command by command, on the real API with a lab as its nodes."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import ControlPlane, control_plane
from tests.support.console import commands
from tests.support.lab import TestLab, lab

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guide" / "install.md"
NODES = """\
apiVersion: v1
kind: Node
metadata:
  name: guide-1
  labels: {cloud.google.com/metadata-proxy-ready: "true"}
  annotations: {lab.podgate.dev/cloud-metadata: gce}
spec: {podCIDRs: [10.22.1.0/24]}
status: {addresses: [{type: InternalIP, address: 172.20.0.11}]}
---
apiVersion: v1
kind: Node
metadata: {name: guide-2}
spec: {podCIDRs: [10.22.2.0/24]}
status: {addresses: [{type: InternalIP, address: 172.20.0.12}]}
"""


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """Have a control plane of its own: the page begins with a cluster that has nothing of podgate."""
    with control_plane(tmp_path / "plane") as started:
        yield started


@pytest.fixture
def joined(plane: ControlPlane) -> Iterator[TestLab]:
    with lab(NODES, name="guide", kubeconfig=plane.kubeconfig) as started:
        yield started


def test_every_command_does_what_the_page_says(plane: ControlPlane, joined: TestLab, tmp_path: Path) -> None:
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PODGATE_SOURCE"},
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "KUBECONFIG": str(plane.kubeconfig),
    }
    for command in commands(PAGE):
        if command.text.startswith("kubectl") and shutil.which("kubectl") is None:
            continue
        done = subprocess.run(
            ["bash", "-c", command.text],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=280,
            check=False,
        )
        place = f"{PAGE.name}:{command.line}: {command.text}"
        assert done.returncode == 0, f"{place}\n{done.stdout}"
        assert command.shown_by(done.stdout), f"{place}\nprints\n{done.stdout}"
    for node in ("node/guide-1", "node/guide-2"):
        assert "podgate" not in joined.execute(node, "nft", "list", "ruleset")
