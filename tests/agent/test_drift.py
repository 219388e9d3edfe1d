"""Others change what is ours: noticed from the kernel's notifications, put right, counted, and told once.

Here: damages of each kind, one after the other. Not here: how soon (benchmarks/, ./dev soak).
Invariant: every wait is far shorter than the period of the drift check, so what is put right was notified.
"""

import time
from pathlib import Path

import pytest

from tests.support.agent import DEFAULTS, TABLE, elements, is_whole, nft, rules, running
from tests.support.netns import NetNamespace
from tests.support.poll import poll

pytestmark = pytest.mark.kernel

DAMAGES = {
    "the whole ruleset is flushed": "flush ruleset",
    "the table is deleted": f"delete table ip {TABLE}",
    "an element is deleted": f"delete element ip {TABLE} keep {{ 10.0.0.0/8 }}",
    "an element is added": f"add element ip {TABLE} keep {{ 198.51.100.0/24 }}",
    "the set is flushed": f"flush set ip {TABLE} keep",
    "the rules are flushed": f"flush chain ip {TABLE} postrouting",
    "a rule is put first": f"insert rule ip {TABLE} postrouting accept",
    "the chain is deleted": f"flush chain ip {TABLE} postrouting\ndelete chain ip {TABLE} postrouting",
    "a chain is added": f"add chain ip {TABLE} foreign",
    "the table is put to sleep": f"add table ip {TABLE} {{ flags dormant; }}",
}
HEAL_GAP_SECONDS = 0.3


def is_right(node: NetNamespace) -> bool:
    table = nft(node, "table", "ip", TABLE)
    chains = [item["chain"]["name"] for item in table if "chain" in item]
    awake = not any("dormant" in item["table"].get("flags", ()) for item in table if "table" in item)
    return is_whole(node, DEFAULTS) and chains == ["postrouting"] and awake


@pytest.mark.slow
def test_every_damage_is_noticed_and_put_right(node: NetNamespace, tmp_path: Path) -> None:
    path = tmp_path / "ip-masq-agent"
    path.write_text("resyncInterval: 24h\n")
    with running(node, tmp_path, "--config", path) as agent:
        for number, (what, damage) in enumerate(DAMAGES.items(), 1):
            assert is_right(node), what
            node.run("nft", "-f", "-", text=damage + "\n")
            poll(lambda: is_right(node))
            poll(lambda: agent.metric('drift_healed_total{step="nftables/ip"}') == number)  # noqa: B023 - called at once
        told = [
            line["message"] for line in agent.log() if "somebody else" in line["message"] or "healed" in line["message"]
        ]
        assert ["somebody else" in message for message in told] == [True, False] * len(DAMAGES), told
        assert agent.ready()


@pytest.mark.slow
def test_a_single_deleted_rule_is_put_back(node: NetNamespace, tmp_path: Path) -> None:
    with running(node, tmp_path):
        for place in range(5):
            handle = rules(node)[place].handle
            before = [rule.comment for rule in rules(node)]
            node.run("nft", "delete", "rule", "ip", TABLE, "postrouting", "handle", str(handle))
            poll(lambda: [rule.comment for rule in rules(node)] == before)  # noqa: B023 - called at once


@pytest.mark.slow
def test_a_rule_that_took_the_place_of_ours_goes(node: NetNamespace, tmp_path: Path) -> None:
    """It bears our comment, so that only what it does tells it apart."""
    with running(node, tmp_path) as agent:
        for place in range(len(rules(node))):
            text = node.run("nft", "list", "table", "ip", TABLE)
            ours = rules(node)[place]
            command = f"replace rule ip {TABLE} postrouting handle {ours.handle} ip daddr 192.0.2.1 accept"
            node.run("nft", "-f", "-", text=f'{command} comment "{ours.comment}"\n')
            poll(lambda: node.run("nft", "list", "table", "ip", TABLE) == text)  # noqa: B023 - called at once
        poll(lambda: len(agent.log("drift healed")) == len(rules(node)))


def test_what_is_not_ours_is_left_alone_and_not_told(node: NetNamespace, tmp_path: Path) -> None:
    with running(node, tmp_path) as agent:
        node.run(
            "nft",
            "-f",
            "-",
            text="table ip other {\n  set s {\n    type ipv4_addr\n    elements = { 10.0.0.1 }\n  }\n}\n",
        )
        node.run("nft", "delete", "element", "ip", TABLE, "keep", "{ 10.0.0.0/8 }")
        poll(lambda: elements(node) == DEFAULTS)
        node.run("nft", "delete", "table", "ip", "other")
        node.run("nft", "delete", "element", "ip", TABLE, "keep", "{ 10.0.0.0/8 }")
        poll(lambda: elements(node) == DEFAULTS)
        assert len(agent.log("somebody else")) == 2


@pytest.mark.slow
def test_two_programs_that_fight_do_not_eat_the_node(node: NetNamespace, tmp_path: Path) -> None:
    with running(node, tmp_path) as agent:
        started = time.monotonic()
        for _ in range(100):
            node.run("nft", "flush", "set", "ip", TABLE, "keep")
        poll(lambda: is_right(node))
        healed = agent.metric('drift_healed_total{step="nftables/ip"}')
        assert 1 <= healed <= 2 + (time.monotonic() - started) / HEAL_GAP_SECONDS


@pytest.mark.slow
def test_the_drift_check_finds_what_was_not_notified(node: NetNamespace, tmp_path: Path) -> None:
    path = tmp_path / "ip-masq-agent"
    path.write_text("resyncInterval: 1s\n")
    with running(node, tmp_path, "--config", path) as agent:
        before, asked = agent.metric('sync_total{result="success",step="nftables/ip"}'), time.monotonic()
        poll(lambda: agent.metric('sync_total{result="success",step="nftables/ip"}') >= before + 2)
        assert agent.metric('sync_age_seconds{step="nftables/ip"}') < time.monotonic() - asked
        assert not agent.log("drift healed")
