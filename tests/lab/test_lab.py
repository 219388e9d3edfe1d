"""A lab's life and its command line: start, questions, changes, mistakes, the end."""

import importlib
import io
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import redirect_stderr, suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from podgate.lab.cli import main
from tests.support.lab import CLI, NODE, TestLab, lab
from tests.support.nobody import as_nobody
from tests.support.poll import poll

pytestmark = [pytest.mark.kernel, pytest.mark.lab]

ROOT = Path(__file__).parents[2]
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  nodeName: node-1
  containers: [{name: main, image: busybox, command: [sleep, infinity]}]
"""
HOST = """\
apiVersion: lab.podgate.dev/v1
kind: Host
metadata: {name: partner}
spec: {addresses: [10.70.0.2]}
"""


@pytest.fixture(scope="module")
def running() -> Iterator[TestLab]:
    with lab(NODE, POD, HOST) as started:
        yield started


def test_the_example_starts_and_its_hosts_answer() -> None:
    with lab(ROOT / "examples" / "masquerade", name="example") as started:
        assert '"source": "10.16.1.6"' in started.execute("web", "curl", "-s", "http://10.70.0.2/")
        assert '"source": "10.16.1.6"' in started.execute("web", "curl", "-s", "http://10.16.2.7/")
        assert '10.16.1.6 - "GET /" 200' in started.logs("host/partner")


def test_up_returns_when_all_is_ready_and_down_removes_everything(tmp_path: Path) -> None:
    environment = {**os.environ, "PODGATE_LAB_DIR": str(tmp_path)}

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([*CLI, *words], env=environment, capture_output=True, text=True, timeout=150, check=False)

    (tmp_path / "all.yaml").write_text(f"{NODE}---\n{POD}---\n{HOST}")
    try:
        up = run("up", str(tmp_path / "all.yaml"))
        assert (up.returncode, up.stdout) == (0, "")
        assert "lab lab: ready with 1 nodes, 1 Pods, 1 hosts" in up.stderr
        again = run("up")
        assert again.returncode == 1
        assert "lab lab runs already" in again.stderr
        assert run("exec", "web", "--", "curl", "-s", "http://10.70.0.2/").returncode == 0
    finally:
        down = run("down")
    assert down.returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all.yaml"]
    assert run("status").returncode == 1
    assert "start it with `podgate lab up DIR`" in run("down").stderr


def test_an_empty_file_changes_nothing(running: TestLab, tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    done = running.run("apply", "-f", str(tmp_path / "empty.yaml"), check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"nothing was applied: no objects in {tmp_path}/empty.yaml" in done.stderr


def test_apply_says_which_fields_of_a_pod_are_not_honoured(running: TestLab, tmp_path: Path) -> None:
    odd = POD.replace("name: web", "name: odd").replace("  nodeName", "  hostUser: false\n  nodeName")
    template = odd.split("---")[0].partition("metadata:")[2].partition("spec:")[2]
    daemons = {
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "odds"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": yaml.safe_load(f"x:{template}")["x"]},
        },
    }  # fmt: skip
    (tmp_path / "odd.yaml").write_text(f"{odd}---\n{yaml.safe_dump(daemons)}")
    done = running.run("apply", "-f", str(tmp_path))
    assert done.stderr.splitlines() == [
        "warning: Pod/default/odd: spec.hostUser is not honoured by the lab",
        "warning: DaemonSet/default/odds: template: spec.hostUser is not honoured by the lab",
    ]
    running.run("delete", "pod/odd", "daemonset/odds")


def test_labs_are_listed_and_the_default_name_says_which_others_run(running: TestLab) -> None:
    def ask(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*CLI, *words], env=running.environment, capture_output=True, text=True, timeout=150, check=False
        )

    (found,) = json.loads(ask("list", "--output", "json").stdout)
    assert (found["name"], found["nodes"]) == (running.name, ["node-1"])
    assert datetime.fromisoformat(found["since"]) <= datetime.now(UTC)
    assert ask("list").stdout.splitlines()[1].split()[:2] == [running.name, "node-1"]
    status = ask("status")
    assert (status.returncode, status.stdout) == (1, "")
    assert f"other labs run: {running.name} (--name)" in status.stderr


@pytest.mark.parametrize("words", ["down", "status", "get pods", "apply -f x.yaml", "exec a -- true"])
def test_a_lab_of_root_is_left_alone(running: TestLab, words: str) -> None:
    verb, *rest = words.split()
    for module in ("verbs", "objectverbs"):
        importlib.import_module(f"podgate.lab.{module}")  # Nobody may not read what root's interpreter consists of.

    def ask() -> str:
        os.environ["PODGATE_LAB_DIR"] = str(running.base)  # In the child alone.
        said = io.StringIO()
        with redirect_stderr(said):
            code = main([verb, "--name", running.name, *rest])
        return f"{code} {said.getvalue()}"

    assert as_nobody(ask) == f"1 podgate lab: lab {running.name} belongs to root: run this with sudo\n"


def processes(text: str) -> list[int]:
    """Give the processes of this machine whose command line has the text."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if text in command:
                found.append(int(entry.name))
    return found


