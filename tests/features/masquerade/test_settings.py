"""The options of masquerade: what is accepted, and what is said about mistakes."""

import pytest

from podgate.commandline.options import SettingsError, options_of, settings_from
from podgate.features.masquerade.settings import Settings


def test_defaults_are_good() -> None:
    assert settings_from(Settings, {}) == Settings()
    assert Settings().config_path == "/etc/config/ip-masq-agent"


def test_the_flags() -> None:
    assert [option.flag for option in options_of(Settings)] == [
        "--config",
        "--backend",
        "--source",
        "--kubeconfig",
        "--context",
        "--node-name",
        "--metrics-addr",
        "--health-addr",
        "--once",
        "--clean-on-exit",
        "--state-dir",
        "--nomasq-all-reserved-ranges",
        "--random-fully",
        "--to-ports",
        "--enable-ipv6",
        "--masq-chain",
        "--rules",
        "--cut-tcp",
    ]


@pytest.mark.parametrize("address", ["127.0.0.1:10350", "[::1]:1", "localhost:65535", ""])
def test_addresses(address: str) -> None:
    assert settings_from(Settings, {"metrics_addr": address}).metrics_addr == address


@pytest.mark.parametrize("address", ["127.0.0.1", ":8080", "127.0.0.1:65536", "::1:80", "a:b", "1.2.3.4:\u0663"])
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


@pytest.mark.parametrize("text", ["0-10", "70000", "1024-2000,1500", "1024, 2048", "10-5", "-5", "1024-", "1-2,"])
def test_t23_ports_that_the_old_agent_let_through_or_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="--to-ports"):
        settings_from(Settings, {"to_ports": text})


def test_ports_are_read_once_they_are_good() -> None:
    assert settings_from(Settings, {"to_ports": "1024-29999,32768-65535"}).ports == ((1024, 29999), (32768, 65535))
    assert Settings(to_ports="x").ports == ()
