"""Limits by real cgroups: a container that takes too much memory or time, and groups that go with their containers."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from podgate.lab.cgroups import Cgroups, remove_leftovers
from podgate.lab.limits import Limits, hierarchies
from podgate.lab.places import Places
from tests.support.lab import CLI, NODE, TestLab, lab
from tests.support.poll import poll

pytestmark = [pytest.mark.kernel, pytest.mark.lab]

GREEDY = ["python3", "-c", "import time\nprint('began', flush=True)\nx = b'x' * (100 << 20)\ntime.sleep(1000)"]


@pytest.fixture(scope="module", autouse=True)
def able(tmp_path_factory: pytest.TempPathFactory) -> None:
    places = Places(str(tmp_path_factory.mktemp("able")), "able")
    places.state.mkdir()
    said: list[str] = []
    groups = Cgroups(places, said.append)
    groups.make()
    groups.remove()
    if said:
        pytest.skip("; ".join(said))


OWN = os.getpid()
"""Part of each lab's name here: its groups are the machine's, where another test process may have some too."""


@pytest.fixture(scope="module")
def limited() -> Iterator[TestLab]:
    with lab(NODE, name=f"limited-{OWN}", limits=True) as started:
        yield started


def pod(name: str, command: list[str], restart: str = "Always", **limits: Any) -> str:
    container = {"name": "c", "image": "any", "command": command, "resources": {"limits": limits}}
    spec = {"nodeName": "node-1", "restartPolicy": restart, "terminationGracePeriodSeconds": 0}
    return json.dumps(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec | {"containers": [container]}}
    )


def status(limited: TestLab, name: str) -> dict[str, Any]:
    found: dict[str, Any] = limited.get("Pod", name).get("status", {})
    return found


def groups(lab_name: str) -> list[Path]:
    """Give all groups of labs of a name that are there, wherever this process's groups are."""
    found = hierarchies(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text())
    folders = {Path(folder) for where in found.values() for folder in where.upwards}
    return sorted(path for folder in folders for path in folder.glob(f"podgate-lab-{lab_name}-*"))


def group_of(limited: TestLab, name: str, file: str) -> Path:
    """Give a file in the group of a Pod's container."""
    [path] = [path for folder in groups(limited.name) for path in folder.glob(f"{name}.c.*/{file}")]
    return path


def test_a_container_that_takes_more_memory_than_its_limit_is_killed(limited: TestLab) -> None:
    limited.apply(pod("once", GREEDY, "Never", memory="25Mi"), wait=False)
    poll(lambda: status(limited, "once").get("phase") == "Failed")
    assert limited.logs("once") == "began\n"
    [container] = status(limited, "once")["containerStatuses"]
    assert container["state"]["terminated"] | {"finishedAt": ""} == {
        "exitCode": 137, "reason": "OOMKilled", "finishedAt": "",
    }  # fmt: skip
    assert not [path for folder in groups(limited.name) for path in folder.glob("once.*")]
    limited.run("delete", "pod/once")


