"""A container's root: the steps as a value, and what they make on a real machine."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from podgate.lab.mounts import read_machine, source_folders
from podgate.lab.rootfs import (
    MACHINE,
    Bind,
    Copy,
    File,
    MachineRoot,
    Mount,
    Overlay,
    Protect,
    RootRequest,
    RootStep,
    Seal,
    VolumeBind,
    container_root,
    hosts_file,
)

MACHINE_ROOT = MachineRoot(
    folders=frozenset({"usr", "etc", "var", "opt", "root", "home", "proc", "secret"}),
    links=(("bin", "usr/bin"), ("lib", "usr/lib"), ("old", "home")),
    programs=("/srv/py/3.11", "/srv/checkout", "/srv/checkout/.venv", "/usr/lib/python3"),
)


def steps(*mounts: VolumeBind, privileged: bool = False, read_only: bool = False) -> tuple[RootStep, ...]:
    return container_root(MACHINE_ROOT, RootRequest(mounts=mounts, privileged=privileged, read_only=read_only))


def binds(made: tuple[RootStep, ...]) -> dict[str, Bind]:
    return {step.target: step for step in made if isinstance(step, Bind)}


def test_the_machines_folders_are_read_only_or_below_an_overlay() -> None:
    made = steps()
    assert {target for target, bind in binds(made).items() if not bind.read_only} <= {
        f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty")
    }
    assert {step.target for step in made if isinstance(step, Overlay)} == {"/etc", "/var"}
    assert not any("secret" in str(step) or "/home" in str(getattr(step, "source", "")) for step in made)


def test_programs_are_bound_once_at_their_own_paths() -> None:
    assert {"/srv/py/3.11", "/srv/checkout"} <= set(binds(steps()))
    assert not {"/srv/checkout/.venv", "/usr/lib/python3"} & set(binds(steps()))


@pytest.mark.parametrize(
    ("target", "overlaid"),
    [("/usr/share/x", "/usr"), ("/lib/modules", "/usr"), ("/opt/a/b", "/opt"), ("/data", None), ("/run/x", None)],
)
def test_a_mount_inside_a_folder_of_the_machine_puts_an_overlay_there(target: str, overlaid: str | None) -> None:
    made = steps(VolumeBind("/volumes/v", target))
    assert {step.target for step in made if isinstance(step, Overlay)} == {"/etc", "/var"} | ({overlaid} - {None})
    assert binds(made)[target] == Bind(f"{MACHINE}/volumes/v", target, read_only=False)


def test_outer_mounts_come_before_inner_ones() -> None:
    targets = [
        s.target for s in steps(VolumeBind("/v/in", "/a/b/c"), VolumeBind("/v/out", "/a")) if isinstance(s, Bind)
    ]
    assert targets.index("/a") < targets.index("/a/b/c")


def test_kernel_settings_are_read_only_unless_privileged() -> None:
    assert Protect("/proc/sys") in steps()
    assert Protect("/proc/sys") not in steps(privileged=True)
    sys_mount = next(s for s in steps() if isinstance(s, Mount) and s.filesystem == "sysfs")
    assert sys_mount.read_only
    assert f"{MACHINE}/dev" in {bind.source for bind in binds(steps(privileged=True)).values()}


def test_a_read_only_root_is_sealed_after_everything_is_in_place() -> None:
    made = steps(read_only=True)
    assert made[-1] == Seal("/")
    assert {step.path for step in made if isinstance(step, Seal)} == {"/", "/etc", "/var"}


def test_without_overlays_etc_is_copied_and_nothing_else_is_written() -> None:
    machine = msgspec.structs.replace(MACHINE_ROOT, overlays=False)
    made = container_root(machine, RootRequest((VolumeBind("/v", "/usr/x"),), read_only=True))
    assert Copy(f"{MACHINE}/etc", "/etc") in made
    assert binds(made)["/usr"].read_only
    assert not any(isinstance(step, Overlay) for step in made)


def test_the_hosts_file_names_the_pod_and_its_aliases() -> None:
    text = hosts_file("web", ("10.16.1.6", "fd00::6"), (("10.0.0.1", ("a", "b")),))
    assert text.splitlines()[1:] == [
        "127.0.0.1\tlocalhost",
        "::1\tlocalhost ip6-localhost ip6-loopback",
        "10.16.1.6\tweb",
        "fd00::6\tweb",
        "10.0.0.1\ta b",
    ]


def test_the_machine_is_read_as_it_is() -> None:
    machine = read_machine()
    assert {"usr", "etc"} <= machine.folders
    assert all(not target.startswith("/") for _, target in machine.links)
    assert sys.prefix in machine.programs
    assert Path(source_folders()[0], "pyproject.toml").is_file()


BUILD = """
import os, sys
from podgate.lab.mounts import build_root, make_private, read_machine
from podgate.lab.rootfs import RootRequest, VolumeBind, container_root
from podgate.linux.namespaces import CLONE_NEWNS, unshare
unshare(CLONE_NEWNS)
make_private()
import msgspec
machine = msgspec.structs.replace(read_machine(), overlays="no-overlays" not in sys.argv)
request = RootRequest(
    mounts=(VolumeBind(sys.argv[1], "/var/run/link"), VolumeBind(sys.argv[1], "/usr/share/deep/er", True)),
    hostname="made", read_only=sys.argv[2] == "sealed",
)
build_root(container_root(machine, request), sys.argv[1])
os.execvp("sh", ["sh", "-c", sys.argv[3]])
"""


def built(folder: Path, script: str, *, sealed: bool = False) -> str:
    """Build a root around a folder and give what a shell in it prints."""
    words = [sys.executable, "-c", BUILD, str(folder), "sealed" if sealed else "open", script]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


@pytest.mark.kernel
def test_a_built_root_holds_what_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("from outside")
    assert built(tmp_path, "cat /etc/hostname; ls /.machine 2>/dev/null; ls -A /run") == "made\nlink\n"
    assert built(tmp_path, "cat /var/run/link/file") == "from outside"
    assert built(tmp_path, "touch /usr/share/deep/er/x || echo refused") == "refused\n"
    assert built(tmp_path, f"{sys.executable} -c 'import podgate; print(podgate.__name__)'") == "podgate\n"
    assert built(tmp_path, "stat -c %a /tmp") == "1777\n"
    assert built(tmp_path, "touch /var/run/link/written") == ""
    assert (tmp_path / "written").exists()


@pytest.mark.kernel
def test_a_sealed_root_leaves_mounts_writable(tmp_path: Path) -> None:
    written = "for d in / /etc /var /tmp /usr; do touch $d/x && echo $d; done"
    script = f"{written}; touch /var/run/link/y /dev/shm/y && echo mounts"
    assert built(tmp_path, script, sealed=True) == "mounts\n"


@pytest.mark.kernel
def test_a_root_without_overlays_works(tmp_path: Path) -> None:
    words = [sys.executable, "-c", BUILD.replace('"/usr/share/deep/er"', '"/data"'), str(tmp_path), "open"]
    script = "grep -c root: /etc/passwd; cat /etc/hostname; touch /etc/x /var/x && echo written"
    done = subprocess.run([*words, script, "no-overlays"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1:] == ["made", "written"]


@pytest.mark.kernel
def test_building_a_root_leaves_no_mount_and_no_file_outside(tmp_path: Path) -> None:
    before = Path("/proc/self/mounts").read_text()
    built(tmp_path, "touch /etc/podgate-test-file /var/podgate-test-file")
    assert Path("/proc/self/mounts").read_text() == before
    assert not os.path.lexists("/etc/podgate-test-file")
    assert not os.path.lexists("/var/podgate-test-file")


def test_files_of_the_root_come_from_the_request() -> None:
    files = {step.path: step.text for step in steps() if isinstance(step, File)}
    assert files["/etc/hostname"] == "localhost\n"
    assert "no DNS server" in files["/etc/resolv.conf"]
