"""Limits as texts of cgroup files, and where cgroups are, as tables."""

from typing import Any

import pytest

from podgate.lab.limits import (
    CgroupVersion,
    Hierarchy,
    Limits,
    hierarchies,
    limits_of,
    oom_kills,
    resource_faults,
    settings,
)
from podgate.lab.podspec import Resources

LIMITS = [
    ({"limits": {"memory": "25Mi", "cpu": "100m"}}, Limits(26_214_400, 100, 100)),
    ({"limits": {"memory": "0.1", "cpu": 0.5}}, Limits(1, 500, 500)),
    ({"requests": {"memory": "1G", "cpu": "30m"}}, Limits(0, 0, 30)),
    ({"limits": {"cpu": 2}, "requests": {"cpu": "1"}}, Limits(0, 2000, 1000)),
    ({"limits": {"cpu": "1u"}}, Limits(0, 1, 1)),
    ({"limits": {"memory": "0", "ephemeral-storage": "1Gi"}}, Limits()),
]


@pytest.mark.parametrize(("resources", "limits"), LIMITS)
def test_limits_are_whole_numbers_rounded_up(resources: dict[str, Any], limits: Limits) -> None:
    assert limits_of(Resources(**resources)) == limits


def test_a_container_that_asks_for_nothing_has_no_limits() -> None:
    assert limits_of(None) == limits_of(Resources()) == Limits()


SETTINGS = [
    (Limits(memory=26_214_400), "memory", 1,
     ["memory.limit_in_bytes 26214400", "memory.memsw.limit_in_bytes 26214400 ?"]),
    (Limits(memory=26_214_400), "memory", 2, ["memory.max 26214400", "memory.swap.max 0 ?", "memory.oom.group 1 ?"]),
    (Limits(cpu=100, cpu_request=100), "cpu", 1,
     ["cpu.shares 102", "cpu.cfs_period_us 100000", "cpu.cfs_quota_us 10000"]),
    (Limits(cpu=100, cpu_request=100), "cpu", 2, ["cpu.weight 4", "cpu.max 10000 100000"]),
    (Limits(cpu=2500), "cpu", 1, ["cpu.cfs_period_us 100000", "cpu.cfs_quota_us 250000"]),
    (Limits(cpu=1, cpu_request=1), "cpu", 2, ["cpu.weight 1", "cpu.max 1000 100000"]),
    (Limits(cpu_request=1000), "cpu", 1, ["cpu.shares 1024"]),
    (Limits(cpu_request=1000), "cpu", 2, ["cpu.weight 39"]),
    (Limits(cpu_request=9_000_000), "cpu", 1, ["cpu.shares 262144"]),
    (Limits(cpu_request=9_000_000), "cpu", 2, ["cpu.weight 10000"]),
    (Limits(cpu=100), "memory", 1, []),
    (Limits(memory=1), "cpu", 2, []),
]  # fmt: skip


@pytest.mark.parametrize(("limits", "controller", "version", "expected"), SETTINGS)
def test_which_file_gets_which_text(
    limits: Limits, controller: str, version: CgroupVersion, expected: list[str]
) -> None:
    found = settings(limits, controller, version)
    assert [f"{one.file} {one.text}{' ?' * one.optional}" for one in found] == expected


FAULTS = [
    ({"limits": {"memory": "25MB"}}, "limits.memory: '25MB' is not a quantity"),
    ({"requests": {"cpu": "half"}}, "requests.cpu: 'half' is not a quantity"),
    ({"limits": {"cpu": "-1"}}, "limits.cpu: '-1' is negative"),
    ({"limits": {"memory": "25Mi"}, "requests": {"memory": "64Mi"}},
     "requests.memory: '64Mi' is more than the limit, '25Mi'"),
    ({"limits": {"example.com/gpu": "one"}}, 'limits["example.com/gpu"]: \'one\' is not a quantity'),
]  # fmt: skip


@pytest.mark.parametrize(("resources", "expected"), FAULTS)
@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_resources_that_make_no_sense_are_faults_by_name(kind: str, resources: dict[str, Any], expected: str) -> None:
    spec = {kind: [{"name": "good", "resources": {"limits": {"cpu": 1}}}, {"name": "bad", "resources": resources}]}
    [(field, why)] = resource_faults(spec, "spec")
    assert f"{field}: {why}".startswith(f"spec.{kind}[1].resources.{expected}")


@pytest.mark.parametrize(
    "spec", [{}, {"containers": [{"name": "c"}]}, {"containers": [{"resources": {"requests": {"memory": "1Ki"}}}]},
             {"containers": [{"resources": {"limits": {"cpu": "0.1"}, "requests": {"cpu": "100m"}}}]}]
)  # fmt: skip
def test_good_resources_have_no_fault(spec: dict[str, Any]) -> None:
    assert list(resource_faults(spec, "spec")) == []


@pytest.mark.parametrize(
    ("text", "count"),
    [("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n", 2), ("low 0\nmax 7\noom 1\noom_kill 1\noom_group_kill 1\n", 1),
     ("oom_kill_disable 1\nunder_oom 0\n", 0)],
)  # fmt: skip
def test_kills_are_counted_in_both_versions(text: str, count: int) -> None:
    assert oom_kills(text) == count


V1 = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
V2 = "30 23 0:27 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
BOUND = "32 31 0:29 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
ODD = "30 23 0:27 / /mnt/c\\040g rw - cgroup2 none rw\n"


def test_controllers_of_version_1_are_found_before_version_2() -> None:
    found = hierarchies(V1, "4:memory:/user/me\n1:cpu,cpuacct:/\n0::/else\n")
    assert found == {
        "memory": Hierarchy(1, "/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory/user/me"),
        "cpu": Hierarchy(1, "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/cpu,cpuacct"),
    }


@pytest.mark.parametrize(
    ("mounts", "membership", "own"),
    [
        (V2, "0::/user.slice/one.scope\n", "/sys/fs/cgroup/user.slice/one.scope"),
        (V2, "0::/\n", "/sys/fs/cgroup"),
        (V2, "0::/../beside\n", "/sys/fs/cgroup"),
        (ODD, "0::/a:b\n", "/mnt/c g/a:b"),
        (BOUND, "4:memory:/docker/abc/deep\n", "/sys/fs/cgroup/memory/deep"),
        (BOUND, "4:memory:/elsewhere\n", "/sys/fs/cgroup/memory"),
    ],
)
def test_the_own_group_is_found_in_what_is_mounted(mounts: str, membership: str, own: str) -> None:
    assert hierarchies(mounts, membership)["memory"].own == own


def test_without_cgroups_there_is_no_hierarchy() -> None:
    assert hierarchies("22 1 8:1 / / rw - ext4 /dev/root rw\n", "") == {}


def test_groups_above_are_those_up_to_the_mount() -> None:
    assert Hierarchy(2, "/sys/fs/cgroup", "/sys/fs/cgroup/a/b").upwards == (
        "/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup",
    )  # fmt: skip
