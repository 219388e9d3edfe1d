"""Namespaces and mounts of a real kernel, each test in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from podgate.linux.namespaces import CLONE_NEWNET, inside_network, open_namespace, setns

pytestmark = pytest.mark.kernel


def alone(script: str, *words: str) -> str:
    """Run Python in a process of its own, and give what it prints."""
    head = "import os, sys\nfrom podgate.linux import namespaces as n\n"
    done = subprocess.run([sys.executable, "-c", head + script, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_inside_a_network_namespace_only_for_a_moment() -> None:
    with subprocess.Popen(["unshare", "-n", "sh", "-c", "echo; exec sleep 1000"], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        home = Path("/proc/thread-self/ns/net").readlink()
        descriptor = open_namespace("net", other.pid)
        try:
            with inside_network(descriptor):
                assert (
                    Path("/proc/thread-self/ns/net").readlink() == Path(f"/proc/{other.pid}/ns/net").readlink() != home
                )
            assert Path("/proc/thread-self/ns/net").readlink() == home
            with pytest.raises(KeyError), inside_network(descriptor):
                raise KeyError
            assert Path("/proc/thread-self/ns/net").readlink() == home
        finally:
            os.close(descriptor)
            other.kill()


def test_the_wrong_sort_of_namespace_is_refused() -> None:
    descriptor = open_namespace("uts")
    with pytest.raises(OSError, match=r"setns\(0x40000000\): Invalid argument"):
        setns(descriptor, CLONE_NEWNET)
    os.close(descriptor)


def test_a_host_name_of_ones_own() -> None:
    script = "n.unshare(n.CLONE_NEWUTS); n.sethostname('own'); print(os.uname().nodename)"
    assert alone(script) == "own\n"
    assert os.uname().nodename != "own"


MOUNTS = """
n.unshare(n.CLONE_NEWNS)
n.mount("none", "/", "", n.MS_REC | n.MS_PRIVATE)
n.mount("t", "/mnt", "tmpfs", n.MS_NOSUID, "mode=700")
os.mkdir("/mnt/in"); os.mkdir("/mnt/plain")
n.mount("t", "/mnt/in", "tmpfs")
"""


@pytest.mark.parametrize(("recursive", "inner"), [(True, "refused"), (False, "written")])
def test_read_only_with_or_without_what_is_below(recursive: bool, inner: str) -> None:
    script = f"""{MOUNTS}
n.make_read_only("/mnt", recursive={recursive})
for path in ("/mnt/plain/x", "/mnt/in/x"):
    try: open(path, "w"); print("written")
    except OSError: print("refused")
"""
    assert alone(script).split() == ["refused", inner]


def test_a_new_root_and_the_old_one_below_it() -> None:
    script = f"""{MOUNTS}
os.mkdir("/mnt/old")
n.pivot_root("/mnt", "/mnt/old")
os.chdir("/")
print(sorted(os.listdir("/")), os.path.isdir("/old/usr"))
n.umount("/old", n.MNT_DETACH)
print(os.listdir("/old"))
"""
    assert alone(script) == "['in', 'old', 'plain'] True\n[]\n"


def test_a_refusal_names_the_call_and_its_target() -> None:
    script = """
try: n.mount("/no/such", "/mnt", "", n.MS_BIND)
except OSError as error: print(error)
"""
    assert alone(script) == "[Errno 2] mount bind /no/such on /mnt: No such file or directory\n"
