"""What should run: from objects to topology, workloads, faults and warnings."""

from typing import Any

import msgspec
import pytest

from podgate.lab.fields import HARMLESS, unhonoured
from podgate.lab.images import ENTRIES, entry_script, image_name, with_echo_probe, words
from podgate.lab.pods import Wanted, failures_after, node_addresses, restart_delay, restarts, wanted
from podgate.lab.podspec import Container, EnvVar, PodSpec, decode_pod
from podgate.lab.podstatus import ContainerState, host_status, phase, pod_status, settled
from podgate.model.frozen import ObjectRef


def node(name: str = "node-1", address: str = "10.140.15.217", **annotations: str) -> dict[str, Any]:
    return {
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {f"lab.podgate.dev/{k}".replace("_", "-"): v for k, v in annotations.items()},
        },
        "spec": {"podCIDRs": ["10.16.1.0/24"]},
        "status": {"addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}]},
    }


def pod(
    name: str = "web", ip: str | None = "10.16.1.6", *, status: dict[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-of-{name}"},
        "spec": {"nodeName": "node-1", "containers": [{"name": "c", "image": "x", "command": ["true"]}], **spec},
        "status": ({"podIPs": [{"ip": ip}]} if ip else {}) | (status or {}),
    }


def host(name: str = "partner", **spec: Any) -> dict[str, Any]:
    return {"kind": "Host", "metadata": {"name": name}, "spec": {"addresses": ["10.70.0.2/24"], **spec}}


def of(*objects: dict[str, Any]) -> Wanted:
    return wanted({ObjectRef(o["kind"], o["metadata"]["name"], o["metadata"].get("namespace", "")): o for o in objects})


def running(found: Wanted) -> set[str]:
    return {str(workload.ref) for workload in found.workloads.values()}


def test_a_pod_runs_once_it_has_a_node_and_an_address() -> None:
    assert running(of(node(), pod())) == {"Pod/default/web"}
    assert running(of(pod())) == set()
    assert running(of(node(), pod(ip=None))) == set()
    assert running(of(node(), pod(nodeName="elsewhere"))) == set()


@pytest.mark.parametrize("done", ["Succeeded", "Failed"])
def test_a_pod_that_finished_does_not_run_again(done: str) -> None:
    assert running(of(node(), pod(status={"phase": done}))) == set()


def test_a_pod_that_is_deleted_is_not_wanted() -> None:
    leaving = pod()
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert running(of(node(), leaving)) == set()


def test_a_pod_in_the_hosts_network_lives_in_its_nodes_namespace() -> None:
    found = of(node(), pod(ip=None, hostNetwork=True))
    (workload,) = found.workloads.values()
    assert (workload.sandbox, workload.hostname, found.topology.pods) == ("node/node-1", "node-1", ())


def test_a_host_is_a_workload_of_one_container() -> None:
    found = of(host(gateway="10.70.0.1", routes=[{"to": "10.9.0.0/16", "via": "10.70.0.9"}], args=["--http", "8080"]))
    (net,), (workload,) = found.topology.hosts, found.workloads.values()
    assert [str(address) for address in (*net.addresses, *net.gateways)] == ["10.70.0.2", "10.70.0.1"]
    assert [(str(to), str(via)) for to, via in net.routes] == [("10.9.0.0/16", "10.70.0.9")]
    assert (workload.sandbox, workload.hostname) == ("host/partner", "partner")
    (container,) = workload.pod.spec.containers
    assert words(container, "/py") == ("/py", "-m", "podgate.lab.peers.echo", "--http", "8080")


@pytest.mark.parametrize(
    ("annotations", "addresses"),
    [
        ({}, ["10.140.15.217/24"]),
        ({"prefix_length": "20"}, ["10.140.15.217/20"]),
        ({"prefix_length": "20,56", "secondary_addresses": "fd00::9"}, ["10.140.15.217/20", "fd00::9/56"]),
        ({"secondary_addresses": "10.140.15.99, 10.2.0.1/16"}, ["10.140.15.217/24", "10.140.15.99/24", "10.2.0.1/16"]),
    ],
)
def test_a_nodes_addresses_have_prefix_lengths(annotations: dict[str, str], addresses: list[str]) -> None:
    assert [str(address) for address in node_addresses(node(**annotations))] == addresses


@pytest.mark.parametrize(
    ("objects", "fault"),
    [
        ([node(prefix_length="x")], "Node/node-1: invalid literal for int() with base 10: 'x'"),
        (
            [node(), pod(ip="10.140.15.217")],
            "Pod/default/web: 10.140.15.217 is the address of Node/node-1 already; choose another one",
        ),
        (
            [node(), pod(terminationGracePeriodSeconds="soon")],
            "Pod/default/web: Expected `int`, got `str` - at `$.spec.terminationGracePeriodSeconds`",
        ),
        ([host(), host("other")], "Host/partner: 10.70.0.2 is the address of Host/other already; choose another one"),
    ],
)
def test_what_makes_no_sense_is_a_fault_and_stops_nothing_else(objects: list[dict[str, Any]], fault: str) -> None:
    found = of(*objects, node("node-9", "10.140.15.9"), pod("fine", "10.16.1.9", nodeName="node-9"))
    assert found.faults == (fault,)
    assert "Pod/default/fine" in running(found)


# --- fields that are not honoured ---


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"priorityClassName": "x", "tolerations": [{"operator": "Exists"}], "dnsPolicy": "Default"}, ()),
        ({"hostIPC": False}, ()),
        ({"hostIPC": True}, ("spec.hostIPC is not honoured by the lab",)),
        (
            {"containers": [{"name": "a", "lifecycle": {"postStart": {}}}]},
            ("spec.containers[0].lifecycle.postStart is not honoured by the lab",),
        ),
        (
            {"containers": [{"name": "a", "resources": {"limits": {"cpu": 1}, "requests": {"cpu": 1}}}]},
            ("spec.containers[0].resources.limits is not enforced by the lab",),
        ),
        ({"volumes": [{"name": "v", "csi": {}}]}, ("spec.volumes[0].csi is not honoured by the lab",)),
        (
            {"containers": [{"name": "a", "livenessProbe": {"grpc": {"port": 1}}}]},
            ("spec.containers[0].livenessProbe.grpc is not honoured by the lab",),
        ),
    ],
)
def test_fields_are_honoured_harmless_or_named(spec: dict[str, Any], said: tuple[str, ...]) -> None:
    assert unhonoured({"spec": spec}) == said


