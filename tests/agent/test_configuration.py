"""The agent and its configuration: what is seen, when it counts, and what a bad one does to the kernel's rules."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.agent import DEFAULTS, TABLE, Agent, elements, is_whole, running, started, watch
from tests.support.netns import NetNamespace
from tests.support.poll import poll
from tests.support.volume import Volume

pytestmark = pytest.mark.kernel

LINK_LOCAL = "169.254.0.0/16"
KEY = "ip-masq-agent"


def config(*cidrs: str) -> str:
    return "nonMasqueradeCIDRs:\n" + "".join(f"  - {cidr}\n" for cidr in cidrs)


BAD = config("10.0.0.0/8", "not-a-cidr")


def keeps(node: NetNamespace, *cidrs: str) -> Callable[[], bool]:
    """Whether the kernel keeps these destinations, and link-local ones."""
    return lambda: elements(node) == frozenset((*cidrs, LINK_LOCAL))


def is_default(node: NetNamespace) -> Callable[[], bool]:
    return lambda: elements(node) == DEFAULTS


@contextmanager
def sampled(node: NetNamespace) -> Iterator[set[frozenset[str] | None]]:
    """Collect every content of the kernel's set that a second thread gets to see during the body."""
    seen: set[frozenset[str] | None] = set()
    stop = threading.Event()

    def sample() -> None:
        while not stop.is_set():
            seen.add(elements(node))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


def test_a_configmap_volume_is_followed_through_its_swaps(node: NetNamespace, tmp_path: Path) -> None:
    volume = Volume(tmp_path / "config")
    volume.swap({KEY: config("10.0.0.0/8")})
    with running(node, tmp_path, "--config", tmp_path / "config" / KEY):
        assert keeps(node, "10.0.0.0/8")()
        for cidr in ("10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16"):
            volume.swap({KEY: config(cidr)})
            poll(keeps(node, cidr))


@pytest.mark.slow
def test_a_key_that_leaves_the_configmap_brings_the_defaults_back(node: NetNamespace, tmp_path: Path) -> None:
    volume = Volume(tmp_path / "config")
    volume.swap({KEY: config("10.0.0.0/8")})
    with running(node, tmp_path, "--config", tmp_path / "config" / KEY):
        volume.swap({"other": "x"})
        poll(is_default(node))
        volume.swap({KEY: config("10.1.0.0/16")})
        poll(keeps(node, "10.1.0.0/16"))


@pytest.mark.slow
def test_a_deleted_file_counts_after_a_second_and_a_new_one_at_once(node: NetNamespace, tmp_path: Path) -> None:
    path = tmp_path / KEY
    path.write_text(config("10.0.0.0/8"))
    with running(node, tmp_path, "--config", path) as agent:
        path.unlink()
        deleted = time.monotonic()
        watch(is_default(node), lambda: elements(node) in (frozenset({"10.0.0.0/8", LINK_LOCAL}), DEFAULTS))
        assert time.monotonic() - deleted >= 0.9
        assert agent.ready()  # no file is a configuration: the defaults
        path.write_text(config("10.1.0.0/16"))
        poll(keeps(node, "10.1.0.0/16"))


def save(path: Path, text: str, written: str) -> None:
    """Write a file in one of the ways that editors have, with pauses in which a program could look."""
    pause = threading.Event()
    match written:
        case "truncated first":
            path.write_text("")
            pause.wait(0.05)
            path.write_text(text)
        case "moved away first":
            path.rename(path.with_name("ip-masq-agent~"))
            pause.wait(0.05)
            path.write_text(text)
        case "in three writes":
            with path.open("w") as file:
                for piece in (text[:30], text[30:45], text[45:]):
                    file.write(piece)
                    file.flush()
                    pause.wait(0.05)
        case _:
            path.with_name(".new").write_text(text)
            path.with_name(".new").rename(path)


