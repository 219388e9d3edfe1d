"""One intent in all back ends: the chosen one holds it, the others hold nothing; each step waits for the right one."""

import pytest

from podgate.commandline.options import settings_from
from podgate.features.masquerade.backends import (
    BACKENDS,
    FAMILIES,
    Backend,
    BackendCompiler,
    Choice,
    States,
    in_order,
    step_name,
    steps_before,
)
from podgate.features.masquerade.policy import MASQUERADE_POLICY, MasqueradePolicy, policy_ref
from podgate.features.masquerade.settings import Settings
from podgate.features.masquerade.to_iptables import KEPT_CHAINS, recorded_chains
from podgate.joints import Compiled, Inputs
from podgate.model.kinds.meta import ObjectMeta
from podgate.model.snapshot import Listed, Snapshot
from podgate.model.table import Table

NOTHING = Inputs()


def compiled(chosen: Backend, inputs: Inputs = NOTHING, version: str = "", **options: object) -> Compiled[States]:
    return BackendCompiler(settings_from(Settings, options), Choice(chosen, version))(inputs)


def held(states: States) -> set[str]:
    """Give the steps that hold something."""
    tables = {step_name("nftables", family) for family in FAMILIES if states.nftables_of(family).present}
    return tables | {
        step_name(backend, family)
        for backend in BACKENDS[1:]
        for family in FAMILIES
        if states.iptables_of(backend, family).chains
    }


@pytest.mark.parametrize("chosen", BACKENDS)
def test_only_the_chosen_back_end_holds_something(chosen: Backend) -> None:
    assert held(compiled(chosen).states) == {f"{chosen}/ip"}
    assert held(compiled(chosen, enable_ipv6=True).states) == {f"{chosen}/ip", f"{chosen}/ip6"}


@pytest.mark.parametrize("chosen", BACKENDS)
def test_the_others_come_after_the_chosen_one_of_their_own_family(chosen: Backend) -> None:
    choice = Choice(chosen)
    assert in_order(choice)[0] == chosen
    assert sorted(in_order(choice)) == sorted(BACKENDS)
    for backend in BACKENDS:
        for family in FAMILIES:
            wanted = () if backend == chosen else (f"{chosen}/{family}",)
            assert steps_before(choice, backend, family) == wanted


def test_the_chains_are_recorded_for_the_next_run() -> None:
    keep = compiled("iptables-nft", masq_chain="IP-MASQ", enable_ipv6=True).keep
    assert recorded_chains(keep[KEPT_CHAINS]) == {"IP-MASQ"}
    assert KEPT_CHAINS not in compiled("nftables").keep
    # What an earlier run recorded is gone once its chains are.
    after = compiled("nftables", Inputs(kept={KEPT_CHAINS: keep[KEPT_CHAINS]})).keep
    assert recorded_chains(after[KEPT_CHAINS]) == frozenset()


def test_iptables_too_old_for_random_ports_gets_none() -> None:
    """T25."""
    for version, known in (("1.6.1", False), ("1.6.2", True), ("", True)):
        state = compiled("iptables-legacy", version=version).states.iptables_of("iptables-legacy", "ip")
        assert state.chains[0].rules[-1].target.fully_random is known  # type: ignore[union-attr]


NAMES = "spec.outputInterfaces[0]"


@pytest.mark.parametrize(("backend", "refused"), [("nftables", False), ("iptables-nft", True)])
def test_what_iptables_cannot_express_is_refused_by_name_and_not_explained(backend: Backend, refused: bool) -> None:
    spec = {"action": "Masquerade", "to": [{"cidr": "10.9.0.0/16"}], "outputInterfaces": ["tun+"]}
    policy = MasqueradePolicy(ObjectMeta(name="vpn"), spec)
    inputs = Inputs(Snapshot({MASQUERADE_POLICY.kind: Listed(Table.of({policy_ref("vpn"): policy}))}))
    found = compiled(backend, inputs)
    problems = [problem for each in found.problems.values() for problem in each if problem.field == NAMES]
    assert [(problem.ref.name, problem.reason) for problem in problems] == [("vpn", "NotInIptables")] * refused
    assert [each.ref.name for each in found.states.intent.families[0].policies] == ["vpn"] * (not refused)
    # With the old rules nobody asks for policies at all.
    old = compiled("iptables-nft", inputs, backend="iptables", rules="ip-masq-agent")
    assert old.states.intent.families[0].policies == ()
    assert [problem for each in old.problems.values() for problem in each] == []


def test_unchanged_inputs_give_the_same_states() -> None:
    compiler = BackendCompiler(Settings(), Choice("iptables-nft"))
    assert compiler(Inputs()).states is compiler(Inputs()).states
