"""The options of masquerade: what is accepted, and what is said about mistakes."""

import pytest

from podgate.features.masquerade.settings import Settings
from podgate.model.options import SettingsError, options_of, settings_from


def test_defaults_are_good() -> None:
    assert settings_from(Settings, {}) == Settings()
    assert Settings().config_path == "/etc/config/ip-masq-agent"


def test_the_flags() -> None:
    assert [option.flag for option in options_of(Settings)] == [
        "--config",
        "--backend",
        "--source",
        "--node-name",
        "--metrics-addr",
        "--health-addr",
        "--once",
        "--clean-on-exit",
        "--state-dir",
        "--nomasq-all-reserved-ranges",
        "--random-fully",
    ]


@pytest.mark.parametrize("address", ["127.0.0.1:10350", "[::1]:1", ":8080", "localhost:65535", ""])
def test_addresses(address: str) -> None:
    assert settings_from(Settings, {"metrics_addr": address}).metrics_addr == address


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.1:0", "127.0.0.1:65536", "::1:80", "a:b", "1.2.3.4:\u0663"])
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(SettingsError, match="--health-addr"):
        settings_from(Settings, {"health_addr": address})


def test_empty_values() -> None:
    with pytest.raises(SettingsError) as caught:
        settings_from(Settings, {"config": "", "source": "", "node_name": "", "state_dir": ""})
    assert [problem.split()[0] for problem in caught.value.problems] == [
        "--config",
        "--source",
        "--node-name",
        "--state-dir",
    ]


def test_a_trailing_slash_is_no_other_path() -> None:
    assert Settings(config="/etc/config/").config_path == "/etc/config"
    assert Settings(config="/").config_path == "/"
