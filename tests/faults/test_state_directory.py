"""The state directory cannot be written or read: the rules come first, it is said once, and mended by itself."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.agent import Agent, elements, is_whole, podgate, started
from tests.support.netns import NetNamespace
from tests.support.poll import poll

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

CONFIG = "nonMasqueradeCIDRs: [192.0.2.0/24]\n"
KEEP = frozenset({"192.0.2.0/24", "169.254.0.0/16"})
LATER = "nonMasqueradeCIDRs: [198.51.100.0/24]\n"
LATER_KEEP = frozenset({"198.51.100.0/24", "169.254.0.0/16"})
BAD = "nonMasqueradeCIDRs: [abc]\n"


def mounted(state: Path, options: str, then: str) -> Sequence[str]:
    """Start a program with a small file system of its own at the state directory."""
    state.mkdir()
    script = f'mount -t tmpfs -o {options} none {state} && {then} && exec "$0" "$@"'
    return ("unshare", "--mount", "sh", "-c", script)


def in_its_files(agent: Agent, *command: str) -> str:
    """Run a command in the file systems that the agent sees."""
    return agent.namespace.run("nsenter", "--target", str(agent.pid), "--mount", *command)


def kept_entries(text: str) -> list[str]:
    return [entry[0] for entry in json.loads(text)["entries"]]


def test_a_full_file_system_is_told_once_and_written_when_there_is_room(node: NetNamespace, tmp_path: Path) -> None:
    state, path = tmp_path / "state", tmp_path / "ip-masq-agent"
    path.write_text(CONFIG)
    fill = f"dd if=/dev/zero of={state}/.filler bs=4096 count=100 2>/dev/null || true"
    with started(node, tmp_path, "--config", path, under=mounted(state, "size=16k", fill)) as agent:
        poll(agent.ready)
        assert is_whole(node, KEEP)
        poll(lambda: agent.log("cannot keep"))
        assert "No space left on device" in agent.log("cannot keep")[0]["message"]
        path.write_text(LATER)
        poll(lambda: is_whole(node, LATER_KEEP))
        assert agent.ready()
        poll(lambda: agent.metric('errors_total{reason="StateNotKept"}') >= 2)
        assert len(agent.log("cannot keep")) == 1
        assert in_its_files(agent, "ls", str(state)) == ""  # no half-written file
        in_its_files(agent, "rm", f"{state}/.filler")
        poll(lambda: "config.json" in in_its_files(agent, "ls", str(state)))
        assert kept_entries(in_its_files(agent, "cat", f"{state}/config.json")) == ["198.51.100.0/24"]
        poll(lambda: agent.log("fault gone"))


def test_a_read_only_state_directory_changes_nothing_but_a_log_line(node: NetNamespace, tmp_path: Path) -> None:
    path, state = tmp_path / "ip-masq-agent", tmp_path / "state"
    path.write_text(CONFIG)
    with started(node, tmp_path, "--config", path, under=mounted(state, "ro", "true")) as agent:
        poll(agent.ready)
        assert is_whole(node, KEEP)
        poll(lambda: agent.log("cannot keep"))
        assert "Read-only file system" in agent.log("cannot keep")[0]["message"]
        path.write_text(BAD)
        poll(lambda: agent.log("abc"))
        node.run("nft", "flush", "ruleset")
        poll(lambda: is_whole(node, KEEP))  # what is not on disk is still known


def test_a_directory_that_became_read_only_does_not_bring_back_an_older_list(
    node: NetNamespace, tmp_path: Path
) -> None:
    path, state = tmp_path / "ip-masq-agent", tmp_path / "state"
    path.write_text(CONFIG)
    assert podgate("masquerade", "run", "--once", "--config", path, "--state-dir", state, namespace=node).code == 0
    assert kept_entries((state / "config.json").read_text()) == ["192.0.2.0/24"]
    script = f'mount --bind {state} {state} && mount -o remount,ro,bind {state} && exec "$0" "$@"'
    under = ("unshare", "--mount", "sh", "-c", script)
    path.write_text(LATER)
    with started(node, tmp_path, "--config", path, under=under) as agent:
        poll(lambda: is_whole(node, LATER_KEEP))
        poll(lambda: agent.log("cannot keep"))
    path.write_text(BAD)
    with started(node, tmp_path, "--config", path, under=under) as agent:
        poll(lambda: agent.log("abc"))
        poll(agent.ready)
        assert is_whole(node, LATER_KEEP)


@pytest.mark.parametrize(
    ("call", "error"),
    [("fsync", "EIO"), ("rename", "EROFS"), ("write", "ENOSPC"), ("fchmod", "EPERM"), ("mkdir", "EACCES")],
)
def test_a_call_that_fails_leaves_the_file_of_before_or_none(
    node: NetNamespace, tmp_path: Path, call: str, error: str
) -> None:
    path, state = tmp_path / "ip-masq-agent", tmp_path / "state"
    words = ("masquerade", "run", "--once", "--config", path, "--state-dir", state)
    if call != "mkdir":
        path.write_text(CONFIG)
        assert podgate(*words, namespace=node).code == 0
    path.write_text(LATER)
    # strace counts only calls on these paths, so that a write of the log is none.
    files = [word for name in ("", "/config.json", "/.config.json.new") for word in ("-P", f"{state}{name}")]
    under = ("strace", "-qqq", "-o", "/dev/null", *files, "-e", f"inject={call}:error={error}")
    done = podgate(*words, namespace=node, under=under)
    assert (done.code, "Traceback" in done.err) == (0, False)
    assert is_whole(node, LATER_KEEP)
    assert str(state) in done.err
    assert "cannot keep" in done.err
    names = [each.name for each in state.iterdir()] if state.exists() else []
    if call == "mkdir":
        assert names == []
    else:
        assert names == ["config.json"]
        assert kept_entries((state / "config.json").read_text()) == ["192.0.2.0/24"]
    assert podgate(*words, namespace=node).code == 0
    assert kept_entries((state / "config.json").read_text()) == ["198.51.100.0/24"]


@pytest.mark.parametrize("content", [b"", b"{", b'{"version":99}', b"\x00" * 300, b"[]"])
def test_a_kept_file_that_is_not_ours_is_not_used_and_replaced(
    node: NetNamespace, tmp_path: Path, content: bytes
) -> None:
    path, state = tmp_path / "ip-masq-agent", tmp_path / "state"
    state.mkdir()
    (state / "config.json").write_bytes(content)
    words = ("masquerade", "run", "--once", "--config", path, "--state-dir", state)
    path.write_text(BAD)
    done = podgate(*words, namespace=node)
    assert (done.code, "Traceback" in done.err) == (1, False)
    assert f"{state}/config.json" in done.err
    assert elements(node) == frozenset({"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"})
    path.write_text(CONFIG)
    assert podgate(*words, namespace=node).code == 0
    assert kept_entries((state / "config.json").read_text()) == ["192.0.2.0/24"]


def test_where_a_file_is_in_the_way_it_says_so(node: NetNamespace, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    done = podgate("masquerade", "run", "--once", "--state-dir", tmp_path / "state", namespace=node)
    assert (done.code, "Traceback" in done.err) == (0, False)
    assert f"{tmp_path}/state" in done.err
    again = podgate("masquerade", "clean", "--state-dir", tmp_path / "state", namespace=node)
    assert "Traceback" not in again.err
    assert elements(node) is None
    assert (tmp_path / "state").read_text() == "a file"


def test_unknown_files_and_folders_there_do_no_harm(node: NetNamespace, tmp_path: Path) -> None:
    state = tmp_path / "state"
    (state / "lost+found").mkdir(parents=True)
    done = podgate("masquerade", "run", "--once", "--state-dir", state, namespace=node)
    assert (done.code, "Traceback" in done.err) == (0, False)
    assert (state / "config.json").exists()
    path = tmp_path / "ip-masq-agent"
    path.write_text(BAD)
    done = podgate("masquerade", "run", "--once", "--state-dir", state, "--config", path, namespace=node)
    assert (done.code, "Traceback" in done.err) == (1, False)
