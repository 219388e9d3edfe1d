"""The command line as a process: what it touches, what it needs, and what it loads."""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.agent import PODGATE, podgate
from tests.support.netns import netns

GOOD = "nonMasqueradeCIDRs:\n- 10.16.0.0/14\n- 10.140.0.0/20\n"
UNPRIVILEGED = ("setpriv", "--bounding-set", "-all", "--inh-caps", "-all")
OFFLINE = (("render",), ("explain", "10.70.0.2"), ("check",))


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good"
    path.write_text(GOOD)
    return path


@pytest.mark.slow
@pytest.mark.kernel
@pytest.mark.parametrize("words", OFFLINE, ids=" ".join)
def test_the_offline_verbs_need_no_privileges(words: tuple[str, ...], good: Path) -> None:
    done = podgate("masquerade", *words, "--config", good, under=UNPRIVILEGED)
    assert done.code == 0
    assert all("no Kubernetes objects were looked at" in line for line in done.err.splitlines())
    if words == ("check",):
        assert "live rules of other programs: not read" in done.out


@pytest.mark.slow
@pytest.mark.kernel
@pytest.mark.parametrize("words", OFFLINE, ids=" ".join)
def test_the_offline_verbs_open_nothing_for_writing_and_never_the_state(
    words: tuple[str, ...], good: Path, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    under = ("strace", "-qq", "-o", str(trace), "-e", "trace=%file", "-E", "PYTHONDONTWRITEBYTECODE=1")
    assert podgate("masquerade", *words, "--config", good, under=under).code == 0
    calls = trace.read_text().splitlines()
    assert len(calls) > 100
    writing = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|^(?:rename|unlink|mkdir|rmdir|link|symlink|chmod)")
    assert [call for call in calls if writing.search(call) and "/dev/null" not in call] == []
    assert [call for call in calls if "/var/lib/podgate" in call] == []


@pytest.mark.slow
@pytest.mark.kernel
def test_plan_is_exit_1_until_the_rules_are_there_and_changes_nothing(good: Path, tmp_path: Path) -> None:
    with netns() as node:
        for _ in range(2):
            plan = podgate("masquerade", "plan", "--config", good, namespace=node)
            assert (plan.code, plan.err) == (1, "")
            assert "10.16.0.0/14" in plan.out
        run_once = ("masquerade", "run", "--once", "--config", good, "--state-dir", tmp_path / "state")
        assert podgate(*run_once, namespace=node).code == 0
        assert podgate("masquerade", "plan", "--config", good, namespace=node) == (0, "no difference\n", "")
        good.write_text(GOOD + "- 192.0.2.0/24\n")
        plan = podgate("masquerade", "plan", "--config", good, "--output", "json", namespace=node)
        assert plan.code == 1
        (step,) = [row for row in plan.json["steps"] if row["differs"]]
        assert "+ 1 element in keep: 192.0.2.0/24" in step["plan"]


@pytest.mark.slow
@pytest.mark.kernel
def test_check_finds_a_competing_masquerade_among_the_live_rules(good: Path) -> None:
    with netns() as node:
        clean = podgate("masquerade", "check", "--config", good, namespace=node)
        assert (clean.code, "live rules of other programs: read" in clean.out) == (0, True)
        node.run("iptables-nft", "-t", "nat", "-A", "POSTROUTING", "-s", "10.16.0.0/14", "-j", "MASQUERADE")
        found = podgate("masquerade", "check", "--config", good, "--output", "json", namespace=node)
        assert found.code == 1
        assert found.json["live_rules"] == "read"
        assert [row for row in found.json["findings"] if "POSTROUTING" in row["message"] + row["object"]]


@pytest.mark.kernel
def test_an_agent_loads_no_lab_and_nothing_that_only_tests_need(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from podgate.cli import main\n"
        "ended = main(sys.argv[1:])\n"
        "print(ended, *sorted(sys.modules), file=sys.stdout)\n"
    )
    words = ("masquerade", "run", "--once", "--source", str(tmp_path), "--state-dir", str(tmp_path / "state"))
    with netns() as node:
        ended, *loaded = node.run(sys.executable, "-c", code, *words).split()
    assert ended == "0"
    assert "podgate.targets.nftables.apply" in loaded
    unwanted = {"rich", "pyroute2", "hypothesis", "pytest", "grpc", "google", "multiprocessing", "http"}
    assert [name for name in loaded if name.split(".")[0] in unwanted or name.startswith("podgate.lab")] == []


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_text(
        "cidrLimit: 9000\nnonMasqueradeCIDRs:\n"
        + "".join(f"- 10.{number // 128}.{number % 128 * 2}.0/24\n" for number in range(8000))
    )
    command: Sequence[str] = [*PODGATE, "masquerade", "render", "--config", str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    complaints = process.stderr.read()
    process.stderr.close()
    assert (process.wait(30), complaints) == (0, b"")


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("kubeconfig", "code", "said"),
    [("/a:/b", 2, "$KUBECONFIG names several files"), ("/nonexistent", None, "objects come from $KUBECONFIG: /nonex")],
)
def test_the_node_s_doctor_says_what_it_makes_of_the_environment_s_kubeconfig(
    kubeconfig: str, code: int | None, said: str
) -> None:
    with netns() as node:
        done = podgate("metadata", "doctor", namespace=node, environ={"KUBECONFIG": kubeconfig})
    assert done.err.startswith(f"podgate metadata doctor: {said}")
    assert len(done.err.splitlines()) == 1
    assert code is None or (done.code, done.out) == (code, "")
