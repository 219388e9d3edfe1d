"""Which names a chain may have, and when two rules are equal."""

import pytest

from podgate.targets.iptables.grammar import read_rule
from podgate.targets.iptables.state import chain_name_mistake, comment_text

NAMES = {
    "IP-MASQ-AGENT": "",
    "IP-MASQ": "",
    "A234567890123456789012345678": "",
    "A2345678901234567890123456789": "29 bytes, the kernel takes 28",
    "": "is empty",
    "POSTROUTING": "built-in chain",
    "OUTPUT": "built-in chain",
    "MASQUERADE": "name of an iptables target",
    "RETURN": "name of an iptables target",
    "-x": "begins with -",
    "!x": "begins with !",
    "a b": "holds ' '",
    'a"b': "holds '\"'",
    "ü": "holds 'ü'",
    "a\nb": "holds '\\n'",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_a_chain(name: str) -> None:
    mistake = chain_name_mistake(name)
    assert NAMES[name] in mistake
    assert bool(mistake) == bool(NAMES[name])


EQUAL = [
    ("-d 10.0.0.0/8 -m comment --comment x -j RETURN", '-m comment --comment "x" -d 10.0.0.0/8 -j RETURN'),
    ("-d 0.0.0.0/0 -j RETURN", "-j RETURN"),
    ("-d 10.0.0.1 -j RETURN", "-d 10.0.0.1/32 -j RETURN"),
    ("-d 10.0.0.0/255.0.0.0", "-d 10.0.0.0/8"),
    ("-p tcp -m tcp -j ACCEPT", "-p tcp -j ACCEPT"),
    ("-p tcp --dport 80", "-p tcp -m multiport --dports 80"),
    (
        "-j MASQUERADE --random-fully -p tcp -m statistic --mode random --probability 0.469292562840114 --to-ports 1-9",
        "-p tcp -m statistic --mode random --probability 0.46929256292 -j MASQUERADE --to-ports 1-9 --random-fully",
    ),
]


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_rules_that_are_written_differently_are_equal(one: str, other: str) -> None:
    assert read_rule(one, "ip").form == read_rule(other, "ip").form


DIFFERENT = [
    ("-d 10.0.0.0/8", "! -d 10.0.0.0/8"),
    ("-d 10.0.0.0/8", "-s 10.0.0.0/8"),
    ("! -d 0.0.0.0/0", ""),
    ("-j MASQUERADE", "-j MASQUERADE --random-fully"),
    ("-j X", "-g X"),
    ('-m comment --comment "x"', '-m comment --comment "\\"x\\""'),
    ("-m statistic --mode random --probability 0.5", "-m statistic --mode random --probability 0.50000001"),
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_rules_that_mean_something_else_are_not_equal(one: str, other: str) -> None:
    assert read_rule(one, "ip").form != read_rule(other, "ip").form


def test_a_comment_is_one_line_of_at_most_255_bytes() -> None:
    assert comment_text("  a\n\tb ") == "a b"
    assert comment_text("x" * 300) == "x" * 255
