"""nft is missing, is refused by the kernel, or dies: said by name, retried with back-off, and right once it is gone."""

import os
import sys
from pathlib import Path

import pytest

from tests.support.agent import DEFAULTS, TABLE, Agent, elements, is_whole, podgate, running, started
from tests.support.netns import NetNamespace
from tests.support.poll import poll

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

NFT = "/usr/sbin/nft"
HIDDEN = ("unshare", "--mount", "sh", "-c", f'mount --bind /dev/null {NFT} && exec "$0" "$@"')
"""Starts a program for which nft cannot be run: a file system of its own, where it is /dev/null."""

NO_FIB = """\
line=$(grep -n "fib saddr" | cut -d: -f1)
echo "/dev/stdin:$line:3-26: Error: Could not process rule: No such file or directory" >&2
exit 1
"""
"""What nft 1.0.6 says where the kernel has no fib expression."""

NO_NETFILTER = """\
import ctypes, os, platform, struct, sys
call = {"x86_64": 41, "aarch64": 198}[platform.machine()]  # socket(2)
program = [
    (0x20, 0, 0, 0), (0x15, 0, 3, call),  # another call: allow
    (0x20, 0, 0, 32), (0x15, 0, 1, 12),  # its third argument is not NETLINK_NETFILTER: allow
    (0x06, 0, 0, 0x50000 | 93),  # EPROTONOSUPPORT, as of a kernel without nf_tables
    (0x06, 0, 0, 0x7FFF0000),
]
code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *each) for each in program))
head = struct.pack("@HP", len(program), ctypes.addressof(code))
if ctypes.CDLL(None, use_errno=True).prctl(22, 2, head, 0, 0):  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
    raise OSError(ctypes.get_errno(), "seccomp")
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Starts a program for which the kernel has no sockets of NETLINK_NETFILTER, and all others."""


def fake_nft(directory: Path, script: str) -> dict[str, str]:
    """Put a program called nft before the real one; gives the environment in which it is found."""
    directory.mkdir(exist_ok=True)
    fresh = directory / "nft.new"
    fresh.write_text(f"#!/bin/sh\n{script}")
    fresh.chmod(0o755)
    fresh.rename(directory / "nft")
    return {"PATH": f"{directory}:{os.environ['PATH']}"}


def fails(directory: Path, message: str, code: int = 1) -> dict[str, str]:
    """Have nft say something and end with a code, whatever it is asked."""
    quoted = message.replace("'", "'\\''")
    return fake_nft(directory, f"cat >/dev/null\nprintf '%s' '{quoted}' >&2\nexit {code}\n")


def not_ready(agent: Agent, word: str) -> str:
    """Wait until the agent is not ready for a reason; gives the reasons."""
    poll(lambda: (answer := agent.get("/readyz"))[0] == 503 and word in answer[1])
    return agent.get("/readyz")[1]


def test_without_nft_it_names_the_package_and_goes_on_when_it_is_installed(node: NetNamespace, tmp_path: Path) -> None:
    with started(node, tmp_path, under=HIDDEN) as agent:
        why = not_ready(agent, "failed")
        assert "nft" in why
        assert "package nftables" in why
        assert "package nftables" in agent.get("/healthz")[1]
        assert agent.get("/healthz")[0] == 200  # a restart would not help
        assert agent.metric('errors_total{reason="NftMissing"}') >= 3
        assert agent.metric("ready") == 0
        assert elements(node) is None
        node.run("nsenter", "--target", str(agent.pid), "--mount", "umount", NFT)
        poll(agent.ready)
        assert is_whole(node, DEFAULTS)
        assert len(agent.log("step failed")) == 1
        assert len(agent.log("step works again")) == 1


def test_once_without_nft_is_exit_1_with_the_package_s_name(node: NetNamespace, tmp_path: Path) -> None:
    done = podgate("masquerade", "run", "--once", "--state-dir", tmp_path / "s", namespace=node, under=HIDDEN)
    assert done.code == 1
    assert "package nftables" in done.err
    assert "Traceback" not in done.err
    assert elements(node) is None
    assert not (tmp_path / "s").exists()  # nothing is kept that was never in force


@pytest.mark.slow
def test_a_change_of_elements_needs_no_nft(node: NetNamespace, tmp_path: Path) -> None:
    path, words = tmp_path / "ip-masq-agent", ("run", "--once", "--state-dir", tmp_path / "s")
    assert podgate("masquerade", *words, namespace=node).code == 0
    path.write_text("nonMasqueradeCIDRs: [192.0.2.0/24]\n")
    assert podgate("masquerade", *words, "--config", path, namespace=node, under=HIDDEN).code == 0
    assert is_whole(node, frozenset({"192.0.2.0/24", "169.254.0.0/16"}))


@pytest.mark.slow
def test_a_kernel_without_a_feature_is_named_with_the_line_that_needs_it(node: NetNamespace, tmp_path: Path) -> None:
    environ = fake_nft(tmp_path / "bin", NO_FIB)
    with started(node, tmp_path, environ=environ) as agent:
        why = not_ready(agent, "failed")
        assert "CONFIG_NFT_FIB_IPV4" in why
        assert "fib saddr type local return" in why
        assert "CONFIG_NFT_FIB_IPV4" in agent.get("/healthz")[1]
        assert agent.metric('errors_total{reason="KernelLacksFeature"}') >= 3
        (failed,) = agent.log("step failed")
        assert failed["reason"] == "KernelLacksFeature"
        fake_nft(tmp_path / "bin", f'exec {NFT} "$@"\n')
        poll(agent.ready)
        assert is_whole(node, DEFAULTS)
        assert agent.get("/healthz") == (200, "ok\n")


def test_rules_in_force_stay_while_nft_fails_and_drift_is_healed_after_it(node: NetNamespace, tmp_path: Path) -> None:
    environ = fake_nft(tmp_path / "bin", f'exec {NFT} "$@"\n')
    with running(node, tmp_path, environ=environ) as agent:
        fails(tmp_path / "bin", "Killed", 137)
        node.run("nft", "flush", "chain", "ip", TABLE, "postrouting")
        not_ready(agent, "137")
        assert elements(node) == DEFAULTS
        fake_nft(tmp_path / "bin", f'exec {NFT} "$@"\n')
        poll(lambda: is_whole(node, DEFAULTS))
        poll(agent.ready)


def test_an_nft_that_hangs_does_not_outlive_the_agent(node: NetNamespace, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    environ = fake_nft(tmp_path / "bin", f"echo $$ >>{pids}\nexec sleep 1000\n")
    with started(node, tmp_path, environ=environ) as agent:
        (pid,) = poll(lambda: pids.read_text().split() if pids.exists() else [])
        assert agent.get("/healthz")[0] == 200  # pages are served meanwhile
        assert agent.get("/readyz")[0] == 503
        assert agent.stop() == 0
        assert not Path(f"/proc/{pid}").exists()


@pytest.mark.slow
def test_without_nf_tables_in_the_kernel_it_is_named(node: NetNamespace, tmp_path: Path) -> None:
    under = (sys.executable, "-c", NO_NETFILTER)
    done = podgate("masquerade", "run", "--once", "--state-dir", tmp_path / "s", namespace=node, under=under)
    assert done.code == 1
    assert "nf_tables" in done.err
    assert "Traceback" not in done.err
