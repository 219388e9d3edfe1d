"""metadata-proxy's flags, in Go's syntax. The process itself is tested in server/test_running.py."""

import pytest

from podgate.features.metadata.dropin import DEFAULTS, address, read_flags, usage

FLAGS = {
    (): {},
    ("-addr", "0.0.0.0:988"): {"addr": "0.0.0.0:988"},
    ("--addr=0.0.0.0:988",): {"addr": "0.0.0.0:988"},
    ("-metrics-addr=:1", "-addr", "x"): {"metrics-addr": ":1", "addr": "x"},
    ("-addr=", "stop", "-addr=x"): {"addr": ""},
    ("--", "-foo"): {},
    ("-",): {},
}


@pytest.mark.parametrize(("words", "values"), FLAGS.items())
def test_flags_are_read_as_go_reads_them(words: tuple[str, ...], values: dict[str, str]) -> None:
    assert read_flags(words) == (values, "", False)


@pytest.mark.parametrize(
    ("word", "wrong"),
    [
        ("-foo", "flag provided but not defined: -foo"),
        ("---addr", "bad flag syntax: ---addr"),
        ("-=x", "bad flag syntax: -=x"),
        ("-addr", "flag needs an argument: -addr"),
    ],
)
def test_wrong_flags_have_gos_words(word: str, wrong: str) -> None:
    assert read_flags([word]).wrong == wrong


def test_help_and_addresses_are_gos() -> None:
    assert read_flags(["-h"]).asks_help
    assert all(f'(default "{default}")' in usage() for default in DEFAULTS.values())
    assert [address(text) for text in (":988", "localhost:1", "10.0.0.1:2", "[::1]:3")] == [
        "0.0.0.0:988",
        "127.0.0.1:1",
        "10.0.0.1:2",
        "[::1]:3",
    ]