def test_harmless_fields_are_no_honoured_ones() -> None:
    assert not HARMLESS & {field.encode_name for field in msgspec.structs.fields(PodSpec)}


# --- images ---


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("podgate", "podgate"),
        ("registry:5000/team/podgate:0.1.0", "podgate"),
        ("registry.k8s.io/networking/ip-masq-agent:v2.8.0@sha256:00", "ip-masq-agent"),
        ("busybox", "busybox"),
    ],
)
def test_the_last_segment_of_an_image_decides(image: str, name: str) -> None:
    assert image_name(image) == name


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        (
            Container("c", "podgate:1", args=("masquerade", "run")),
            ("/run/podgate-lab/bin/podgate", "masquerade", "run"),
        ),
        (Container("c", "x/ip-masq-agent", args=("--v=2",)), ("/run/podgate-lab/bin/ip-masq-agent", "--v=2")),
        (Container("c", "kube-proxy", ("/usr/local/bin/kube-proxy", "-x")), ("/run/podgate-lab/bin/kube-proxy", "-x")),
        (Container("c", "podgate", ("sh", "-c", "x")), ("sh", "-c", "x")),
        (Container("c", "busybox", ("sleep",), ("5",)), ("sleep", "5")),
        (Container("c", "nginx"), ("/py", "-m", "podgate.lab.peers.echo")),
    ],
)
def test_words_follow_image_command_and_args(container: Container, expected: tuple[str, ...]) -> None:
    assert words(container, "/py") == expected


