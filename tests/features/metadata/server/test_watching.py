"""``podgate metadata run`` with rules for single Pods, as two processes. Pods are addresses on loopback."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.netns import NetNamespace, netns
from tests.support.poll import poll

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

WEB, DB, STRANGER = "127.0.0.5", "127.0.0.6", "127.0.0.7"
KUBE_ENV = "/computeMetadata/v1/instance/attributes/kube-env"
TOKEN = "/computeMetadata/v1/instance/service-accounts/default/token"
CLOUD = ("podgate.lab.peers.clouds", "gce", "--listen", "127.0.0.1:80")
RUN = (
    *("podgate.cli", "metadata", "run", "--addr", "127.0.0.1:988", "--no-firewall", "--node-name", "node-1"),
    *("--upstream", "http://127.0.0.1:80"),
)
LAST_GOOD = "what was in force before it stays"


def pod(name: str, address: str, node: str = "node-1") -> str:
    return f"""\
apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {{app: {name}}}}}
spec: {{nodeName: {node}}}
status: {{podIP: {address}}}
"""


def policy(app: str, path: str = KUBE_ENV) -> str:
    return f"""\
apiVersion: podgate.dev/v1alpha1
kind: MetadataPolicy
metadata: {{name: p}}
spec:
  subjects: {{podSelector: {{matchLabels: {{app: {app}}}}}}}
  rules: [{{paths: ["{path}"], verdict: allow}}]
