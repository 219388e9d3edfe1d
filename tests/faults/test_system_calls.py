"""System calls that fail now and then, or for a file for ever: nothing ends, nothing is weakened."""

from pathlib import Path

import pytest

from tests.support.agent import Agent, elements, is_whole, podgate, started
from tests.support.netns import NetNamespace
from tests.support.poll import poll

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

CONFIG = "nonMasqueradeCIDRs: [192.0.2.0/24]\n"
KEEP = frozenset({"192.0.2.0/24", "169.254.0.0/16"})


def injecting(directory: Path, *expressions: str, only: Path | None = None) -> tuple[str, ...]:
    """Have calls of the agent fail; its children are left alone, since each would fail anew.

    Args:
        directory: for strace's output.
        expressions: which calls, and how.
        only: the one file that they must be about.
    """
    words = [word for expression in expressions for word in ("-e", f"inject={expression}")]
    about = ("-P", str(only)) if only else ()
    # strace lets go of what it traces when it is killed, so that is told to end with it.
    return ("strace", "-qqq", "-o", str(directory / "trace"), *words, *about, "setpriv", "--pdeathsig", "KILL")


@pytest.mark.parametrize(
    "expression",
    [
        "sendto:error=EINTR:when=1..3",
        "recvfrom,recvmsg:error=EINTR:when=1..5",
        "epoll_wait:error=EINTR:when=1..10",
        "fsync:error=EINTR:when=1",
        "openat:error=EINTR:when=1..2",
    ],
)
def test_an_interrupted_call_is_made_again(node: NetNamespace, tmp_path: Path, expression: str) -> None:
    path = tmp_path / "ip-masq-agent"
    path.write_text(CONFIG)
    words = ("run", "--once", "--config", path, "--state-dir", tmp_path / "state")
    # What Python itself opens at its start may fail for good.
    under = injecting(tmp_path, expression, only=path if expression.startswith("openat") else None)
    done = podgate("masquerade", *words, namespace=node, under=under)
    assert (done.code, "Traceback" in done.err) == (0, False), done.err
    assert is_whole(node, KEEP)
    assert (tmp_path / "state" / "config.json").exists()


@pytest.mark.parametrize(
    "expression",
    [
        "sendto:error=ENOBUFS:when=1..3",
        "sendto:error=EPERM:when=2",
        "sendto:error=ENOMEM:when=5",
        "recvmsg:error=EIO:when=2",
        "recvfrom:error=ENOBUFS:when=1",
    ],
)
def test_what_netlink_refuses_for_a_while_is_tried_again(node: NetNamespace, tmp_path: Path, expression: str) -> None:
    path = tmp_path / "ip-masq-agent"
    path.write_text(CONFIG)
    with started(node, tmp_path, "--config", path, under=injecting(tmp_path, expression)) as agent:
        poll(agent.ready)
        assert is_whole(node, KEEP)
        assert "Traceback" not in agent.text()


def test_a_configuration_that_cannot_be_read_keeps_the_last_good_one(node: NetNamespace, tmp_path: Path) -> None:
    path, words = tmp_path / "ip-masq-agent", ("run", "--once", "--state-dir", tmp_path / "state")
    path.write_text(CONFIG)
    assert podgate("masquerade", *words, "--config", path, namespace=node).code == 0
    path.write_text("nonMasqueradeCIDRs: [198.51.100.0/24]\n")
    under = ("strace", "-qqq", "-o", "/dev/null", "-P", str(path), "-e", "inject=read:error=EIO")
    done = podgate("masquerade", *words, "--config", path, namespace=node, under=under)
    assert "Traceback" not in done.err
    assert f"{path}: error: " in done.err
    assert "Input/output error" in done.err
    assert is_whole(node, KEEP)


def test_notifications_that_were_lost_are_made_up_for(node: NetNamespace, tmp_path: Path) -> None:
    """The agent is stopped while another program changes far more than the kernel holds notifications for."""
    with started(node, tmp_path) as agent:
        poll(agent.ready)
        _stopped(agent, True)
        lines = "".join(
            f"add element ip podgate-masquerade keep {{ 198.18.{n // 256}.{n % 256} }}\n" for n in range(4096)
        )
        for _ in range(4):
            node.run("nft", "-f", "-", text=lines)
            node.run("nft", "flush", "set", "ip", "podgate-masquerade", "keep")
        _stopped(agent, False)
        poll(lambda: elements(node) == frozenset({"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"}))
        poll(agent.ready)


def _stopped(agent: Agent, now: bool) -> None:
    agent.send(19 if now else 18)  # SIGSTOP, SIGCONT
