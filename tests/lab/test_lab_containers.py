"""Containers of the lab with real processes: volumes, environment, rights, probes, restarts, order, the end."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.lab import CLI, NODE, TestLab, lab
from tests.support.poll import poll

pytestmark = [pytest.mark.kernel, pytest.mark.lab]

SLEEP = ["sleep", "infinity"]


@pytest.fixture(scope="module")
def running() -> Iterator[TestLab]:
    with lab(NODE) as started:
        yield started


def pod(name: str, *containers: dict[str, Any], **spec: Any) -> str:
    """Give a Pod's manifest; containers without a command sleep."""
    made = [
        {"name": f"c{number}", "image": "any", "command": SLEEP} | given
        for number, given in enumerate(containers or ({},))
    ]
    value = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"nodeName": "node-1", "terminationGracePeriodSeconds": 1, "containers": made, **spec},
    }
    return json.dumps(value)


def config(name: str, **data: str) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})


def secret(name: str, **data: str) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data})


def mount(volume: str, path: str, **more: Any) -> dict[str, Any]:
    return {"name": volume, "mountPath": path, **more}


def container(running: TestLab, name: str, index: int = 0) -> dict[str, Any]:
    """Give a container's status."""
    found: dict[str, Any] = running.get("Pod", name).get("status", {}).get("containerStatuses", [{}])[index]
    return found


# --- volumes ---


def test_a_config_map_is_files_that_change_with_it(running: TestLab) -> None:
    volume = {"name": "v", "configMap": {"name": "live"}}
    running.apply(
        config("live", one="1", two="2"), pod("reader", {"volumeMounts": [mount("v", "/etc/config")]}, volumes=[volume])
    )
    assert (
        running.shell("reader", "cd /etc/config && ls && cat one && readlink one ..data")
        == "one\ntwo\n1..data/one\n..000001\n"
    )
    running.apply(config("live", one="changed", three="3"), wait=False)
    poll(lambda: running.shell("reader", "cat /etc/config/one") == "changed")
    assert running.shell("reader", "ls /etc/config") == "one\nthree\n"
    assert running.run("exec", "reader", "--", "touch", "/etc/config/x", check=False).returncode == 1