def test_each_entry_is_a_program_that_calls_its_main() -> None:
    script = entry_script("/py", "/src", ENTRIES["podgate"])
    assert script.startswith("#!/py\n")
    assert "sys.path.insert(0, '/src')" in script
    assert "from podgate.cli import main" in script


@pytest.mark.parametrize(
    ("container", "port"),
    [
        (Container("c", "echo"), 80),
        (Container("c", "echo", args=("--http", "8080,8081")), 8080),
        (Container("c", "echo", args=("--http=81",)), 81),
        (Container("c", "echo", env=(EnvVar("ECHO_HTTP", "82"),)), 82),
        (Container("c", "echo", args=("--http", "off")), None),
        (Container("c", "busybox", ("sleep",)), None),
    ],
)
def test_an_echo_server_is_ready_when_it_answers(container: Container, port: int | None) -> None:
    probe = with_echo_probe(container).readiness_probe
    assert (probe.tcp_socket.port if probe and probe.tcp_socket else None) == port


# --- restarts and status ---


@pytest.mark.parametrize(
    ("policy", "code", "again"),
    [("Always", 0, True), ("Always", 1, True), ("OnFailure", 0, False), ("OnFailure", 1, True), ("Never", 1, False)],
)
def test_the_restart_policy_decides(policy: str, code: int, again: bool) -> None:
    assert restarts(policy, code) is again


def test_delays_double_up_to_a_limit_and_a_long_run_is_forgiven() -> None:
    assert [restart_delay(n) for n in (1, 2, 3, 20)] == [0.25, 0.5, 1.0, 10.0]
    assert failures_after(5, 1.0) == 6
    assert failures_after(5, 60.0) == 1


def state(state: Any = "running", **more: Any) -> ContainerState:
    return ContainerState("c", "image", state, **more)


@pytest.mark.parametrize(
    ("inits", "mains", "expected"),
    [
        ([], [state("waiting")], "Pending"),
        ([state("running")], [state("waiting")], "Pending"),
        ([], [state()], "Running"),
        ([], [state("waiting", restarts=1)], "Running"),
        ([], [state("terminated", for_good=True, exit_code=0)], "Succeeded"),
        (
            [],
            [state("terminated", for_good=True, exit_code=0), state("terminated", for_good=True, exit_code=2)],
            "Failed",
        ),
        ([], [state("terminated", for_good=True, exit_code=0), state()], "Running"),
        ([state("terminated", for_good=True, exit_code=1)], [state("waiting")], "Failed"),
    ],
)
def test_the_phase_follows_the_containers(
    inits: list[ContainerState], mains: list[ContainerState], expected: str
) -> None:
    assert phase(inits, mains) == expected


def test_a_status_is_written_as_a_kubelet_does() -> None:
    (workload,) = of(node(), pod()).workloads.values()
    crashed = state("waiting", reason="CrashLoopBackOff", exit_code=3, restarts=2)
    status = pod_status(workload, [], [crashed], "2026-01-01T00:00:00Z", "2026-01-01T00:00:09Z")
    assert status["hostIP"] == "10.140.15.217"
    (container,) = status["containerStatuses"]
    assert container["state"] == {"waiting": {"reason": "CrashLoopBackOff"}}
    assert container["lastState"] == {"terminated": {"exitCode": 3}}
    assert {c["type"]: c["status"] for c in status["conditions"]} == {
        "Initialized": "True", "ContainersReady": "False", "Ready": "False",
    }  # fmt: skip
    assert host_status([state(ready=True)], "now")["conditions"][0]["status"] == "True"


def test_a_condition_keeps_its_time_until_it_changes() -> None:
    def conditions(status: str, time: str) -> dict[str, Any]:
        return {"conditions": [{"type": "Ready", "status": status, "lastTransitionTime": time}]}

    assert settled(conditions("True", "later"), conditions("True", "early")) == conditions("True", "early")
    assert settled(conditions("False", "later"), conditions("True", "early")) == conditions("False", "later")


def test_null_fields_are_absent_ones() -> None:
    assert decode_pod({"metadata": {"name": "x"}, "spec": {"containers": [], "volumes": None}}).spec.volumes is None
