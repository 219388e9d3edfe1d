"""Plans from listings of table nat to wanted states, as people read them and as iptables-restore loads them.

The cases are in cases/plans.case: ``--- have`` is what iptables-save shows between ``*nat`` and ``COMMIT``,
``--- want`` the name of a state below, ``--- plan`` what people see, ``--- commands`` what iptables-restore gets. After
the commands nothing may be left to do.
"""

from pathlib import Path

import pytest

from podgate.targets.iptables.diff import diff
from podgate.targets.iptables.fake import FakeIptables
from podgate.targets.iptables.listing import read_listing
from podgate.targets.iptables.render import render, state_json, transaction
from podgate.targets.iptables.state import BUILT_IN, State
from tests.support.cases import Case, read_cases
from tests.support.iptables_states import CHAIN, OWNERS, chain_text, keeping, nothing

STATES: dict[str, State] = {
    "nothing": nothing(),
    "nothing, recorded": nothing(recorded=(CHAIN, "PG-OLD")),
    "keeping": keeping("10.0.0.0/8", "192.168.0.0/16"),
    "keeping, recorded": keeping("10.0.0.0/8", "192.168.0.0/16", recorded=(CHAIN,)),
    "keeping in BOOT": keeping("10.0.0.0/8", chain="BOOT"),
    "keeping in FOREIGN": keeping("10.0.0.0/8", chain="FOREIGN"),
    "keeping in a long name": keeping("10.0.0.0/8", chain="A" * 29),
}
HEAD = "*nat\n" + "".join(f":{name} ACCEPT [0:0]\n" for name in BUILT_IN)


@pytest.mark.parametrize("case", read_cases(Path(__file__).parent / "cases" / "plans.case"), ids=str)
def test_a_plan(case: Case) -> None:
    have_text, want_text, plan_text, commands = (case.one(name) for name in ("have", "want", "plan", "commands"))
    assert want_text is not None
    assert plan_text is not None
    fake = FakeIptables("ip", "nft", OWNERS)
    if have_text:
        fake.restore("*nat\n" + have_text.text.rstrip() + "\nCOMMIT\n")
    listing = HEAD + have_text.text + "COMMIT\n" if have_text else ""
    have = read_listing(listing, "ip", "nft", OWNERS)
    want = STATES[want_text.text.strip()]
    plan = diff(have, want)
    assert str(plan).splitlines() == plan_text.text.splitlines()
    text = "" if plan.refusal else transaction(plan)
    assert text.splitlines() == (commands.text.splitlines() if commands else [])
    assert bool(plan) == bool(text or plan.refusal)
    if not text:
        return
    fake.restore(text)
    left = diff(read_listing(fake.save(), "ip", "nft", OWNERS), want)
    assert not left, str(left)


def test_states_of_different_programs_are_not_compared() -> None:
    with pytest.raises(ValueError, match="table nat of iptables-nft cannot become table nat of ip6tables-nft"):
        diff(nothing("ip"), nothing("ip6"))


def test_a_rendered_state_is_its_own_transaction() -> None:
    want = STATES["keeping"]
    assert render(want) == transaction(diff(nothing(), want))
    assert render(nothing()) == transaction(diff(nothing(), nothing())) == ""


def test_the_text_of_the_chains_alone_leaves_built_in_chains_out() -> None:
    lines = render(STATES["keeping"]).splitlines()
    assert chain_text(STATES["keeping"]).splitlines() == [line for line in lines if "POSTROUTING" not in line]


def test_a_state_as_values_for_programs() -> None:
    values = state_json(keeping("10.0.0.0/8", family="ip", binary="legacy"))
    assert values["program"] == "iptables-legacy"
    assert [chain["name"] for chain in values["chains"]] == [CHAIN]
    assert values["chains"][0]["rules"][0]["rule"].endswith("-d 10.0.0.0/8 -j RETURN")
    assert [rule["chain"] for rule in values["built_in"]] == ["POSTROUTING"]


def test_from_one_wanted_state_to_the_next_only_the_chain_that_differs_is_written() -> None:
    plan = diff(keeping("10.0.0.0/8"), keeping("172.16.0.0/12"))
    assert [chain.name for chain in plan.filled] == [CHAIN]
    assert (plan.added, plan.removed, plan.dropped, plan.touches()) == ((), (), (), ())