def test_an_edit_reaches_the_file_without_a_command(running: TestLab) -> None:
    volume = {"name": "v", "configMap": {"name": "quick"}}
    running.apply(config("quick", key="0"), pod("quick", {"volumeMounts": [mount("v", "/config")]}, volumes=[volume]))
    path = running.state / "objects/configmaps/default/quick.json"
    value = json.loads(path.read_text())
    script = (
        "import time\n"
        "print('ready', flush=True)\n"
        "while (text := open('/config/key').read()) == '0': time.sleep(0.001)\n"
        "print(text, flush=True)"
    )
    words = [*CLI, "exec", "--name", running.name, "quick", "--", sys.executable, "-c", script]
    with subprocess.Popen(words, env=running.environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        value["data"]["key"] = "1"
        fresh = running.state / "incoming" / "edit"
        fresh.write_text(json.dumps(value))
        fresh.rename(path)
        assert process.stdout.readline() == "1\n"


def test_an_optional_config_map_appears_later(running: TestLab) -> None:
    items = [{"key": "config", "path": "deep/agent", "mode": 0o600}]
    volume = {"name": "v", "configMap": {"name": "later", "optional": True, "items": items}}
    running.apply(pod("optional", {"volumeMounts": [mount("v", "/config")]}, volumes=[volume]))
    assert running.shell("optional", "ls /config") == ""
    running.apply(config("later", config="here", other="not picked"), wait=False)
    poll(lambda: running.shell("optional", "cat /config/deep/agent", check=False) == "here")
    assert running.shell("optional", "stat -Lc %a /config/deep/agent; ls /config") == "600\ndeep\n"
    running.run("delete", "cm/later")
    poll(lambda: running.shell("optional", "ls /config") == "")


def test_a_pod_waits_for_a_config_map_that_it_needs(running: TestLab) -> None:
    volume = {"name": "v", "configMap": {"name": "needed"}}
    running.apply(pod("waits", {"volumeMounts": [mount("v", "/config")]}, volumes=[volume]), wait=False)
    poll(lambda: any("ConfigMap needed not found" in line for line in running.status()["waiting"]))
    running.apply(config("needed", key="x"))
    assert running.shell("waits", "cat /config/key") == "x"


def test_secret_downward_projected_and_empty_volumes(running: TestLab) -> None:
    volumes = [
        {"name": "s", "secret": {"secretName": "hidden", "defaultMode": 0o400}},
        {"name": "d", "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        {
            "name": "p",
            "projected": {
                "sources": [
                    {"secret": {"name": "hidden", "items": [{"key": "token", "path": "a/token"}]}},
                    {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
                    {"serviceAccountToken": {"path": "jwt", "audience": "me"}},
                ]
            },
        },
        {"name": "e", "emptyDir": {"medium": "Memory"}},
    ]
    writer = {
        "volumeMounts": [mount("e", "/share")],
        "command": ["sh", "-c", "echo hello > /share/x; exec sleep infinity"],
    }
    reader = {"volumeMounts": [mount(v, f"/v/{v}") for v in "sdpe"]}
    running.apply(secret("hidden", token="abc"), pod("volumes", reader, writer, volumes=volumes))
    assert running.shell("volumes", "cat /v/s/token; stat -Lc %a /v/s/token") == "abc400\n"
    assert running.shell("volumes", "cat /v/d/labels") == 'app="volumes"'
    assert running.shell("volumes", "cat /v/p/a/token /v/p/name; cut -d. -f3 /v/p/jwt") == "abcvolumes\n"
    poll(lambda: running.shell("volumes", "cat /v/e/x", check=False) == "hello\n")


def test_host_paths_are_the_nodes_own(running: TestLab) -> None:
    def volumes(kind: str) -> list[dict[str, Any]]:
        return [
            {"name": "lock", "hostPath": {"path": "/run/xtables.lock", "type": "FileOrCreate"}},
            {"name": "lib", "hostPath": {"path": "/var/lib/thing", "type": kind}},
        ]

    mounts = [mount("lock", "/run/xtables.lock"), mount("lib", "/var/lib/thing")]
    running.apply(pod("first", {"volumeMounts": mounts}, volumes=volumes("DirectoryOrCreate")))
    running.shell("first", "echo kept > /var/lib/thing/file")
    running.apply(pod("second", {"volumeMounts": mounts}, volumes=volumes("Directory")))
    assert (
        running.shell("second", "cat /var/lib/thing/file; stat -c %F /run/xtables.lock") == "kept\nregular empty file\n"
    )
    assert running.shell("node/node-1", "cat /var/lib/thing/file; ls /run/xtables.lock") == "kept\n/run/xtables.lock\n"
    running.apply(
        pod("third", volumes=[{"name": "x", "hostPath": {"path": "/var/lib/none", "type": "Directory"}}]), wait=False
    )
    poll(lambda: any("/var/lib/none is not a Directory" in line for line in running.status()["waiting"]))
    running.run("delete", "pod/third")


def test_sub_paths_and_mounts_inside_the_machines_folders(running: TestLab) -> None:
    volume = {"name": "v", "configMap": {"name": "sub"}}
    one = mount("v", "/usr/share/podgate-test/one", subPath="one")
    mounts = [one, mount("v", "/opt/sub", subPathExpr="$(WHO)")]
    spec = {"volumeMounts": mounts, "env": [{"name": "WHO", "value": "two"}]}
    running.apply(config("sub", one="1", two="2"), pod("sub", spec, volumes=[volume]))
    assert running.shell("sub", "cat /usr/share/podgate-test/one /opt/sub") == "12"


# --- environment ---


def test_the_environment_comes_from_the_manifest(running: TestLab) -> None:
    def of(path: str) -> dict[str, Any]:
        return {"fieldRef": {"fieldPath": path}}

    env = [
        {"name": "PLAIN", "value": "x"},
        {"name": "JOINED", "value": "$(PLAIN)-$(MISSING)-$$(PLAIN)"},
        {"name": "NODE_NAME", "valueFrom": of("spec.nodeName")},
        {"name": "POD_IP", "valueFrom": of("status.podIP")},
        {"name": "HOST_IP", "valueFrom": of("status.hostIP")},
        {"name": "FROM_MAP", "valueFrom": {"configMapKeyRef": {"name": "env", "key": "key"}}},
        {"name": "NONE", "valueFrom": {"secretKeyRef": {"name": "none", "key": "key", "optional": True}}},
        {"name": "LIMIT", "valueFrom": {"resourceFieldRef": {"resource": "requests.memory", "divisor": "1Mi"}}},
    ]
    spec = {
        "env": env,
        "envFrom": [{"configMapRef": {"name": "env"}, "prefix": "P_"}],
        "workingDir": "/srv",
        "resources": {"requests": {"memory": "64Mi"}},
        "command": ["sh", "-c", "pwd; env; echo $(PLAIN); exec sleep infinity"],
    }
    running.apply(config("env", key="mapped"), pod("env", spec))
    poll(lambda: running.logs("env").endswith("\nx\n"))
    lines = running.logs("env").splitlines()
    address = running.get("Pod", "env")["status"]["podIP"]
    assert lines[0] == "/srv"
    assert {
        "PLAIN=x", "JOINED=x-$(MISSING)-$(PLAIN)", "NODE_NAME=node-1", f"POD_IP={address}", "HOST_IP=10.140.15.217",
        "FROM_MAP=mapped", "P_key=mapped", "LIMIT=64", "HOSTNAME=env", "PODGATE_SOURCE=/run/podgate-lab/objects",
    } <= set(lines)  # fmt: skip
    assert not any(line.startswith("NONE=") for line in lines)


def test_a_pod_sees_the_labs_objects_and_cannot_change_them(running: TestLab) -> None:
    running.apply(pod("agent"))
    assert "node-1.json" in running.shell("agent", "ls $PODGATE_SOURCE/nodes/_")
    assert running.shell("agent", "ls -a $PODGATE_SOURCE | grep podgate-lab") == ".podgate-lab\n"
    assert running.run("exec", "agent", "--", "touch", "/run/podgate-lab/objects/x", check=False).returncode == 1


# --- rights ---


def capabilities(running: TestLab, name: str, index: int = 0) -> set[int]:
    bits = int(
        running.run("exec", "-c", f"c{index}", name, "--", "sh", "-c", "grep CapEff /proc/self/status").stdout.split()[
            1
        ],
        16,
    )
    return {number for number in range(64) if bits >> number & 1}


def test_rights_are_those_of_the_security_context(running: TestLab) -> None:
    contexts: list[dict[str, Any]] = [
        {},
        {"capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN", "NET_RAW"]}, "readOnlyRootFilesystem": True},
        {"runAsUser": 1000, "runAsGroup": 1001, "allowPrivilegeEscalation": False},
        {"privileged": True},
    ]
    running.apply(pod("rights", *({"securityContext": context} for context in contexts)))

    def shell(index: int, script: str) -> str:
        return running.run("exec", "-c", f"c{index}", "rights", "--", "sh", "-c", script, check=False).stdout

    assert 12 not in capabilities(running, "rights", 0)  # CAP_NET_ADMIN
    assert {0, 13} <= capabilities(running, "rights", 0)  # CAP_CHOWN, CAP_NET_RAW
    assert capabilities(running, "rights", 1) == {12, 13}
    assert capabilities(running, "rights", 2) == set()
    assert {12, 21} <= capabilities(running, "rights", 3)  # CAP_SYS_ADMIN
    assert shell(2, "id -u; id -g; grep NoNewPrivs /proc/self/status | cut -f2") == "1000\n1001\n1\n"
    assert shell(0, "touch /tmp/x $HOME/x && echo written") == "written\n"
    assert shell(1, "touch /tmp/x /x /etc/x /var/x || echo refused") == "refused\n"
    forward = "echo 1 > /proc/sys/net/ipv4/ip_forward && echo written || echo refused"
    assert shell(0, forward) == "refused\n"
    assert shell(3, forward) == "written\n"


