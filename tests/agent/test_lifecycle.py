"""The agent's life on a node: one at a time, how it starts and ends, and what it leaves."""

import signal
from pathlib import Path

import pytest

from tests.support.agent import DEFAULTS, TABLE, elements, is_whole, nft, podgate, running, started
from tests.support.netns import NetNamespace, netns
from tests.support.poll import poll

pytestmark = pytest.mark.kernel


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_rules_stay_when_it_is_stopped(node: NetNamespace, tmp_path: Path, number: int) -> None:
    with running(node, tmp_path) as agent:
        assert agent.stop(number) == 0
        assert [line["rules"] for line in agent.log("stopped")] == ["stay in force"]
    assert is_whole(node, DEFAULTS)


@pytest.mark.slow
def test_the_rules_stay_when_it_is_killed_and_the_next_one_takes_over(node: NetNamespace, tmp_path: Path) -> None:
    with running(node, tmp_path) as agent:
        agent.stop(signal.SIGKILL)
    assert is_whole(node, DEFAULTS)
    with running(node, tmp_path):
        assert is_whole(node, DEFAULTS)


def test_clean_on_exit_removes_them(node: NetNamespace, tmp_path: Path) -> None:
    node.run("nft", "add", "table", "ip", "other")
    with running(node, tmp_path, "--clean-on-exit") as agent:
        assert agent.stop() == 0
        assert [line["rules"] for line in agent.log("stopped")] == ["removed"]
    assert [item["table"]["name"] for item in nft(node, "tables")] == ["other"]


@pytest.mark.slow
def test_clean_removes_rules_and_what_was_kept_and_succeeds_twice(node: NetNamespace, tmp_path: Path) -> None:
    node.run("nft", "add", "table", "ip", "other")
    with running(node, tmp_path) as agent:
        agent.stop()
    state = tmp_path / "state"
    assert (state / "config.json").exists()
    first = podgate("masquerade", "clean", "--state-dir", state, namespace=node)
    assert (first.code, first.err) == (0, "")
    assert TABLE in first.out
    assert str(state) in first.out
    assert [item["table"]["name"] for item in nft(node, "tables")] == ["other"]
    assert not state.exists()
    second = podgate("masquerade", "clean", "--state-dir", state, namespace=node)
    assert second == (0, "nothing of ours was there\n", "")


@pytest.mark.slow
def test_a_second_agent_and_clean_are_refused_by_name_while_one_runs(node: NetNamespace, tmp_path: Path) -> None:
    with running(node, tmp_path) as agent:
        for words in (("run", "--metrics-addr", ""), ("run", "--once"), ("clean",), ("clean",)):
            refused = podgate("masquerade", *words, "--state-dir", tmp_path / "state", namespace=node)
            assert refused.code == 1, words
            assert f"podgate masquerade is already running on this node (process {agent.pid})" in refused.err
            assert "Traceback" not in refused.err
        assert is_whole(node, DEFAULTS)
        assert agent.ready()
        with netns() as other_node, running(other_node, tmp_path / "other"):
            assert is_whole(other_node, DEFAULTS)


@pytest.mark.slow
def test_the_verbs_that_only_look_work_while_one_runs(node: NetNamespace, tmp_path: Path) -> None:
    with running(node, tmp_path):
        assert podgate("masquerade", "plan", namespace=node) == (0, "no difference\n", "")
        assert podgate("masquerade", "explain", "10.0.0.1", namespace=node).code == 0


def test_once_writes_the_rules_keeps_the_configuration_and_ends(node: NetNamespace, tmp_path: Path) -> None:
    path, state = tmp_path / "ip-masq-agent", tmp_path / "state"
    path.write_text("nonMasqueradeCIDRs: [192.0.2.0/24]\n")
    done = podgate("masquerade", "run", "--once", "--config", path, "--state-dir", state, namespace=node)
    assert (done.code, done.out) == (0, "")
    assert is_whole(node, frozenset({"192.0.2.0/24", "169.254.0.0/16"}))
    assert (state / "config.json").exists()


