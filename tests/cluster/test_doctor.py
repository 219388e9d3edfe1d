"""``podgate doctor`` against the real API server: as its administrator, and as somebody who may do nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.cluster import ControlPlane


def doctor(kubeconfig: Path, *words: str) -> tuple[int, dict[str, tuple[str, str]]]:
    """Examine; give the exit code, and the last verdict and what was seen by name."""
    command = [sys.executable, "-m", "podgate.cli", "doctor", "--output", "json", "--kubeconfig", str(kubeconfig)]
    environ = {name: value for name, value in os.environ.items() if name != "PODGATE_SOURCE"}
    done = subprocess.run([*command, *words], capture_output=True, text=True, env=environ, timeout=280, check=False)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return done.returncode, {each["name"]: (each["verdict"], each["seen"]) for each in found}


def test_an_administrator_sees_all_of_it(plane: ControlPlane) -> None:
    code, found = doctor(plane.kubeconfig, "--feature", "masquerade")
    assert (code, {name: verdict for name, (verdict, _) in found.items() if name != "kinds"}) == (
        0,
        {"API": "ok", "masquerade": "off", "masquerade: rights": "ok", "masquerade here": "ok"},
    ), found
    assert found["API"][1] == f"{plane.server} answers; Kubernetes v1.36.3"
    assert "Node" in found["masquerade here"][1]


def test_who_may_not_sees_what_is_missing(plane: ControlPlane) -> None:
    code, found = doctor(plane.login("podgate-stranger"), "--feature", "masquerade")
    assert (code, found["API"][0], found["cluster"][0]) == (1, "ok", "unknown")
    verdict, seen = found["masquerade: rights"]
    assert verdict == "bad"
    assert all(right in seen for right in ("your login may not", "list pods", "create events.events.k8s.io"))