def test_nothing_that_a_container_writes_reaches_the_machine(running: TestLab) -> None:
    running.apply(pod("writer", {"securityContext": {"privileged": True}}))
    script = "for d in / /etc /var /usr /opt /tmp /root; do touch $d/podgate-lab-was-here 2>/dev/null; done; true"
    running.shell("writer", script)
    assert [
        d for d in ("/", "/etc", "/var", "/usr", "/opt", "/tmp", "/root") if Path(d, "podgate-lab-was-here").exists()
    ] == []


def test_a_container_that_must_not_be_root_is_refused(running: TestLab) -> None:
    running.apply(pod("root", {"securityContext": {"runAsNonRoot": True}}), wait=False)
    poll(lambda: any("runAsNonRoot is set" in line for line in running.status()["waiting"]))
    running.run("delete", "pod/root")


# --- life ---


def test_init_containers_run_first_and_sidecars_stay(running: TestLab) -> None:
    share = {"volumeMounts": [mount("e", "/e")]}
    inits = [
        {"name": "one", "image": "any", "command": ["sh", "-c", "echo one >> /e/log"], **share},
        {"name": "side", "image": "any", "restartPolicy": "Always",
         "command": ["sh", "-c", "echo side >> /e/log; trap exit TERM; while :; do sleep 0.05; done"], **share},
        {"name": "two", "image": "any", "command": ["sh", "-c", "echo two >> /e/log"], **share},
    ]  # fmt: skip
    volume = {"name": "e", "emptyDir": {}}
    running.apply(pod("order", share, initContainers=inits, volumes=[volume]))
    # What comes after a sidecar waits until it has started, and not until it has said something.
    log = poll(lambda: "side" in (said := running.shell("order", "cat /e/log").splitlines()) and said)
    assert log
    assert log[0] == "one"
    assert set(log) == {"one", "side", "two"}
    assert log.index("one") < log.index("two")
    states = running.get("Pod", "order")["status"]["initContainerStatuses"]
    assert [next(iter(state["state"])) for state in states] == ["terminated", "running", "terminated"]