def test_killing_the_init_ends_everything_and_the_next_start_is_clean() -> None:
    with lab(NODE, POD, name="killed") as started:
        init = next(pid for pid in processes(f"podgate.lab.init {started.base} killed") if _is_first(pid))
        inside = [pid for pid in processes("") if _same_pid_namespace(pid, init)]
        assert len(inside) >= 5
        os.kill(init, signal.SIGKILL)
        poll(lambda: not any(Path(f"/proc/{pid}").exists() for pid in inside))
        assert started.state.is_dir()
        assert started.process.wait(60) == 1
        with lab(NODE, POD, name="killed", base=started.base) as again:
            assert again.execute("web", "true") == ""


def _is_first(pid: int) -> bool:
    return Path(f"/proc/{pid}/status").read_text().split("NSpid:")[1].splitlines()[0].split()[-1] == "1"


def _same_pid_namespace(pid: int, other: int) -> bool:
    try:
        return Path(f"/proc/{pid}/ns/pid").stat().st_ino == Path(f"/proc/{other}/ns/pid").stat().st_ino
    except OSError:
        return False


def test_a_foreground_lab_dies_with_whoever_started_it() -> None:
    with lab(NODE, name="orphan") as started:
        mine = f"podgate.lab.init {started.base} orphan"
        assert processes(mine)
        started.process.kill()
        poll(lambda: not processes(mine))


def test_two_labs_run_side_by_side(running: TestLab) -> None:
    with lab(NODE, POD, HOST, name="second", base=running.base) as second:
        ask = ("curl", "-s", "http://10.70.0.2/")
        assert second.execute("web", *ask)
        assert running.execute("web", *ask)
        assert "GET" in second.logs("host/partner")
        second.run("delete", "pod/web")
        assert running.get("Pod", "web")["status"]["phase"] == "Running"


def test_exec_gives_the_commands_exit_code_and_streams(running: TestLab) -> None:
    done = running.run("exec", "web", "--", "sh", "-c", "cat; echo problem >&2; exit 7", text="input", check=False)
    assert (done.returncode, done.stdout, done.stderr) == (7, "input", "problem\n")
    assert running.run("exec", "web", "--", "sh", "-c", "kill -9 $$", check=False).returncode == 137
    assert running.run("exec", "default/web", "-c", "main", "--", "hostname").stdout == "web\n"
    assert running.run("exec", "node/node-1", "--", "hostname").stdout == "node-1\n"
    assert running.run("exec", "host/partner", "--", "hostname").stdout == "partner\n"


def test_a_command_ends_with_its_client(running: TestLab) -> None:
    words = [*CLI, "exec", "--name", running.name, "web", "--", "sleep", "4711"]
    with subprocess.Popen(words, env=running.environment) as client:
        poll(lambda: len(processes("sleep 4711")) > 1)
        client.terminate()
        assert client.wait(60) == 128 + signal.SIGTERM
    with subprocess.Popen(words, env=running.environment) as client:
        poll(lambda: len(processes("sleep 4711")) > 1)
        client.kill()
    poll(lambda: not processes("sleep 4711"))


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["exec", "none", "--", "true"], 1, "Pod default/none does not run"),
        (["exec", "node/none", "--", "true"], 1, "node none does not run"),
        (["exec", "web", "-c", "none", "--", "true"], 1, "container none does not run; containers of web: main"),
        (["exec", "web", "--", "no-such-program"], 127, "no-such-program"),
        (["logs", "none"], 1, "Pod/default/none not found"),
        (["logs", "-n", "shop", "none"], 1, "Pod/shop/none not found"),
        (["get", "pod", "none"], 1, "Pod/default/none not found"),
        (["get", "-n", "shop", "po/none"], 1, "Pod/shop/none not found"),
        (["get", "potato"], 2, "no kind is called 'potato'; known: "),
        (["get", "pds"], 2, "no kind is called 'pds'; did you mean 'pods'?\n"),
        (["get", "daemonset.app"], 2, "did you mean 'daemonsets'?\n"),
        (["exec", "web", "ls", "-l"], 2, 'write "--" between the target and the command'),
        (["delete", "pod/none"], 1, "not found: Pod/default/none"),
        (["delete", "pod"], 2, "say KIND/NAME"),
        (["forward", "127.0.0.1", "web:80"], 2, "say HOST:PORT"),
        (["forward", "127.0.0.1:0", "none:80"], 1, "none: neither an address nor a Pod"),
        (["apply", "-f", "/none.yaml"], 2, "/none.yaml: error: cannot be read"),
    ],
)
def test_mistakes_are_named(running: TestLab, words: list[str], code: int, message: str) -> None:
    done = running.run(words[0], *words[1:], check=False)
    assert (done.returncode, message in done.stderr) == (code, True), done.stderr


