"""Options: what they mean together, and every mistake at once."""

from ipaddress import ip_address, ip_network

import pytest

from podgate.commandline.options import SettingsError, options_of, settings_from
from podgate.features.metadata.settings import Settings, address_and_port


def mistakes(**given: object) -> tuple[str, ...]:
    try:
        settings_from(Settings, given)
    except SettingsError as error:
        return error.problems
    return ()


def test_the_defaults_are_the_manifests_and_free_of_mistakes() -> None:
    settings = settings_from(Settings, {})
    assert settings.listen == (ip_address("169.254.169.252"), 988)
    assert settings.upstream_address == (ip_address("169.254.169.254"), 80)
    assert settings.opened == ("token", "legacy-endpoints")
    assert (settings.cloud.name, settings.policy_path, settings.allowed_networks) == ("gce", None, ())


def test_every_option_of_the_design_is_a_flag() -> None:
    flags = {spec.flag for spec in options_of(Settings)}
    wanted = {"addr", "metrics-addr", "profile", "policy", "audit", "firewall", "backend", "upstream", "uplink"}
    assert {f"--{name}" for name in wanted | {"allow-from", "source", "node-name", "token-hop-limit"}} <= flags


SWITCHED = [
    ({}, {"token", "legacy-endpoints"}),
    ({"token": "deny", "ssh_keys": "allow"}, {"ssh-keys", "legacy-endpoints"}),
    ({"profile": "aws"}, set()),
    ({"profile": "aws", "token": "allow", "user_data": "allow"}, {"token", "user-data"}),
    ({"policy": "builtin:v0.1.12"}, {"token", "ssh-keys", "startup-script", "user-data", "legacy-endpoints"}),
    ({"policy": "builtin:v0.1.12", "token": "deny"}, {"ssh-keys", "startup-script", "user-data", "legacy-endpoints"}),
    ({"guest_attribute_writes": "allow"}, {"token", "guest-attribute-writes", "legacy-endpoints"}),
]


@pytest.mark.parametrize(("given", "opened"), SWITCHED)
def test_switches(given: dict[str, str], opened: set[str]) -> None:
    assert set(settings_from(Settings, given).opened) == opened


def test_lists_and_addresses() -> None:
    given = {"allow_from": "10.64.0.0/24, fd00::/64", "upstream": "http://[fd20:ce::254]:8080/", "host": "a, b"}
    settings = settings_from(Settings, given)
    assert settings.allowed_networks == (ip_network("10.64.0.0/24"), ip_network("fd00::/64"))
    assert settings.upstream_address == (ip_address("fd20:ce::254"), 8080)
    assert settings.hosts == ("a", "b")
    assert settings_from(Settings, {"upstream": "http://[fd20:ce::254]"}).upstream_address[1] == 80


MISTAKEN = [
    ({"addr": "localhost:988"}, "--addr"),
    ({"addr": "169.254.169.252"}, "--addr"),
    ({"addr": "fd00::1:988"}, "--addr"),
    ({"addr": "127.0.0.1:988"}, "--no-firewall"),
    ({"addr": "10.0.0.5:988"}, "would not arrive"),
    ({"addr": "0.0.0.0:1"}, "the port before it"),
    ({"metrics_addr": ":989"}, "--metrics-addr"),
    ({"upstream": "http://metadata.google.internal"}, "never looked up"),
    ({"upstream": "https://169.254.169.254"}, "--upstream"),
    ({"upstream": "http://169.254.169.254/x"}, "--upstream"),
    ({"allow_from": "10.0.0.1/8"}, "host bits"),
    ({"host": "a:80"}, "--host"),
    ({"policy": "builtin:azur"}, 'did you mean "azure"?'),
    ({"policy": "builtin:aws"}, "--profile aws"),
    ({"policy": ""}, "--policy is empty"),
    ({"profile": "openstack", "require_header": True}, "no such header"),
    ({"token_hop_limit": 0}, "1 to 64"),
]


@pytest.mark.parametrize(("given", "words"), MISTAKEN)
def test_mistakes(given: dict[str, object], words: str) -> None:
    (message,) = mistakes(**given)
    assert words in message


@pytest.mark.parametrize(
    "given", [{"addr": "127.0.0.1:988", "firewall": False}, {"addr": "0.0.0.0:988"}, {"addr": "[::]:988"}]
)
def test_where_one_may_listen(given: dict[str, object]) -> None:
    assert mistakes(**given) == ()


def test_all_mistakes_come_at_once() -> None:
    assert len(mistakes(addr="x", metrics_addr="y", upstream="z", allow_from="a,b", token_hop_limit=65)) == 6


@pytest.mark.parametrize(
    "text", ["1.2.3.4:0", "1.2.3.4:65536", "1.2.3.4:x", "1.2.3.4:٣", "[1.2.3.4]:1", "::1:1", "[::1]"]
)
def test_what_is_no_address_and_port(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        address_and_port(text)
