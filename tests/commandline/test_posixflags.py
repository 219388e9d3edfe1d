"""pflag's syntax, as a table of facts."""

import pytest

from podgate.commandline.goflags import FlagError, HelpAskedError, Type
from podgate.commandline.posixflags import read_posix_flags

TYPES: dict[str, Type] = {"mode": "string", "all": "bool", "bit": "int", "v": "string"}

TAKEN = [
    ("", {}, ()),
    ("--mode=nftables", {"mode": "nftables"}, ()),
    ("--mode nftables", {"mode": "nftables"}, ()),
    ("--mode=", {"mode": ""}, ()),
    ("--mode=a=b", {"mode": "a=b"}, ()),
    ("--mode a --mode b", {"mode": "b"}, ()),
    ("--all", {"all": True}, ()),
    ("--all=false", {"all": False}, ()),
    ("--all false", {"all": True}, ("false",)),  # a bool takes no second word
    ("-v 2", {"v": "2"}, ()),
    ("-v2", {"v": "2"}, ()),
    ("-v=2", {"v": "2"}, ()),
    ("--bit -1", {"bit": "-1"}, ()),
    ("word --all", {"all": True}, ("word",)),
    ("-- --all", {}, ("--all",)),
    ("-", {}, ("-",)),
]

REFUSED = [
    ("--moed=x", 'unknown flag: --moed (did you mean "mode"?)'),
    ("-x", "unknown shorthand flag: 'x' in -x"),
    ("--mode", "flag needs an argument: --mode"),
    ("--all=maybe", "write true or false"),
    ("--bit=many", "write a whole number"),
]


@pytest.mark.parametrize(("line", "given", "others"), TAKEN, ids=[row[0] or "nothing" for row in TAKEN])
def test_taken(line: str, given: dict[str, str | bool], others: tuple[str, ...]) -> None:
    assert read_posix_flags(line.split(), TYPES, {"v": "v"}) == (given, others)


@pytest.mark.parametrize(("line", "words"), REFUSED, ids=[row[0] for row in REFUSED])
def test_refused(line: str, words: str) -> None:
    with pytest.raises(FlagError) as caught:
        read_posix_flags(line.split(), TYPES, {"v": "v"})
    assert words in str(caught.value)


@pytest.mark.parametrize("word", ["-h", "--help"])
def test_help(word: str) -> None:
    with pytest.raises(HelpAskedError):
        read_posix_flags([word], TYPES, {})