def test_it_starts_again_with_back_off(limited: TestLab) -> None:
    limited.apply(pod("again", GREEDY, memory="25Mi"), wait=False)
    poll(lambda: limited.logs("again").count("began") >= 2)

    def waits() -> dict[str, Any] | None:
        [found] = status(limited, "again")["containerStatuses"]
        return found if "waiting" in found["state"] else None

    container = poll(waits)
    assert container is not None
    assert container["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert container["lastState"]["terminated"] == {"exitCode": 137, "reason": "OOMKilled"}
    poll(lambda: any("last exit code 137 (OOMKilled)" in line for line in limited.status()["waiting"]))
    limited.run("delete", "pod/again")


def test_a_container_below_its_limit_lives_and_commands_in_it_count(limited: TestLab) -> None:
    limited.apply(pod("modest", ["sleep", "infinity"], memory="25Mi"))
    procs = group_of(limited, "modest", "cgroup.procs")
    assert len(procs.read_text().split()) == 1
    assert limited.run("exec", "modest", "--", *GREEDY, check=False).returncode == 137
    assert status(limited, "modest")["containerStatuses"][0]["restartCount"] == 0
    limited.run("delete", "pod/modest")
    assert not procs.exists()


def test_a_container_that_spins_gets_its_share_of_a_core(limited: TestLab) -> None:
    script = (
        "import os, time\n"
        "while True:\n"
        "    end = time.process_time() + 0.05\n"
        "    while time.process_time() < end: pass\n"
        "    print(time.process_time(), flush=True)\n"
    )
    limited.apply(pod("spins", ["python3", "-c", script], cpu="100m"))
    path = group_of(limited, "spins", "cpu.stat")

    def periods() -> dict[str, int]:
        return {name: int(value) for name, value in map(str.split, path.read_text().splitlines())}

    def used() -> float:
        return float(poll(lambda: limited.logs("spins").split())[-1])

    # The periods begin before and end after what is counted, however long looking takes.
    before, at_first = periods(), used()
    poll(lambda: periods()["nr_periods"] >= before["nr_periods"] + 30)
    spent, after = used() - at_first, periods()
    assert after["nr_throttled"] > before["nr_throttled"]
    # Of each period of 100 ms it gets 10; a line may be missing at either end, and a slice may run over.
    assert 0 < spent <= (after["nr_periods"] - before["nr_periods"]) * 0.010 + 0.15
    limited.run("delete", "pod/spins")


def test_what_is_enforced_is_no_warning_and_the_rest_is(limited: TestLab) -> None:
    limits = {"memory": "1Gi", "cpu": "1", "ephemeral-storage": "1Gi"}
    limited.apply(pod("mixed", ["sleep", "infinity"], **limits))
    said = [line for line in limited.status()["warnings"] if "Pod/default/mixed" in line]
    assert said == [
        "Pod/default/mixed: spec.containers[0].resources.limits.ephemeral-storage is not enforced by the lab"
    ]
    limited.run("delete", "pod/mixed")


def test_a_quantity_that_is_none_is_refused_with_its_line(limited: TestLab) -> None:
    with pytest.raises(AssertionError, match=r"000\.yaml:1: error: .*limits\.memory: '25MB' is not a quantity"):
        limited.apply(pod("bad", ["true"], memory="25MB"))


def test_the_groups_end_with_the_lab() -> None:
    with lab(NODE, pod("web", ["sleep", "infinity"], memory="64Mi"), name=f"tidy-{OWN}", limits=True) as started:
        assert groups(started.name)
        started.run("down")
        assert groups(started.name) == []


@pytest.mark.parametrize("verb", ["up", "down"])
def test_what_a_killed_lab_leaves_is_removed_by_the_next(verb: str) -> None:
    name = f"killed-{verb}-{OWN}"
    with lab(NODE, pod("web", ["sleep", "infinity"], memory="64Mi"), name=name, limits=True) as started:
        before = groups(name)
        assert before
        own = started.process.pid
        [init] = Path(f"/proc/{own}/task/{own}/children").read_text().split()
        os.kill(int(init), signal.SIGKILL)
        started.process.wait(60)
        assert groups(name) == before
        if verb == "down":
            assert started.run("down", check=False).returncode == 1  # It does not run.
        else:
            with lab(NODE, name=name, base=started.base, limits=True):
                assert not set(before) & set(groups(name))
        assert groups(name) == []


HINDRANCES = {
    "umount -R /sys/fs/cgroup": "no cgroup hierarchy is mounted",
    "for m in $(findmnt -rno TARGET -t cgroup,cgroup2); do mount -o remount,bind,ro $m; done": "Read-only file system",
    "umount $(findmnt -rno TARGET -t cgroup) && findmnt -t cgroup2": "the controller is not offered there",
}


@pytest.mark.parametrize(("hindrance", "reason"), HINDRANCES.items())
def test_a_machine_that_cannot_is_told_of_and_the_lab_runs(tmp_path: Path, hindrance: str, reason: str) -> None:
    (tmp_path / "all.yaml").write_text(f"{NODE}---\n{pod('web', ['sleep', 'infinity'], memory='25Mi')}")
    environment = {**os.environ, "PODGATE_LAB_DIR": str(tmp_path)}
    shell = ["unshare", "--mount", "sh", "-c", f'({hindrance}) >/dev/null && exec "$@"', "sh"]

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        words = (*shell, *CLI, *words)
        return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=150, check=False)

    up = run("up", "--limits", str(tmp_path / "all.yaml"))
    down = run("down")
    if "is mounted" not in reason and not up.stderr.startswith("lab lab: starting"):
        pytest.skip(f"this machine's cgroups are mounted in another way: {up.stderr}")
    assert (up.returncode, down.returncode) == (0, 0), up.stderr
    for controller in ("memory", "cpu"):
        said = [line for line in up.stderr.splitlines() if f"resources.limits.{controller}: this machine" in line]
        assert len(said) == 1
        assert said[0].endswith(reason)
    assert "Pod/default/web: spec.containers[0].resources.limits is not enforced by the lab" in up.stderr


def test_a_group_that_cannot_be_made_is_a_warning(tmp_path: Path) -> None:
    said: list[str] = []
    places = Places(str(tmp_path), "none")  # Without a state directory there is no note, and without a note no group.
    none = Cgroups(places, said.append)
    none.make()
    assert [line.split(":")[0] for line in said] == ["resources.limits.memory", "resources.limits.cpu"]
    assert "No such file or directory" in said[0]
    assert none.enforced == frozenset()
    assert none.group(Limits(memory=1 << 20), "web.c").entries == ()
    none.remove()
    remove_leftovers(places)
