"""kubectl takes the folders of deploy/ as they are; skipped where there is no kubectl, which podgate does not need."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.cluster import ControlPlane
from tests.support.rights import DEPLOY

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl here")

FOLDERS = sorted({path.parent for path in DEPLOY.rglob("*.yaml")})
MASQUERADE = str(DEPLOY / "masquerade")
MADE = ("configmap/ip-masq-agent", "daemonset.apps/ip-masq-agent", "serviceaccount/ip-masq-agent")


def kubectl(plane: ControlPlane, home: Path, *words: str) -> str:
    """Run it and give what it printed."""
    environ = {**os.environ, "KUBECONFIG": str(plane.kubeconfig), "HOME": str(home)}
    done = subprocess.run(["kubectl", *words], env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(DEPLOY)))
def test_a_folder_would_be_applied(plane: ControlPlane, tmp_path: Path, folder: Path) -> None:
    said = kubectl(plane, tmp_path, "apply", "--dry-run=server", "-f", str(folder))
    assert said
    assert all(line.endswith(" (server dry run)") for line in said.splitlines())


def test_masquerade_is_applied_changed_by_nobody_and_removed(plane: ControlPlane, tmp_path: Path) -> None:
    said = kubectl(plane, tmp_path, "apply", "-f", MASQUERADE)
    try:
        assert sorted(line.split()[0] for line in said.splitlines()) == list(MADE)
        again = kubectl(plane, tmp_path, "apply", "-f", MASQUERADE)
        assert sorted(again.splitlines()) == [f"{name} unchanged" for name in MADE]
    finally:
        removed = kubectl(plane, tmp_path, "delete", "--ignore-not-found", "-f", MASQUERADE)
    assert len(removed.splitlines()) == len(MADE)