def test_a_bad_manifest_is_named_with_its_line_and_nothing_is_applied(running: TestLab, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    fine = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: fine}\n"
    path.write_text(f"{fine}---\napiVersion: v1\nkind: Podd\nmetadata: {{name: x}}\n")
    done = running.run("apply", "-f", str(path), check=False)
    assert done.returncode == 2
    assert f"{path}:6: error" in done.stderr
    assert "did you mean Pod?" in done.stderr
    assert running.run("get", "cm", "fine", check=False).returncode == 1


def test_apply_says_what_became_of_each_object(running: TestLab) -> None:
    manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: said}\ndata: {a: b}\n"
    assert running.apply(manifest) == "ConfigMap/default/said created\n"
    assert running.apply(manifest) == "ConfigMap/default/said unchanged\n"
    assert running.apply(manifest.replace("a: b", "a: c")) == "ConfigMap/default/said configured\n"
    assert running.get("ConfigMap", "said")["data"] == {"a": "c"}


def test_a_changed_pod_and_host_are_started_anew(running: TestLab) -> None:
    changing = POD.replace("web", "changing")
    running.apply(changing)
    running.apply(changing.replace("infinity", '"5000"'))
    poll(lambda: "sleep 5000" in running.shell("node/node-1", "ps -eo args", check=False).splitlines())
    running.apply(HOST.replace("partner", "moving").replace("10.70.0.2", "10.70.0.98"))
    running.apply(HOST.replace("partner", "moving").replace("10.70.0.2", "10.70.0.99"))
    poll(lambda: running.run("exec", "web", "--", "curl", "-sm1", "http://10.70.0.99/", check=False).returncode == 0)
    running.run("delete", "host/moving", "pod/changing")


def test_status_shows_what_runs_and_what_does_not(running: TestLab) -> None:
    rows = [row.split() for row in running.run("status").stdout.splitlines()]
    assert ["node-1", "10.140.15.217/20", "10.16.1.0/24"] in rows
    assert ["partner", "10.70.0.2", "yes"] in rows
    assert ["default/web", "node-1", "Running", "yes", "0"] in [row[:5] for row in rows]
    assert [entry["name"] for entry in running.status()["hosts"]] == ["partner"]


def test_up_says_what_does_not_get_ready(tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text(f"{NODE}---\n{POD.replace('sleep, infinity', 'sh, -c, exit 3')}")
    environment = {**os.environ, "PODGATE_LAB_DIR": str(tmp_path)}

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        words = (*CLI, *words, str(tmp_path / "all.yaml"), "--timeout", "0.7")
        return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=150, check=False)

    crashed = "Pod/default/web: main: CrashLoopBackOff: last exit code 3"
    try:
        run("up")
        # It goes on; on a busy machine its container has not failed yet, or runs just when it is looked at.
        told = poll(lambda: crashed in (now := run("apply", "--wait", "-f")).stderr and now)
        assert told
        assert (told.returncode, "not ready after 0.7 s" in told.stderr) == (1, True)
    finally:
        subprocess.run([*CLI, "down"], env=environment, capture_output=True, check=False)


@pytest.mark.parametrize("words", [["frobnicate"], ["up", "--name", "Bad_Name"], ["exec", "web"]])
def test_wrong_usage_ends_with_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert "--help says more" in capsys.readouterr().err


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert "podgate lab up examples/masquerade" in text
    for verb in ("up", "down", "status", "apply", "get", "delete", "exec", "logs", "forward"):
        assert f"\n    {verb}" in text


def test_a_terminal_is_the_commands_own(running: TestLab) -> None:
    outer, inner = os.openpty()
    words = [
        *CLI,
        "exec",
        "--name",
        running.name,
        "web",
        "--",
        "sh",
        "-ic",
        "stty size; tty; read line; echo got $line",
    ]
    environment = running.environment | {"TERM": "xterm"}
    with subprocess.Popen(
        words, env=environment, stdin=inner, stdout=inner, stderr=inner, start_new_session=True
    ) as client:
        os.close(inner)
        seen = b""
        while b"0 0" not in seen:
            seen += os.read(outer, 1000)
        os.write(outer, b"typed\r")
        while b"got typed" not in seen:
            seen += os.read(outer, 1000)
        assert client.wait(60) == 0
    os.close(outer)
    assert b"can't access tty" not in seen


def test_a_full_disk_is_a_warning_and_the_lab_goes_on(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "small", str(small)], check=True)
    try:
        with lab(NODE, POD, name="full", base=small) as started:
            filler = small / "filler"
            with suppress(OSError), filler.open("wb") as file:
                while True:
                    file.write(b"x" * 4096)
                    file.flush()
            host = HOST.replace("partner", "late")
            assert started.execute("web", "true") == ""
            started.shell("web", "kill $(pidof sleep)", check=False)  # the shell may be killed with the container
            poll(lambda: any("could not be written" in line for line in started.status()["warnings"]))
            filler.unlink()
            started.apply(host)
            poll(lambda: started.get("Pod", "web")["status"]["containerStatuses"][0]["restartCount"] == 1)
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)
