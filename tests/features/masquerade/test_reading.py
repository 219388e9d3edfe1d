"""What only several texts show; cases/config.case has one text at a time."""

from podgate.features.masquerade.config import CIDR_LIMIT, Config, default_entries, merge
from podgate.features.masquerade.prefixes import RuleOrigin
from podgate.features.masquerade.reading import Text, read
from podgate.model.frozen import ObjectRef, file_ref

DEFAULTS = default_entries(all_reserved=False)
MAP = ObjectRef("ConfigMap", "c", "ns")


def config_of(data: bytes, name: str = "/a", *, alone: bool = True) -> Config:
    reading = read(Text(file_ref(name), data, alone=alone), DEFAULTS, ("ip", "ip6"))
    assert reading.config is not None, reading.problems
    return reading.config


def test_only_a_text_that_stands_alone_gets_the_built_in_list() -> None:
    assert config_of(b"masqLinkLocal: true").entries == DEFAULTS
    assert config_of(b"masqLinkLocal: true", alone=False).entries == ()
    assert config_of(b"cidrLimit: 0", alone=False).cidr_limit == 0


def test_origins_are_fields_of_the_object() -> None:
    reading = read(Text(MAP, b"nonMasqueradeCIDRs: [fd00::/8]", "data.config"), DEFAULTS, ("ip", "ip6"))
    assert reading.config is not None
    assert reading.config.entries[0].origin == RuleOrigin(MAP, "data.config.nonMasqueradeCIDRs[0]")
    assert reading.config.given == {"nonMasqueradeCIDRs": RuleOrigin(MAP, "data.config.nonMasqueradeCIDRs")}


def test_problems_come_in_the_order_of_the_text() -> None:
    data = b"x: 1\nresyncInterval: 1\nnonMasqueradeCIDRs: [a]\ncidrLimit: -1\n"
    problems = read(Text(MAP, data, "data.config"), DEFAULTS, ("ip",)).problems
    assert [problem.field for problem in problems] == [
        "data.config.x",
        "data.config.resyncInterval",
        "data.config.nonMasqueradeCIDRs[0]",
        "data.config.cidrLimit",
    ]


def test_merging_names_the_text_that_decided() -> None:
    merged = merge(
        [
            config_of(b"masqLinkLocal: false\nresyncInterval: 5m\nnonMasqueradeCIDRs: [10.0.0.0/8]", "/a", alone=False),
            config_of(b"masqLinkLocal: true\nresyncInterval: 2m\nnonMasqueradeCIDRs: [10.0.0.0/8]", "/b", alone=False),
            config_of(b"masqLinkLocal: true\nresyncInterval: 3m\nmasqLinkLocalIPv6: true", "/c", alone=False),
        ]
    )
    assert (merged.masq_link_local, merged.masq_link_local_ipv6) == (True, True)
    assert merged.resync_interval == 120_000_000_000
    assert {key: str(origin.ref) for key, origin in merged.given.items()} == {
        "nonMasqueradeCIDRs": "/a",
        "masqLinkLocal": "/b",
        "resyncInterval": "/b",
        "masqLinkLocalIPv6": "/c",
    }
    assert [str(entry.origin.ref) for entry in merged.entries] == ["/a", "/b"]


def test_merging_nothing_is_all_defaults() -> None:
    assert merge([]) == Config(cidr_limit=CIDR_LIMIT)
