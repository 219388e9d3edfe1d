"""The agent and its configuration: what is seen, when it counts, and what a bad one does to the kernel's rules."""

import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.agent import DEFAULTS, Agent, elements, is_whole, running, started, watch
from tests.support.netns import NetNamespace
from tests.support.poll import poll

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


class Volume:
    """A ConfigMap volume as kubelet writes it: a key is a link through ``..data`` to a directory that is swapped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._swaps = 0
        path.mkdir()

    def write(self, **keys: str) -> None:
        """Swap in new contents, all at once; then links for new keys, and none for keys that left."""
        self._swaps += 1
        fresh = self._path / f"..2026_{self._swaps}"
        fresh.mkdir()
        for key, text in keys.items():
            (fresh / key.replace("_", "-")).write_text(text)
        data, made = self._path / "..data", self._path / "..data_tmp"
        old = data.resolve() if data.is_symlink() else None
        made.symlink_to(fresh.name)
        made.rename(data)
        links = {self._path / key.replace("_", "-") for key in keys}
        for link in links:
            if not link.is_symlink():
                link.symlink_to(f"..data/{link.name}")
        for link in self._path.iterdir():
            if link.is_symlink() and link != data and link not in links:
                link.unlink()
        if old:
            shutil.rmtree(old)


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
    volume.write(ip_masq_agent=config("10.0.0.0/8"))
    with running(node, tmp_path, "--config", tmp_path / "config" / KEY):
        assert keeps(node, "10.0.0.0/8")()
        for cidr in ("10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16"):
            volume.write(ip_masq_agent=config(cidr))
            poll(keeps(node, cidr), 1.0)


@pytest.mark.slow
def test_a_key_that_leaves_the_configmap_brings_the_defaults_back(node: NetNamespace, tmp_path: Path) -> None:
    volume = Volume(tmp_path / "config")
    volume.write(ip_masq_agent=config("10.0.0.0/8"))
    with running(node, tmp_path, "--config", tmp_path / "config" / KEY):
        volume.write(other="x")
        poll(is_default(node), 3.0)
        volume.write(ip_masq_agent=config("10.1.0.0/16"))
        poll(keeps(node, "10.1.0.0/16"), 1.0)


def test_a_deleted_file_counts_after_a_second_and_a_new_one_at_once(node: NetNamespace, tmp_path: Path) -> None:
    path = tmp_path / KEY
    path.write_text(config("10.0.0.0/8"))
    with running(node, tmp_path, "--config", path) as agent:
        path.unlink()
        deleted = time.monotonic()
        watch(is_default(node), lambda: elements(node) in (frozenset({"10.0.0.0/8", LINK_LOCAL}), DEFAULTS))
        assert 0.9 <= time.monotonic() - deleted < 3.0
        assert agent.ready()  # no file is a configuration: the defaults
        path.write_text(config("10.1.0.0/16"))
        poll(keeps(node, "10.1.0.0/16"), 1.0)


@pytest.mark.parametrize("written", ["truncated first", "moved away first", "in three writes", "renamed into place"])
def test_no_way_of_saving_a_file_shows_anything_but_old_and_new(
    node: NetNamespace, tmp_path: Path, written: str
) -> None:
    path = tmp_path / KEY
    path.write_text(config("10.0.0.0/8"))
    pause = threading.Event()
    with running(node, tmp_path, "--config", path), sampled(node) as seen:
        old = frozenset({"10.0.0.0/8", LINK_LOCAL})
        for number in range(3):
            new = config(f"10.{number}.0.0/16", "192.0.2.0/24")
            match written:
                case "truncated first":
                    path.write_text("")
                    pause.wait(0.2)
                    path.write_text(new)
                case "moved away first":
                    path.rename(tmp_path / "ip-masq-agent~")
                    pause.wait(0.2)
                    path.write_text(new)
                case "in three writes":
                    with path.open("w") as file:
                        for piece in (new[:30], new[30:45], new[45:]):
                            file.write(piece)
                            file.flush()
                            pause.wait(0.1)
                case _:
                    (tmp_path / ".new").write_text(new)
                    (tmp_path / ".new").rename(path)
            poll(keeps(node, f"10.{number}.0.0/16", "192.0.2.0/24"), 2.0)
    allowed = {old} | {frozenset({f"10.{number}.0.0/16", "192.0.2.0/24", LINK_LOCAL}) for number in range(3)}
    assert old in seen
    assert seen <= allowed


def test_a_bad_file_keeps_the_last_good_one_in_force_and_healed(node: NetNamespace, tmp_path: Path) -> None:
    path = tmp_path / KEY
    path.write_text(config("10.0.0.0/8", "192.0.2.0/24"))
    good = frozenset({"10.0.0.0/8", "192.0.2.0/24", LINK_LOCAL})
    with running(node, tmp_path, "--config", path) as agent:
        path.write_text(BAD)
        complaint = poll(lambda: agent.log("not-a-cidr"), 2.0)
        assert [line["level"] for line in complaint] == ["error"]
        assert f"{path}:3" in complaint[0]["message"]
        assert is_whole(node, good)
        node.run("nft", "flush", "ruleset")
        poll(lambda: is_whole(node, good), 1.0)
        assert agent.ready()  # nothing is weaker than before
        path.write_text(config("10.1.0.0/16"))
        poll(keeps(node, "10.1.0.0/16"), 1.0)
        assert poll(lambda: agent.log("solved"))
        assert len(agent.log("not-a-cidr")) == 1


def test_a_restart_with_a_bad_file_enforces_what_was_kept_on_disk(node: NetNamespace, tmp_path: Path) -> None:
    path = tmp_path / KEY
    path.write_text(config("192.0.2.0/24"))
    state = tmp_path / "state"
    with running(node, tmp_path, "--config", path):
        kept = poll(lambda: list(state.glob("*")))
        assert [oct(each.stat().st_mode & 0o777) for each in (state, *kept)] == ["0o700", "0o600"]
    node.run("nft", "flush", "ruleset")
    path.write_text(BAD)
    with running(node, tmp_path, "--config", path):
        assert keeps(node, "192.0.2.0/24")()


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
        poll(lambda: is_whole(node, good), 1.0)


def test_a_bad_file_at_the_very_first_start_is_the_defaults_and_not_ready(node: NetNamespace, tmp_path: Path) -> None:
    path = tmp_path / KEY
    path.write_text(BAD)
    with started(node, tmp_path, "--config", path) as agent:
        poll(lambda: is_whole(node, DEFAULTS), 10.0)
        poll(lambda: agent.get("/readyz")[0] == 503)
        assert "built-in list" in agent.get("/readyz")[1]
        assert agent.metric("ready") == 0.0
        assert agent.metric('problems{reason="InvalidCIDR",severity="error"}') == 1.0
        assert len(agent.log("not-a-cidr")) == 1
        assert len(agent.log("degraded")) == 1
        node.run("nft", "flush", "ruleset")
        poll(lambda: is_whole(node, DEFAULTS), 1.0)
        path.write_text(config("192.0.2.0/24"))
        poll(keeps(node, "192.0.2.0/24"), 1.0)
        poll(agent.ready, 1.0)


def test_a_directory_that_is_made_later_is_seen(node: NetNamespace, tmp_path: Path) -> None:
    path = tmp_path / "etc" / "config" / KEY
    with running(node, tmp_path, "--config", path):
        assert is_default(node)()
        path.parent.mkdir(parents=True)
        path.write_text(config("192.0.2.0/24"))
        poll(keeps(node, "192.0.2.0/24"), 2.0)


@pytest.mark.slow
def test_the_files_of_a_directory_are_merged_and_followed(node: NetNamespace, tmp_path: Path) -> None:
    folder = tmp_path / "config"
    folder.mkdir()
    (folder / "ip-masq-agent").write_text(config("10.0.0.0/8"))
    (folder / "unrelated").write_text("{{{")
    with running(node, tmp_path, "--config", folder) as agent:
        assert keeps(node, "10.0.0.0/8")()
        (folder / "ip-masq-agent-extra").write_text(config("192.0.2.0/24"))
        poll(keeps(node, "10.0.0.0/8", "192.0.2.0/24"), 2.0)
        (folder / "ip-masq-agent-extra").write_text(BAD)
        poll(lambda: agent.log("not-a-cidr"), 2.0)
        assert keeps(node, "10.0.0.0/8", "192.0.2.0/24")()
        (folder / "ip-masq-agent-extra").unlink()
        poll(keeps(node, "10.0.0.0/8"), 3.0)


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
        poll(keeps(node, "192.0.2.0/24"), 2.0)


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
        heard, _ = monitor.communicate(timeout=10)
    assert heard == ""


@pytest.mark.slow
def test_an_idle_agent_forks_nothing_and_writes_nothing(node: NetNamespace, tmp_path: Path) -> None:
    path = tmp_path / "etc" / KEY  # apart from the trace, whose writing would wake the agent
    path.parent.mkdir()
    path.write_text(config("10.0.0.0/8"))
    with running(node, tmp_path, "--config", path) as agent:
        poll((tmp_path / "state" / "config.json").exists)
        threading.Event().wait(0.3)  # the last page's connection is closed
        trace = tmp_path / "trace"
        tracer = subprocess.Popen(["strace", "-f", "-o", trace, "-p", str(agent.pid)], stderr=subprocess.PIPE)
        assert tracer.stderr is not None
        tracer.stderr.readline()  # "attached"
        threading.Event().wait(1.0)
        tracer.terminate()
        tracer.communicate(timeout=10)
        calls = [line for line in trace.read_text().splitlines() if "detached" not in line and "resumed" not in line]
        assert [line for line in calls if "epoll_wait" not in line] == []
        assert len(calls) <= 1