def test_once_with_a_bad_file_enforces_the_last_good_one(node: NetNamespace, tmp_path: Path) -> None:
    path, words = (
        tmp_path / "ip-masq-agent",
        ("--state-dir", tmp_path / "state", "--config", tmp_path / "ip-masq-agent"),
    )
    path.write_text("nonMasqueradeCIDRs: [192.0.2.0/24]\n")
    assert podgate("masquerade", "run", "--once", *words, namespace=node).code == 0
    node.run("nft", "flush", "ruleset")
    path.write_text("nonMasqueradeCIDRs: [abc]\n")
    done = podgate("masquerade", "run", "--once", *words, namespace=node)
    assert "abc" in done.err
    assert done.code == 1, "what was written is not in force"
    assert is_whole(node, frozenset({"192.0.2.0/24", "169.254.0.0/16"}))


@pytest.mark.slow
def test_once_with_a_bad_file_and_nothing_kept_writes_the_defaults_and_fails(
    node: NetNamespace, tmp_path: Path
) -> None:
    path = tmp_path / "ip-masq-agent"
    path.write_text("nonMasqueradeCIDRs: [abc]\n")
    done = podgate("masquerade", "run", "--once", "--config", path, "--state-dir", tmp_path / "state", namespace=node)
    assert done.code == 1
    assert f"{path}:1" in done.err
    assert is_whole(node, DEFAULTS)


@pytest.mark.slow
def test_run_and_clean_without_privileges_say_what_is_missing(node: NetNamespace, tmp_path: Path) -> None:
    bare = ("setpriv", "--bounding-set", "-all", "--inh-caps", "-all")
    for words, code in ((("run", "--once"), 1), (("clean",), 1), (("plan",), 2)):
        state = () if words == ("plan",) else ("--state-dir", tmp_path / "state")
        done = podgate("masquerade", *words, *state, namespace=node, under=bare)
        assert (done.code, "CAP_NET_ADMIN" in done.err, "Traceback" in done.err) == (code, True, False), done.err


@pytest.mark.slow
def test_a_restart_under_another_version_of_the_rules_replaces_them(node: NetNamespace, tmp_path: Path) -> None:
    with running(node, tmp_path) as agent:
        agent.stop()
    old = node.run("nft", "list", "ruleset").replace("fully-random comment", "comment")
    node.run("nft", "-f", "-", text=f"flush ruleset\n{old.replace('[8a2a20f9]', '[00000000]')}")
    with running(node, tmp_path, "--no-random-fully"):
        assert "fully-random" not in node.run("nft", "list", "ruleset")
    with running(node, tmp_path):
        assert "fully-random" in node.run("nft", "list", "ruleset")


@pytest.mark.slow
def test_own_pods_come_and_go_with_the_routes_to_them(node: NetNamespace, tmp_path: Path) -> None:
    with netns() as pod, running(node, tmp_path):
        assert elements(node, "own-pods") == frozenset()
        node.connect("pod0", pod, "eth0")
        node.run("ip", "route", "add", "10.244.1.2/32", "dev", "pod0")
        poll(lambda: elements(node, "own-pods") == frozenset({"10.244.1.2"}))
        node.run("ip", "route", "add", "10.244.1.9/32", "dev", "pod0")
        poll(lambda: elements(node, "own-pods") == frozenset({"10.244.1.2", "10.244.1.9"}))
        node.run("ip", "link", "del", "pod0")
        poll(lambda: elements(node, "own-pods") == frozenset())


def test_started_before_its_network_it_waits_for_nothing(tmp_path: Path) -> None:
    with netns() as node:
        node.run("ip", "link", "set", "lo", "down")
        with started(node, tmp_path) as agent:
            poll(lambda: is_whole(node, DEFAULTS))
            node.run("ip", "link", "set", "lo", "up")
            poll(agent.ready)