@pytest.mark.parametrize(
    "written",
    [pytest.param("truncated first", marks=pytest.mark.slow), "moved away first", "in three writes",
     pytest.param("renamed into place", marks=pytest.mark.slow)],
)  # fmt: skip
def test_no_way_of_saving_a_file_shows_anything_but_old_and_new(
    node: NetNamespace, tmp_path: Path, written: str
) -> None:
    path = tmp_path / KEY
    path.write_text(config("10.0.0.0/8"))
    allowed = {frozenset({"10.0.0.0/8", LINK_LOCAL})}
    with running(node, tmp_path, "--config", path), sampled(node) as seen:
        poll(lambda: seen)
        for number in range(3):
            saving = time.monotonic()
            save(path, config(f"10.{number}.0.0/16", "192.0.2.0/24"), written)
            if time.monotonic() - saving > 0.9:
                allowed.add(DEFAULTS)  # this machine stood still: the file really was empty, or half, for a second
            poll(keeps(node, f"10.{number}.0.0/16", "192.0.2.0/24"))
            allowed.add(frozenset({f"10.{number}.0.0/16", "192.0.2.0/24", LINK_LOCAL}))
    assert len(seen) > 1
    assert seen <= allowed


def test_a_bad_file_keeps_the_last_good_one_in_force_and_healed(node: NetNamespace, tmp_path: Path) -> None:
    path = tmp_path / KEY
    path.write_text(config("10.0.0.0/8", "192.0.2.0/24"))
    good = frozenset({"10.0.0.0/8", "192.0.2.0/24", LINK_LOCAL})
    with running(node, tmp_path, "--config", path) as agent:
        path.write_text(BAD)
        complaint = poll(lambda: agent.log("not-a-cidr"))
        assert [line["level"] for line in complaint] == ["error"]
        assert f"{path}:3" in complaint[0]["message"]
        assert is_whole(node, good)
        node.run("nft", "flush", "ruleset")
        poll(lambda: is_whole(node, good))
        assert agent.ready()  # nothing is weaker than before
        path.write_text(config("10.1.0.0/16"))
        poll(keeps(node, "10.1.0.0/16"))
        assert poll(lambda: agent.log("solved"))
        assert len(agent.log("not-a-cidr")) == 1


@pytest.mark.slow
def test_a_restart_with_a_bad_file_enforces_what_was_kept_on_disk(node: NetNamespace, tmp_path: Path) -> None:
    path = tmp_path / KEY
    path.write_text(config("192.0.2.0/24"))
    state = tmp_path / "state"
    with running(node, tmp_path, "--config", path):
        kept = state / "config.json"
        poll(kept.exists)  # not its name while it is being written
        assert [oct(each.stat().st_mode & 0o777) for each in (state, kept)] == ["0o700", "0o600"]
        assert list(state.iterdir()) == [kept]
    node.run("nft", "flush", "ruleset")
    path.write_text(BAD)
    with running(node, tmp_path, "--config", path):
        assert keeps(node, "192.0.2.0/24")()


@pytest.mark.slow
def test_without_a_state_directory_a_restart_reads_the_last_good_one_from_the_rules(
    node: NetNamespace, tmp_path: Path
) -> None:
    path, nowhere = tmp_path / KEY, "/proc/podgate-cannot-be-made-here"
    path.write_text(config("192.0.2.0/24", "198.51.100.0/25"))
    with running(node, tmp_path, "--config", path, "--state-dir", nowhere) as agent:
        fault = poll(lambda: agent.log("cannot keep"))
        assert len(fault) == 1
        assert nowhere in fault[0]["message"]
        assert agent.ready()
    path.write_text(BAD)
    with running(node, tmp_path, "--config", path, "--state-dir", nowhere) as agent:
        good = frozenset({"192.0.2.0/24", "198.51.100.0/25", LINK_LOCAL})
        assert is_whole(node, good)
        node.run("nft", "flush", "ruleset")
        poll(lambda: is_whole(node, good))


