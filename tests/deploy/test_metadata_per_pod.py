"""deploy/metadata/per-pod: the usual DaemonSet with a second container, and every right and token where it is used.

Here: the manifests' structure and values. Not here: applying them (tests/lab/test_lab_metadata_per_pod.py and
tests/cluster/test_metadata.py).
Invariant: the proxy's container is the usual one but for where Pods and policies come from.
"""

from typing import Any

import yaml

from podgate.features.metadata.watcher.feature import FEATURE
from podgate.features.metadata.watcher.settings import WatchSettings
from podgate.lab.fields import unhonoured
from podgate.lab.validity import fault_of
from tests.deploy.test_metadata import FOLDER, daemonset, documents, pod

PER_POD = FOLDER / "per-pod"


def only(name: str) -> Any:
    (found,) = yaml.safe_load_all((PER_POD / name).read_text())
    return found


def parts() -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Give the Pod without its containers, and these."""
    spec = dict(pod(daemonset(PER_POD / "daemonset.yaml")))
    proxy, watch = spec.pop("containers")
    return spec, proxy, watch


def test_it_takes_the_place_of_the_usual_daemonset_and_differs_in_nothing_else() -> None:
    usual, ours = daemonset(), daemonset(PER_POD / "daemonset.yaml")
    spec, proxy, _ = parts()
    (container,) = pod(usual)["containers"]
    assert proxy.pop("volumeMounts") == [{"name": "between", "mountPath": "/run/podgate", "readOnly": True}]
    assert proxy.pop("args") == [*container.pop("args"), "--watch-socket=/run/podgate/watch.sock"]
    room = {"memory": "32Mi", "cpu": "30m"}
    assert proxy.pop("resources") == {"requests": room, "limits": room}
    del container["resources"]
    assert proxy == container
    assert spec.pop("securityContext") == {"fsGroup": 65532}
    assert {volume["name"] for volume in spec.pop("volumes")} == {"between", "api"}
    usual["spec"]["template"]["spec"].pop("containers")
    ours["spec"]["template"]["spec"] = spec
    assert ours == usual


def test_the_second_container_has_no_right_on_the_node_and_alone_has_the_token() -> None:
    spec, proxy, watch = parts()
    security = watch["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert (security["runAsNonRoot"], security["runAsUser"], security["runAsGroup"]) == (True, 65532, 65532)
    assert not security["allowPrivilegeEscalation"]
    assert security["readOnlyRootFilesystem"]
    assert not spec["automountServiceAccountToken"]
    mounts = {mount["name"]: mount["mountPath"] for mount in watch["volumeMounts"]}
    assert mounts == {"between": "/run/podgate", "api": "/var/run/secrets/kubernetes.io/serviceaccount"}
    assert "api" not in {mount["name"] for mount in proxy["volumeMounts"]}
    assert watch["resources"] == {"requests": {"memory": "64Mi", "cpu": "20m"}, "limits": {"memory": "64Mi"}}
    assert watch["args"][:3] == ["metadata", "watch", "--socket=/run/podgate/watch.sock"]


def test_the_role_holds_exactly_what_is_watched() -> None:
    rules = only("clusterrole.yaml")["rules"]
    granted = {
        (group, resource): rule["verbs"]
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    watches = FEATURE.watches(WatchSettings(), "node-1")
    watched = {(watch.kind.group, watch.kind.plural): ["list", "watch"] for watch in watches}
    # Verbs of the others: tests/cluster/test_rights.py.
    others = {resource for (_, resource) in granted.keys() - watched.keys()}
    assert others == {"nodereports", "metadatapolicies/status", "events"}
    assert watched.items() <= granted.items()
    binding = only("clusterrolebinding.yaml")
    assert binding["roleRef"]["name"] == only("clusterrole.yaml")["metadata"]["name"]
    account = only("serviceaccount.yaml")["metadata"]
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}
    ]


def test_an_api_server_takes_it_and_the_lab_honours_every_field() -> None:
    for path in sorted(PER_POD.glob("*.yaml")):
        for document in documents(path.read_text()):
            assert fault_of(document) is None
    assert unhonoured(daemonset(PER_POD / "daemonset.yaml")["spec"]["template"], ("cpu", "memory")) == ()
