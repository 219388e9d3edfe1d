"""Go's syntax of flags, as its package flag has it; what each program's flags are is tested with the program."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podgate.commandline.goflags import FlagError, HelpAskedError, Type, read_go_flags

TYPES: dict[str, Type] = {"addr": "string", "metrics-addr": "string", "on": "bool", "v": "int", "size": "uint"}

TAKEN = {
    (): ({}, ()),
    ("-addr", "0.0.0.0:988"): ({"addr": "0.0.0.0:988"}, ()),
    ("--addr=0.0.0.0:988",): ({"addr": "0.0.0.0:988"}, ()),
    ("-metrics-addr=:1", "-addr", "x"): ({"metrics-addr": ":1", "addr": "x"}, ()),
    ("-addr=", "stop", "-addr=x"): ({"addr": ""}, ("stop", "-addr=x")),
    ("-addr", "-on"): ({"addr": "-on"}, ()),
    ("-on", "false"): ({"on": True}, ("false",)),
    ("-on=F", "-v", "-1", "--size=0x10"): ({"on": False, "v": "-1", "size": "0x10"}, ()),
    ("--", "-foo"): ({}, ("-foo",)),
    ("-", "-on"): ({}, ("-", "-on")),
}


@pytest.mark.parametrize(("words", "read"), TAKEN.items())
def test_what_is_taken(words: tuple[str, ...], read: tuple[dict[str, str | bool], tuple[str, ...]]) -> None:
    flags = read_go_flags(words, TYPES)
    assert (dict(flags.given), flags.rest) == read


REFUSED = {
    "-foo": "flag provided but not defined: -foo",
    "-adr=x": 'flag provided but not defined: -adr (did you mean "addr"?)',
    "---addr": "bad flag syntax: ---addr",
    "-=x": "bad flag syntax: -=x",
    "-addr": "flag needs an argument: -addr",
    "-on=yes": 'invalid boolean value "yes" for -on: write true or false',
    "-v=1.5": 'invalid value "1.5" for flag -v: write a whole number',
    "-size=-1": 'invalid value "-1" for flag -size: write a whole number',
}


@pytest.mark.parametrize(("word", "message"), REFUSED.items())
def test_what_is_refused(word: str, message: str) -> None:
    with pytest.raises(FlagError) as caught:
        read_go_flags([word], TYPES)
    assert str(caught.value) == message
    assert not isinstance(caught.value, HelpAskedError)


@pytest.mark.parametrize("word", ["-h", "--help", "-h=1"])
def test_help_is_asked_for_unless_the_program_has_such_a_flag(word: str) -> None:
    with pytest.raises(HelpAskedError):
        read_go_flags([word], TYPES)
    name = word.strip("-").partition("=")[0]
    assert read_go_flags([word], {name: "bool"}).given == {name: True}


@given(st.lists(st.text("-=adron h.x", max_size=8), max_size=6))
def test_any_words_are_read_or_refused(words: list[str]) -> None:
    try:
        flags = read_go_flags(words, TYPES)
    except FlagError:
        return
    assert list(flags.rest) == words[len(words) - len(flags.rest) :]