"""


class Node:
    """A namespace with a proxy and a cloud."""

    def __init__(self, namespace: NetNamespace, log: Path) -> None:
        self.namespace = namespace
        self.log = log
        self.proxy = 0

    def ask(self, source: str, path: str, port: int = 988) -> tuple[int, str]:
        """Give status and answer; 0 while nobody listens."""

        def inside() -> tuple[int, str]:
            head = f"GET {path} HTTP/1.1\r\nHost: metadata\r\nMetadata-Flavor: Google\r\nConnection: close\r\n\r\n"
            try:
                with socket.create_connection(("127.0.0.1", port), 30, source_address=(source, 0)) as connected:
                    connected.sendall(head.encode())
                    answer = b"".join(iter(lambda: connected.recv(65536), b"")).decode()
            except OSError:
                return 0, ""
            return int(answer.split()[1]), answer

        return self.namespace.call(inside)

    def statuses(self, path: str) -> list[int]:
        """Give the status that each Pod and a stranger get."""
        return [self.ask(source, path)[0] for source in (WEB, DB, STRANGER)]

    def page(self, path: str) -> tuple[int, str]:
        return self.ask("127.0.0.1", path, 989)

    def watching(self) -> int:
        """Give the process id of the second process; 0 while there is none."""
        found = Path(f"/proc/{self.proxy}/task/{self.proxy}/children").read_text().split()
        return int(found[0]) if found else 0


def runs(process_id: int) -> bool:
    """Say whether a process is there and has not ended; whoever has to reap it may take his time."""
    try:
        return bool(Path(f"/proc/{process_id}/cmdline").read_bytes())
    except OSError:
        return False


@contextmanager
def process(namespace: NetNamespace, log: Path, *words: str) -> Iterator[int]:
    """Run a module of podgate, its log at the end of a file; gives its process id."""
    script = f'exec "$@" >/dev/null 2>>{log}'
    started = namespace.start("env", "-u", "PODGATE_SOURCE", "sh", "-c", script, "-", sys.executable, "-m", *words)
    try:
        yield started.pid
    finally:
        _end(started)


@contextmanager
def node(folder: Path, *words: str) -> Iterator[Node]:
    with netns() as namespace, ExitStack() as stack:
        made = Node(namespace, folder / "log")
        stack.enter_context(process(namespace, folder / "cloud", *CLOUD))
        made.proxy = stack.enter_context(process(namespace, made.log, *RUN, *words))
        poll(lambda: made.ask(DB, "/computeMetadata/v1/instance/zone")[0] == 200)
        yield made


def _end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait(60)
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


def test_policies_and_pods_of_a_folder(tmp_path: Path) -> None:
    objects = tmp_path / "objects"
    objects.mkdir()
    (objects / "pods.yaml").write_text(f"{pod('web', WEB)}---\n{pod('db', DB)}---\n{pod('far', STRANGER, 'node-2')}")
    (objects / "policy.yaml").write_text(policy("web"))
    with node(tmp_path, "--source", str(objects)) as running:
        poll(lambda: running.statuses(KUBE_ENV) == [200, 403, 403])
        assert running.statuses(TOKEN) == [200, 200, 403]  # who is not known gets the strictest rules
        assert running.page("/readyz")[0] == 200

        (objects / "policy.yaml").write_text(policy("db"))
        poll(lambda: running.statuses(KUBE_ENV) == [403, 200, 403])

        (objects / "policy.yaml").write_text(policy("web", "no slash"))
        poll(lambda: LAST_GOOD in running.page("/readyz")[1])
        where = "MetadataPolicy/p: spec.rules[0].paths[0]: "
        assert [where in running.page(page)[1] for page in ("/readyz", "/healthz")] == [True, True]
        assert running.statuses(KUBE_ENV) == [403, 200, 403]

        # An address that another Pod has now is that one's; one that two have is nobody's.
        (objects / "policy.yaml").write_text(policy("db"))
        (objects / "pods.yaml").write_text(f"{pod('db', WEB)}---\n{pod('web', DB)}")
        poll(lambda: running.statuses(KUBE_ENV) == [200, 403, 403])
        (objects / "pods.yaml").write_text(f"{pod('db', WEB)}---\n{pod('web', WEB)}")
        poll(lambda: running.statuses(KUBE_ENV) == [403, 403, 403])
        assert running.statuses(TOKEN) == [403, 403, 403]


def test_what_was_known_last_stays_while_nobody_follows(tmp_path: Path) -> None:
    (tmp_path / "objects.yaml").write_text(f"{pod('web', WEB)}---\n{pod('db', DB)}---\n{policy('web')}")
    path, source = str(tmp_path / "socket"), str(tmp_path / "objects.yaml")
    watch = ("podgate.cli", "metadata", "watch", "--node-name", "node-1", "--source", source, "--socket", path)
    with node(tmp_path, "--watch-socket", path) as running:
        assert running.statuses(TOKEN) == [403, 403, 403]
        with process(running.namespace, tmp_path / "watch", *watch):
            poll(lambda: running.statuses(KUBE_ENV) == [200, 403, 403])
        poll(lambda: "podgate_metadata_watch_connected 0" in running.page("/")[1])
        assert running.statuses(KUBE_ENV) == [200, 403, 403]
        assert "has ended: see its log" in running.page("/healthz")[1]
        assert running.page("/readyz")[0] == 503
        (tmp_path / "objects.yaml").write_text(f"{pod('web', WEB)}---\n{pod('db', DB)}---\n{policy('db')}")
        with process(running.namespace, tmp_path / "watch", *watch):
            poll(lambda: running.statuses(KUBE_ENV) == [403, 200, 403])
            assert "podgate_metadata_watch_connected 1" in running.page("/")[1]


def test_an_address_opens_nothing_once_nobody_follows_pods_for_too_long(tmp_path: Path) -> None:
    (tmp_path / "objects.yaml").write_text(f"{pod('web', WEB)}---\n{pod('db', DB)}---\n{policy('web')}")
    path, source = str(tmp_path / "socket"), str(tmp_path / "objects.yaml")
    watch = ("podgate.cli", "metadata", "watch", "--node-name", "node-1", "--source", source, "--socket", path)
    with node(tmp_path, "--watch-socket", path, "--stale-after", "10") as running:
        with process(running.namespace, tmp_path / "watch", *watch):
            poll(lambda: running.statuses(KUBE_ENV) == [200, 403, 403])
        poll(lambda: running.statuses(KUBE_ENV) == [403, 403, 403])
        assert running.statuses(TOKEN) == [403, 403, 403]
        poll(lambda: "podgate_metadata_pods_stale 1" in running.page("/")[1])
        assert "nobody knows which Pod asks" in running.page("/readyz")[1]
        assert "nobody knows which Pod asks" in running.page("/healthz")[1]
        with process(running.namespace, tmp_path / "watch", *watch):
            poll(lambda: running.statuses(KUBE_ENV) == [200, 403, 403])
            assert "podgate_metadata_pods_stale 0" in running.page("/")[1]
        assert "no longer degraded" in running.log.read_text()


def test_a_broken_policy_takes_nothing_away_when_the_watching_process_starts_anew(tmp_path: Path) -> None:
    objects, path = tmp_path / "objects", str(tmp_path / "socket")
    objects.mkdir()
    (objects / "pods.yaml").write_text(f"{pod('web', WEB)}---\n{pod('db', DB)}")
    (objects / "policy.yaml").write_text(policy("web"))
    watch = (
        *("podgate.cli", "metadata", "watch", "--node-name", "node-1", "--source", str(objects), "--socket", path),
        *("--state-dir", str(tmp_path / "state")),
    )
    with node(tmp_path, "--watch-socket", path) as running:
        with process(running.namespace, tmp_path / "watch", *watch):
            poll(lambda: running.statuses(KUBE_ENV) == [200, 403, 403] and any((tmp_path / "state").iterdir()))
        (objects / "policy.yaml").write_text("kind: [")
        with process(running.namespace, tmp_path / "watch", *watch):
            poll(lambda: LAST_GOOD in running.page("/readyz")[1])
            assert running.statuses(KUBE_ENV) == [200, 403, 403]


def test_a_second_process_that_ended_is_started_again_and_goes_with_the_first(tmp_path: Path) -> None:
    (tmp_path / "objects.yaml").write_text(f"{pod('web', WEB)}---\n{policy('web')}")
    with node(tmp_path, "--source", str(tmp_path / "objects.yaml")) as running:
        poll(lambda: running.statuses(KUBE_ENV) == [200, 403, 403])
        first = running.watching()
        os.kill(first, signal.SIGKILL)
        poll(lambda: running.watching() not in (0, first))
        second = running.watching()
        poll(lambda: "podgate_metadata_watch_connected 1" in running.page("/")[1])
        assert "has ended with exit code 137" in running.log.read_text()
        os.kill(running.proxy, signal.SIGKILL)
        poll(lambda: not runs(second))  # nobody reads it any more


def test_a_policy_file_in_yaml_needs_no_source(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(f"rules: [{{paths: [{KUBE_ENV}], verdict: allow}}]")
    with node(tmp_path, "--policy", str(tmp_path / "policy.yaml")) as running:
        poll(lambda: running.statuses(KUBE_ENV) == [200, 200, 200])
        (tmp_path / "policy.yaml").write_text("rules: [")
        poll(lambda: LAST_GOOD in running.page("/readyz")[1])
        assert running.statuses(KUBE_ENV) == [200, 200, 200]


def test_without_a_source_everybody_gets_the_strictest_rules(tmp_path: Path) -> None:
    with node(tmp_path, "--per-pod") as running:
        assert running.statuses(TOKEN) == [403, 403, 403]
        poll(lambda: "give --source or --kubeconfig" in running.page("/readyz")[1])
        assert running.statuses("/computeMetadata/v1/instance/zone") == [200, 200, 200]
