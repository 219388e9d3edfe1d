"""deploy/metadata/startup-taint: one taint by one name everywhere, and rights on no node.

Here: the manifests' structure and values. Not here: applying them (tests/cluster/test_metadata_untaint.py).
Invariant: what frees nodes runs once, and nothing of the DaemonSets changes for it.
"""

from typing import Any

import yaml

from podgate.features.metadata.untaint.settings import UntaintSettings
from podgate.lab.fields import unhonoured
from podgate.lab.validity import fault_of
from tests.deploy.test_metadata import FOLDER, daemonset, pod

OURS = FOLDER / "startup-taint"
KEY = UntaintSettings().taint


def documents() -> list[Any]:
    return [each for path in sorted(OURS.glob("*.yaml")) for each in yaml.safe_load_all(path.read_text())]


def only(kind: str) -> Any:
    (found,) = [each for each in documents() if each["kind"] == kind]
    return found


def test_it_runs_once_where_no_other_pod_may_yet_and_has_no_right_on_its_node() -> None:
    spec = only("Deployment")["spec"]
    assert spec["replicas"] == 1
    assert pod(only("Deployment"))["tolerations"] == [{"key": KEY, "operator": "Exists"}]
    (container,) = pod(only("Deployment"))["containers"]
    assert container["args"][:2] == ["metadata", "untaint"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["runAsNonRoot"]
    assert "hostNetwork" not in pod(only("Deployment"))


def test_admission_names_the_same_taint_and_account() -> None:
    policy = only("ValidatingAdmissionPolicy")["spec"]
    (subject,) = only("ClusterRoleBinding")["subjects"]
    (condition,) = policy["matchConditions"]
    assert f'"system:serviceaccount:{subject["namespace"]}:{subject["name"]}"' in condition["expression"]
    assert f't.key != "{KEY}"' in policy["validations"][0]["expression"]
    assert only("ValidatingAdmissionPolicyBinding")["spec"]["policyName"] == "podgate-metadata-untaint"


def test_it_finds_the_pods_of_both_daemonsets() -> None:
    key, _, value = UntaintSettings().selector.partition("=")
    for path in (FOLDER / "daemonset.yaml", FOLDER / "per-pod" / "daemonset.yaml"):
        found = daemonset(path)
        assert found["metadata"]["namespace"] == UntaintSettings().namespace
        assert found["spec"]["template"]["metadata"]["labels"][key] == value


def test_an_api_server_takes_it_and_the_lab_honours_every_field() -> None:
    assert [fault for each in documents() if (fault := fault_of(each)) is not None] == []
    assert unhonoured(only("Deployment")["spec"]["template"], ("cpu", "memory")) == ()
