"""metadata-proxy's command line. Go's syntax is tested in tests/model/test_goflags.py, the process in server/."""

import pytest

from podgate.features.metadata.dropin import DEFAULTS, address, main, usage


def test_a_wrong_flag_is_exit_2_with_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-foo"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(
        "metadata-proxy: flag provided but not defined: -foo\nUsage of metadata-proxy (podgate metadata"
    )


def test_an_address_that_is_none_is_exit_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-addr", "nowhere"]) == 1
    assert "--addr" in capsys.readouterr().err


def test_help_and_addresses_are_gos(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-h"]) == 0
    assert capsys.readouterr().err == usage()
    assert all(f'(default "{default}")' in usage() for default in DEFAULTS.values())
    assert [address(text) for text in (":988", "localhost:1", "10.0.0.1:2", "[::1]:3")] == [
        "0.0.0.0:988",
        "127.0.0.1:1",
        "10.0.0.1:2",
        "[::1]:3",
    ]
