"""Rules of other programs: picked out of listings, and read from the real kernel."""

from functools import partial
from pathlib import Path

import pytest

from podgate.joints import ForeignRule
from podgate.sources.netfilter import from_iptables_save, from_nft, load_foreign_nat
from tests.support.netns import netns

NFT = """\
table ip podgate-masquerade {
	chain postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		masquerade fully-random
	}
}
table ip nat {
	set masquerade-these {
		type ipv4_addr
	}
	chain POSTROUTING {
		type nat hook postrouting priority srcnat; policy accept;
		ip saddr 10.0.0.0/8 counter packets 0 bytes 0 masquerade
		counter packets 0 bytes 0 jump OTHER
	}

	chain OTHER {
		ip daddr 10.9.9.9 snat to 192.0.2.1
		xt target "MASQUERADE"
	}
}
"""

SAVED = """\
*nat
:POSTROUTING ACCEPT [0:0]
:IP-MASQ - [0:0]
-A POSTROUTING -m addrtype ! --dst-type LOCAL -j IP-MASQ
-A IP-MASQ -d 10.0.0.0/8 -j RETURN
-A IP-MASQ -m comment --comment "ip-masq: must be last" -j MASQUERADE
COMMIT
"""


def test_rules_of_other_tables_that_translate_are_picked_out_of_nft() -> None:
    assert list(from_nft(NFT, "podgate-masquerade")) == [
        ForeignRule("ip nat", "POSTROUTING", "ip saddr 10.0.0.0/8 counter packets 0 bytes 0 masquerade"),
        ForeignRule("ip nat", "OTHER", "ip daddr 10.9.9.9 snat to 192.0.2.1"),
        ForeignRule("ip nat", "OTHER", 'xt target "MASQUERADE"'),
    ]


def test_rules_that_translate_are_picked_out_of_iptables_save() -> None:
    found = list(from_iptables_save(SAVED, "ip"))
    assert found == [ForeignRule("ip nat", "IP-MASQ", '-m comment --comment "ip-masq: must be last" -j MASQUERADE')]


@pytest.mark.kernel
@pytest.mark.parametrize("program", ["iptables-nft", "iptables-legacy"])
def test_live_rules_are_found_whichever_program_wrote_them(program: str) -> None:
    with netns() as namespace:
        namespace.run(program, "-t", "nat", "-A", "POSTROUTING", "-s", "10.0.0.0/8", "-j", "MASQUERADE")
        found = namespace.call(partial(load_foreign_nat, "podgate-masquerade"))
        assert [(rule.table, rule.chain) for rule in found.rules] == [("ip nat", "POSTROUTING")]
        assert "10.0.0.0/8" in found.rules[0].text
        assert found.unread == ""


@pytest.mark.kernel
def test_asking_does_not_create_the_tables_of_iptables_legacy() -> None:
    with netns() as namespace:
        assert namespace.call(partial(load_foreign_nat, "podgate-masquerade")).rules == ()
        assert namespace.run("cat", "/proc/net/ip_tables_names").strip() == ""


@pytest.mark.kernel
def test_rules_found_count_although_the_old_tables_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """nft is where system programs are, which need not be in $PATH."""
    broken = tmp_path / "iptables-legacy-save"
    broken.write_text("#!/bin/sh\necho it is broken >&2\nexit 3\n")
    broken.chmod(0o755)
    with netns() as namespace:
        namespace.run("iptables-legacy", "-t", "nat", "-A", "POSTROUTING", "-j", "MASQUERADE")
        namespace.run("iptables-nft", "-t", "nat", "-A", "POSTROUTING", "-j", "MASQUERADE")
        monkeypatch.setenv("PATH", str(tmp_path))
        found = namespace.call(partial(load_foreign_nat, "podgate-masquerade"))
    assert [(rule.table, rule.chain) for rule in found.rules] == [("ip nat", "POSTROUTING")]
    assert found.unread == "it is broken"