def test_a_bad_file_at_the_very_first_start_is_the_defaults_and_not_ready(node: NetNamespace, tmp_path: Path) -> None:
    path = tmp_path / KEY
    path.write_text(BAD)
    with started(node, tmp_path, "--config", path) as agent:
        poll(lambda: is_whole(node, DEFAULTS))
        poll(lambda: agent.get("/readyz")[0] == 503)
        assert "built-in list" in agent.get("/readyz")[1]
        assert agent.metric("ready") == 0.0
        assert agent.metric('problems{reason="InvalidCIDR",severity="error"}') == 1.0
        assert len(agent.log("not-a-cidr")) == 1
        assert len(agent.log("degraded")) == 1
        node.run("nft", "flush", "ruleset")
        poll(lambda: is_whole(node, DEFAULTS))
        path.write_text(config("192.0.2.0/24"))
        poll(keeps(node, "192.0.2.0/24"))
        poll(agent.ready)


@pytest.mark.slow
def test_a_second_start_with_a_bad_file_does_not_call_the_defaults_the_last_good_one(
    node: NetNamespace, tmp_path: Path
) -> None:
    path = tmp_path / KEY
    path.write_text(BAD)
    for _ in range(2):
        with started(node, tmp_path, "--config", path) as agent:
            poll(lambda: is_whole(node, DEFAULTS))
            poll(lambda: agent.get("/readyz")[0] == 503)
            assert "built-in list" in agent.get("/readyz")[1]
    path.write_text(config("192.0.2.0/24"))
    with running(node, tmp_path, "--config", path):
        assert keeps(node, "192.0.2.0/24")()


@pytest.mark.slow
def test_an_emptied_list_is_not_recovered(node: NetNamespace, tmp_path: Path) -> None:
    path, nowhere = tmp_path / KEY, "/proc/podgate-cannot-be-made-here"
    path.write_text(config("192.0.2.0/24"))
    with running(node, tmp_path, "--config", path, "--state-dir", nowhere):
        pass
    node.run("nft", "flush", "set", "ip", TABLE, "keep")
    path.write_text(BAD)
    with started(node, tmp_path, "--config", path, "--state-dir", nowhere) as agent:
        poll(lambda: is_whole(node, DEFAULTS))
        poll(lambda: agent.get("/readyz")[0] == 503)


@pytest.mark.slow
def test_a_directory_that_is_made_later_is_seen(node: NetNamespace, tmp_path: Path) -> None:
    path = tmp_path / "etc" / "config" / KEY
    with running(node, tmp_path, "--config", path):
        assert is_default(node)()
        path.parent.mkdir(parents=True)
        path.write_text(config("192.0.2.0/24"))
        poll(keeps(node, "192.0.2.0/24"))


@pytest.mark.slow
def test_the_files_of_a_directory_are_merged_and_followed(node: NetNamespace, tmp_path: Path) -> None:
    folder = tmp_path / "config"
    folder.mkdir()
    (folder / "ip-masq-agent").write_text(config("10.0.0.0/8"))
    (folder / "unrelated").write_text("{{{")
    with running(node, tmp_path, "--config", folder) as agent:
        assert keeps(node, "10.0.0.0/8")()
        (folder / "ip-masq-agent-extra").write_text(config("192.0.2.0/24"))
        poll(keeps(node, "10.0.0.0/8", "192.0.2.0/24"))
        (folder / "ip-masq-agent-extra").write_text(BAD)
        poll(lambda: agent.log("not-a-cidr"))
        assert keeps(node, "10.0.0.0/8", "192.0.2.0/24")()
        (folder / "ip-masq-agent-extra").unlink()
        poll(keeps(node, "10.0.0.0/8"))


