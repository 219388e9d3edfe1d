"""Which foreign rules a packet meets before our jump."""

from podgate.joints import ForeignRule
from podgate.targets.iptables.listing import read_listing
from podgate.targets.iptables.rivals import rivals
from tests.support.iptables_states import OWNERS

JUMP = '-A POSTROUTING -m comment --comment "ours: all" -j OURS'
CHAINS = """\
:POSTROUTING ACCEPT [0:0]
:OURS - [0:0]
:CNI - [0:0]
:CNI-1 - [0:0]
:LOOP - [0:0]
-A OURS -m comment --comment "ours: x" -j MASQUERADE
-A CNI -d 10.0.0.0/8 -j ACCEPT
-A CNI -j CNI-1
-A CNI-1 -s 10.244.1.0/24 -j SNAT --to-source 192.0.2.1
-A LOOP -j CNI
-A LOOP -j LOOP
"""


def found(*postrouting: str) -> tuple[ForeignRule, ...]:
    listing = "*nat\n" + CHAINS + "\n".join(postrouting) + "\nCOMMIT\n"
    return rivals(read_listing(listing, "ip", "nft", OWNERS))


CNI = ForeignRule("ip nat", "CNI-1", "-s 10.244.1.0/24 -j SNAT --to-source 192.0.2.1")


def test_a_rule_before_our_jump_is_told_and_one_behind_it_is_not() -> None:
    before, behind = "-A POSTROUTING -s 10.0.0.0/8 -j MASQUERADE", "-A POSTROUTING -s 10.9.0.0/16 -j MASQUERADE"
    assert found(before, JUMP, behind) == (ForeignRule("ip nat", "POSTROUTING", "-s 10.0.0.0/8 -j MASQUERADE"),)


def test_chains_are_followed_and_a_loop_ends() -> None:
    assert found("-A POSTROUTING -j CNI", JUMP) == (CNI,)
    assert found("-A POSTROUTING -j LOOP", JUMP) == (CNI,)
    assert found(JUMP, "-A POSTROUTING -j CNI") == ()


def test_without_our_jump_all_count() -> None:
    assert found("-A POSTROUTING -j CNI", "-A POSTROUTING -j NETMAP --to 10.0.0.0/8") == (
        CNI,
        ForeignRule("ip nat", "POSTROUTING", "-j NETMAP --to 10.0.0.0/8"),
    )


def test_other_hooks_do_not_count() -> None:
    assert found(JUMP) == ()