def test_a_container_that_ends_is_started_again(running: TestLab) -> None:
    running.apply(pod("crash", {"command": ["sh", "-c", "echo started; exit 3"]}), wait=False)
    poll(lambda: running.logs("crash").count("started") >= 3 if container(running, "crash") else False)
    status = poll(lambda: (found := container(running, "crash")).get("state", {}).get("waiting") and found)
    assert status["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert status["lastState"]["terminated"]["exitCode"] == 3
    running.run("delete", "pod/crash")


def test_a_pod_that_shall_not_restart_succeeds_or_fails(running: TestLab) -> None:
    running.apply(
        pod("well", {"command": ["true"]}, restartPolicy="Never"),
        pod("ill", {"command": ["false"]}, restartPolicy="Never"),
        wait=False,
    )
    poll(lambda: running.get("Pod", "well")["status"].get("phase") == "Succeeded")
    poll(lambda: running.get("Pod", "ill")["status"].get("phase") == "Failed")
    running.run("delete", "pod/well", "pod/ill")


LONG = {"timeoutSeconds": 30}
"""A busy machine is slow, which is no failure of the container."""


def test_liveness_restarts_and_readiness_is_reported(running: TestLab) -> None:
    live = {"exec": {"command": ["test", "!", "-e", "/tmp/ill"]}, "periodSeconds": 1, "failureThreshold": 1, **LONG}
    ready = {"tcpSocket": {"port": "web"}, "periodSeconds": 1, "failureThreshold": 1, **LONG}
    http = {"httpGet": {"path": "/etc/hostname", "port": 8080}, "periodSeconds": 1, **LONG}
    spec = {
        "command": ["python3", "-m", "http.server", "-d", "/", "8080"],
        "ports": [{"name": "web", "containerPort": 8080}],
        "livenessProbe": live, "readinessProbe": ready, "startupProbe": http,
    }  # fmt: skip
    running.apply(pod("probed", spec))
    assert container(running, "probed")["ready"]
    running.shell("probed", "touch /tmp/ill")
    poll(lambda: container(running, "probed")["restartCount"] == 1)
    poll(lambda: container(running, "probed")["ready"])


def test_a_pod_ends_gracefully_and_leaves_nothing(running: TestLab) -> None:
    script = "trap 'echo ending; sleep 0.2; exit 0' TERM; sleep 1000 & setsid sleep 1000 & while :; do sleep 0.05; done"
    running.apply(pod("ends", {"command": ["sh", "-c", script]}, terminationGracePeriodSeconds=60))
    poll(lambda: running.shell("node/node-1", "ps -eo args | grep -c '^sleep 1000'", check=False) == "2\n")
    running.run("delete", "pod/ends")
    assert running.shell("node/node-1", "ps -eo args | grep -c '^sleep 1000'", check=False) == "0\n"
    assert (running.state / "logs/default/ends/c0.log").read_text() == "ending\n"


def test_a_container_that_does_not_listen_is_killed_after_its_grace(running: TestLab) -> None:
    running.apply(pod("deaf", {"command": ["sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 0.05; done"]}))
    poll(lambda: running.logs("deaf") == "deaf\n")
    before = time.monotonic()
    running.run("delete", "pod/deaf")
    assert time.monotonic() - before > 0.9  # its grace is a second, and it ends although it does not listen


@pytest.mark.parametrize(
    ("hook", "said"),
    [
        ({"sleep": {"seconds": 1}}, "works\nends\n"),
        ({"exec": {"command": ["sh", "-c", "echo asked >> /tmp/note; sleep 0.3"]}}, "works\nasked\nends\n"),
        ({"exec": {"command": ["false"]}}, "works\nends\n"),
    ],
)
def test_a_container_is_asked_to_end_after_its_pre_stop_hook(running: TestLab, hook: dict[str, Any], said: str) -> None:
    script = "trap 'cat /tmp/note; echo ends; exit 0' TERM; touch /tmp/note; echo works; while :; do sleep 0.05; done"
    name = f"hooked-{next(iter(hook))}-{len(said)}"
    spec = {"command": ["sh", "-c", script], "lifecycle": {"preStop": hook}}
    running.apply(pod(name, spec, terminationGracePeriodSeconds=60))
    poll(lambda: running.logs(name) == "works\n")
    before = time.monotonic()
    running.run("delete", f"pod/{name}")
    assert (running.state / f"logs/default/{name}/c0.log").read_text() == said
    assert time.monotonic() - before >= hook.get("sleep", {}).get("seconds", 0)
    failed = [text for text in running.status()["warnings"] if f"{name}: the preStop hook" in text]
    assert len(failed) == (hook == {"exec": {"command": ["false"]}})


def test_fields_that_are_not_honoured_are_named(running: TestLab) -> None:
    running.apply(
        pod(
            "odd",
            {"lifecycle": {"postStart": {"exec": {"command": ["true"]}}}, "resources": {"limits": {"memory": "1Gi"}}},
        )
    )
    warnings = running.status()["warnings"]
    assert "Pod/default/odd: spec.containers[0].lifecycle.postStart is not honoured by the lab" in warnings
    assert "Pod/default/odd: spec.containers[0].resources.limits is not enforced by the lab" in warnings
