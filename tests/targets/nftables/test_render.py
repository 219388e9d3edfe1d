"""Tables whose rules are code are shown to people as others are, and never given to nft."""

import msgspec
import pytest

from podgate.targets.nftables.diff import diff
from podgate.targets.nftables.render import listing, render, state_json, transaction
from podgate.targets.nftables.state import Chain, Rule, State
from tests.support.nftables_code import balancing, endpoint, service

BALANCED = balancing({service("10.96.0.1"): (endpoint("10.0.0.1"), endpoint("10.0.0.2"))})
SHOWN = """\
table ip pg-test {
	comment "a legend"

	map slots {
		type ipv4_addr . inet_proto . inet_service . mark : ipv4_addr . inet_service
		comment "endpoints by slot"
		elements = {
			10.96.0.1 . tcp . 80 . 0x00000000 : 10.0.0.1 . 8080,
			10.96.0.1 . tcp . 80 . 0x00000001 : 10.0.0.2 . 8080,
		}
	}

	map counts {
		type mark . mark : verdict
		elements = {
			0x00000000 . 0x00000002 : goto to-2,
		}
	}

	map services {
		type ipv4_addr . inet_proto . inet_service : mark
		comment "how many endpoints"
		elements = {
			10.96.0.1 . tcp . 80 : 0x00000002,
		}
	}

	chain prerouting {
		type nat hook prerouting priority -100; policy accept;
		to the number of endpoints comment "by address [DIGEST]"
	}

	chain to-2 {
		dnat to a slot of 2 comment "one endpoint [DIGEST]"
	}

	chain postrouting {
		type nat hook postrouting priority 100; policy accept;
		masquerade comment "all [DIGEST]"
	}
}
"""


def test_a_listing_shows_texts_and_comments() -> None:
    text = listing(BALANCED)
    for chain in BALANCED.chains:
        for rule in chain.rules:
            text = text.replace(rule.mark, f"{rule.comment} [DIGEST]")
    assert text == SHOWN


def test_values_for_programs_have_texts_and_comments() -> None:
    assert state_json(BALANCED)["chains"][1] == {
        "name": "to-2",
        "hook": None,
        "rules": [{"rule": "dnat to a slot of 2", "comment": "one endpoint"}],
    }


def test_a_plan_shows_texts_and_comments() -> None:
    text = str(diff(State.absent("ip", BALANCED.name), BALANCED))
    assert "    + dnat to a slot of 2  # one endpoint" in text
    assert "  + 2 elements in slots: 10.96.0.1 . tcp . 80 . 0x00000000 : 10.0.0.1 . 8080, 10.96" in text


def test_nft_never_gets_it() -> None:
    without = msgspec.structs.replace(BALANCED, elements={})
    with pytest.raises(ValueError, match="nft cannot load table ip pg-test"):
        render(BALANCED)
    with pytest.raises(ValueError, match="nft cannot load table ip pg-test"):
        transaction(diff(without, BALANCED))


def test_a_text_of_two_lines_is_none() -> None:
    (rule,) = BALANCED.chains[0].rules
    odd = Chain("odd", (Rule("one\ntwo", "why", rule.code),))
    with pytest.raises(ValueError, match=r"'one\\ntwo' is not the text of one rule"):
        listing(msgspec.structs.replace(BALANCED, chains=(odd,)))


def test_the_mark_of_a_rule_changes_with_its_code() -> None:
    (rule,) = BALANCED.chains[0].rules
    assert rule.mark != Rule(rule.text, rule.comment, rule.code[1:]).mark
    assert rule.mark == Rule(rule.text, rule.comment, tuple(rule.code)).mark
