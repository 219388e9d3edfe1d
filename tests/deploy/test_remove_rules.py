"""deploy/remove-rules: it runs "clean" of each feature that leaves rules, with no more than that needs, and waits."""

from pathlib import Path
from typing import Any

import yaml

from podgate.admin.doctor.agents import daemonset_of
from podgate.lab.validity import fault_of

PATH = Path(__file__).parents[2] / "deploy" / "remove-rules" / "daemonset.yaml"


def manifest() -> dict[str, Any]:
    (only,) = yaml.safe_load_all(PATH.read_text())
    found: dict[str, Any] = only
    return found


def test_it_cleans_and_is_no_agent() -> None:
    spec = manifest()["spec"]["template"]["spec"]
    assert [each["args"] for each in spec["initContainers"]] == [["masquerade", "clean"], ["metadata", "clean"]]
    assert spec["hostNetwork"] is True
    assert fault_of(manifest()) is None
    assert daemonset_of(manifest(), ["masquerade", "metadata"]) is None


def test_it_may_change_rules_and_nothing_else() -> None:
    spec = manifest()["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    for each in (*spec["initContainers"], *spec["containers"]):
        context = each["securityContext"]
        assert (context["privileged"], context["allowPrivilegeEscalation"]) == (False, False)
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"]["drop"] == ["ALL"]
        assert set(context["capabilities"].get("add", ())) <= {"NET_ADMIN", "NET_RAW"}
