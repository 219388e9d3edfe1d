"""The declaration: which back end ``--backend`` means on a node, its steps, and what was kept by rules alone."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from podgate.commandline.options import settings_from
from podgate.features.masquerade.backends import BackendCompiler, Choice, States
from podgate.features.masquerade.compile import KEPT
from podgate.features.masquerade.config import from_kept
from podgate.features.masquerade.feature import Masquerade, choose_backend
from podgate.features.masquerade.settings import Settings
from podgate.features.masquerade.to_iptables import KEPT_CHAINS, OWNERS
from podgate.joints import Compiled, ForeignNat, ForeignRule, Inputs
from podgate.model.files import Present
from podgate.model.frozen import ObjectRef
from podgate.model.problems import Problem
from podgate.targets.iptables.listing import read_listing
from tests.support.netns import NetNamespace, netns
from tests.support.old_agent import agents_rules, old_agent

PATH = "/etc/config/ip-masq-agent"
INPUTS = Inputs(files={PATH: Present(b"nonMasqueradeCIDRs: [10.1.0.0/16, 10.2.0.0/16]")})
MEANT = [
    # --backend, the kubelet's hint, what it means
    ("nftables", "iptables-legacy", "nftables"),
    ("auto", "", "nftables"),
    ("auto", "iptables-nft", "iptables-nft"),
    ("auto", "ip6tables-legacy", "iptables-legacy"),
    ("iptables", "", "iptables-nft"),
    ("iptables", "iptables-legacy", "iptables-legacy"),
    ("iptables-nft", "iptables-legacy", "iptables-nft"),
    ("iptables-legacy", "iptables-nft", "iptables-legacy"),
]


@pytest.mark.kernel
@pytest.mark.parametrize(("wanted", "hint", "meant"), MEANT)
def test_what_a_back_end_means_on_a_node(wanted: str, hint: str, meant: str) -> None:
    with netns() as node:
        if hint:
            node.run(hint, "-t", "mangle", "-N", "KUBE-IPTABLES-HINT")
        choice = node.call(lambda: choose_backend(wanted))
        assert choice.backend == meant
        assert (choice.version == "") is (meant == "nftables")


@pytest.mark.kernel
def test_compiler_and_steps_agree_although_the_hint_changes() -> None:
    with netns() as node:
        feature, settings = Masquerade(), settings_from(Settings, {"backend": "iptables"})

        def names(namespace: NetNamespace) -> tuple[str, list[str]]:
            made = namespace.call(lambda: feature.compiler(settings)(Inputs()).states)
            return next(iter(made.iptables)), [step.name for step in namespace.call(lambda: feature.steps(settings))]

        before = names(node)
        node.run("iptables-legacy", "-t", "mangle", "-N", "KUBE-IPTABLES-HINT")
        assert names(node) == before
        assert before[1][:2] == ["iptables-nft/ip", "iptables-nft/ip6"]


def test_steps_know_the_chains_of_an_earlier_run(tmp_path: Path) -> None:
    (tmp_path / KEPT_CHAINS).write_text('["OLD"]')
    for backend, recorded in (("nftables", {"OLD"}), ("iptables-nft", {"OLD"})):
        settings = settings_from(Settings, {"backend": backend, "state_dir": str(tmp_path)})
        states = Masquerade().compiler(settings)(Inputs()).states
        steps = {step.name: step for step in Masquerade().steps(settings)}
        assert len(steps) == 6
        for name, step in steps.items():
            if name.startswith("iptables"):
                assert step.want(states).recorded == step.empty.recorded == recorded
            followed = name.startswith(f"{backend}/")
            assert (len(step.followers), step.after == ()) == (int(followed), followed)
    steps = {step.name: step for step in Masquerade().steps(settings_from(Settings, {"state_dir": "/nowhere"}))}
    assert steps["iptables-nft/ip"].empty.recorded == frozenset()


def kept_networks(kept: bytes) -> set[str]:
    config = from_kept(kept, ("ip",))
    assert config is not None
    assert config.masq_link_local
    return {str(entry.network) for entry in config.entries}


def test_the_list_is_recovered_from_our_rules_or_those_of_the_old_agent() -> None:
    feature, wanted = Masquerade(), {"10.1.0.0/16", "10.2.0.0/16", "169.254.0.0/16"}
    nftables = BackendCompiler(Settings(), Choice())(INPUTS).states
    assert kept_networks(feature.recover({"nftables/ip": nftables.ip, "nftables/ip6": nftables.ip6})[KEPT]) == wanted
    choice = Choice("iptables-legacy")
    iptables = BackendCompiler(Settings(), choice)(INPUTS).states.iptables_of("iptables-legacy", "ip")
    assert kept_networks(feature.recover({"nftables/ip": nftables.ip6, "iptables-legacy/ip": iptables})[KEPT]) == wanted
    old = read_listing(agents_rules(kept=("10.7.0.0/16",)), "ip", "nft", OWNERS)
    assert kept_networks(feature.recover({"iptables-nft/ip": old})[KEPT]) == {"10.7.0.0/16"}
    assert feature.recover({"iptables-nft/ip": read_listing("", "ip", "nft", OWNERS)}) == {}
    assert feature.recover({}) == {}


BACKENDS = {
    "nftables": Choice(),
    "iptables": Choice("iptables-nft"),
    "ip-masq-agent's rules": Choice("iptables-nft"),
}


def _read_back(backend: str, inputs: Inputs) -> dict[str, Any]:
    settings = settings_from(Settings, {"rules": "ip-masq-agent", "backend": "iptables"} if "agent" in backend else {})
    states = BackendCompiler(settings, BACKENDS[backend])(inputs).states
    return {"nftables/ip": states.ip, "iptables-nft/ip": states.iptables_of("iptables-nft", "ip")}


def test_an_emptied_list_tells_nothing() -> None:
    """Somebody flushed the set; a start with a bad file must not masquerade everything for that."""
    table = _read_back("nftables", INPUTS)["nftables/ip"]
    emptied = msgspec.structs.replace(table, elements={})
    assert Masquerade().recover({"nftables/ip": emptied}) == {}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_list_that_stood_in_for_a_bad_one_is_not_recovered(backend: str) -> None:
    bad = Inputs(files={PATH: Present(b"nonMasqueradeCIDRs: [x]")})
    assert Masquerade().recover(_read_back(backend, INPUTS)) != {}
    assert Masquerade().recover(_read_back(backend, Inputs())) != {}, "nobody wrote anything: the list is meant"
    assert Masquerade().recover(_read_back(backend, bad)) == {}


def test_render_is_what_iptables_restore_takes() -> None:
    settings = settings_from(Settings, {"backend": "iptables", "rules": "ip-masq-agent", "enable_ipv6": True})
    states = BackendCompiler(settings, Choice("iptables-nft"))(Inputs()).states
    answer = Masquerade().render(states)
    head = "# {}-restore --noflush\n".format
    assert answer.text == "\n".join((head("iptables-nft") + old_agent(), head("ip6tables-nft") + old_agent(ipv6=True)))
    tables = json.loads(json.dumps(answer.data))["tables"]
    assert [row["program"] for row in tables] == ["iptables-nft", "ip6tables-nft"]


class Looking:
    """What ``check`` may ask for."""

    inputs = INPUTS

    def __init__(self, *rules: ForeignRule) -> None:
        self._rules = rules

    def where(self, problem: Problem) -> str:
        return f"{problem.ref}:{problem.field}"

    def line(self, ref: ObjectRef, field: str) -> int | None:
        return None

    def written(self) -> Mapping[ObjectRef, Any]:
        return {}

    def others(self) -> int:
        return 0

    def foreign_nat(self, ours: str) -> ForeignNat:
        return ForeignNat(self._rules)


@pytest.mark.parametrize(("backend", "found"), [("nftables", 2), ("iptables-nft", 1)])
def test_check_reports_competing_rules_but_not_our_own(backend: str, found: int) -> None:
    """T29."""
    rules = (
        ForeignRule("ip nat", "IP-MASQ-AGENT", "-j MASQUERADE --random-fully"),
        ForeignRule("ip nat", "POSTROUTING", "-o eth0 -j MASQUERADE"),
    )
    choice = Choice("nftables") if backend == "nftables" else Choice("iptables-nft")
    compiled: Compiled[States] = BackendCompiler(Settings(), choice)(INPUTS)
    rows = Masquerade().check(compiled, Looking(*rules)).data["findings"]
    assert len([row for row in rows if row["reason"] == "CompetingMasquerade"]) == found


def test_samples_count_what_is_written() -> None:
    feature = Masquerade()
    nftables = feature.samples(BackendCompiler(Settings(), Choice())(INPUTS).states)
    assert {sample.labels[1][1]: sample.value for sample in nftables} == {"keep": 2, "own-pods": 0}
    iptables = feature.samples(BackendCompiler(Settings(), Choice("iptables-nft"))(INPUTS).states)
    assert {sample.labels[1][1]: sample.value for sample in iptables} == {"IP-MASQ-AGENT": 6}