def test_a_configmap_of_the_source_is_followed(node: NetNamespace, tmp_path: Path) -> None:
    source = tmp_path / "objects"
    source.mkdir()
    manifest = (
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: ip-masq-agent\n  namespace: kube-system\n"
        "data:\n  config: |\n    nonMasqueradeCIDRs: [{}]\n"
    )
    (source / "config.yaml").write_text(manifest.format("10.0.0.0/8"))
    with running(node, tmp_path, environ={"PODGATE_SOURCE": str(source)}):
        assert keeps(node, "10.0.0.0/8")()
        (source / "config.yaml").write_text(manifest.format("192.0.2.0/24"))
        poll(keeps(node, "192.0.2.0/24"))


@pytest.mark.slow
def test_a_restart_with_manifests_that_cannot_be_read_enforces_the_last_good_one(
    node: NetNamespace, tmp_path: Path
) -> None:
    source = tmp_path / "objects.yaml"
    manifest = (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ip-masq-agent, namespace: kube-system}\n"
        "data: {config: 'nonMasqueradeCIDRs: [192.0.2.0/24]'}\n"
    )
    for text in (manifest, manifest + "broken: [\n", None):
        if text is None:
            source.unlink()
        else:
            source.write_text(text)
        with running(node, tmp_path, "--source", source) as agent:
            assert keeps(node, "192.0.2.0/24")()
            assert [line["level"] for line in agent.log(str(source))] == ([] if text == manifest else ["error"])
    with started(node, tmp_path / "fresh", "--source", source) as agent:
        node.run("nft", "flush", "ruleset")
        poll(lambda: agent.get("/readyz")[0] == 503 and is_default(node)())


@pytest.mark.slow
def test_counters_and_rules_stay_when_nothing_or_only_elements_change(node: NetNamespace, tmp_path: Path) -> None:
    path = tmp_path / KEY
    path.write_text(config("10.0.0.0/8"))
    with running(node, tmp_path, "--config", path) as agent:
        before = _handles(node)
        path.write_text(config("10.0.0.0/8") + "# nothing new\n")
        path.write_text(config("192.0.2.0/24"))
        poll(keeps(node, "192.0.2.0/24"))
        assert _handles(node) == before
        _restart_is_silent(node, tmp_path, agent, path, before)


def _handles(node: NetNamespace) -> str:
    """Give the chain as nft shows it, handles and all: a rule that was written anew has another one."""
    return node.run("nft", "-a", "list", "chain", "ip", "podgate-masquerade", "postrouting")


def _restart_is_silent(node: NetNamespace, tmp_path: Path, agent: Agent, path: Path, before: str) -> None:
    monitor = node.start("nft", "monitor")
    try:
        assert agent.stop() == 0
        with running(node, tmp_path, "--config", path) as again:
            assert not again.log("applied")
        assert _handles(node) == before
    finally:
        monitor.terminate()
        heard, _ = monitor.communicate(timeout=60)
    assert heard == ""


def waits(pid: int) -> list[tuple[str, int]]:
    """Give what each thread of a process waits in: the system call's number, and its fourth argument as an int.

    For epoll_wait(2) that is the time in milliseconds after which it returns by itself; /proc/PID/syscall shows both.
    """
    calls = [(task / "syscall").read_text().split() for task in Path(f"/proc/{pid}/task").iterdir()]
    return [(call[0], int(call[4], 16) & 0xFFFFFFFF) for call in calls if len(call) > 4]


def test_an_idle_agent_sleeps_until_the_drift_check(node: NetNamespace, tmp_path: Path) -> None:
    """Nothing else is to come: it is one thread, in one wait, and that ends with the period that was asked for."""
    path = tmp_path / KEY
    path.write_text(config("10.0.0.0/8") + "resyncInterval: 10h\n")
    with running(node, tmp_path, "--config", path) as agent:
        poll((tmp_path / "state" / "config.json").exists)
        poll(lambda: [9 * 3_600_000 < left <= 10 * 3_600_000 for _, left in waits(agent.pid)] == [True])
