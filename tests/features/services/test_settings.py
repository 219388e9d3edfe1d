"""Options: defaults as kube-proxy's, and every mistake in one go."""

from typing import Any

import pytest

from podgate.commandline.options import SettingsError, options_of, settings_from
from podgate.features.services.settings import Settings

WANTED = "at most 63 letters, digits, -, _ and ., a letter or digit at both ends"


def test_defaults_are_kube_proxy_s() -> None:
    settings = Settings()
    assert settings.detect_local_mode == "ClusterCIDR"
    assert (settings.health_addr, settings.metrics_addr) == ("0.0.0.0:10256", "127.0.0.1:10249")
    assert (settings.masquerade_bit, settings.masquerade_all, settings.sync_period) == (14, False, 30.0)
    assert settings.nodeport_words == ("primary",)
    assert Settings(backend="iptables").nodeport_words == ("all",)
    assert Settings(nodeport_addresses=" 10.0.0.0/8, localhost ").nodeport_words == ("10.0.0.0/8", "localhost")
    assert list(settings.mistakes()) == []
    assert all(spec.help for spec in options_of(Settings))


@pytest.mark.parametrize(
    ("given", "mistakes"),
    [
        ({"cluster_cidr": "10.244.0.0/16,10.245.0.0/16,here"}, [
            '--cluster-cidr "10.245.0.0/16": is the second range of its family; give one of each',
            '--cluster-cidr "here": is no range; write one as 10.244.0.0/16, for example',
        ]),
        ({"detect_local_mode": "BridgeInterface"}, [
            "--detect-local-mode BridgeInterface: give --pod-bridge-interface too",
        ]),
        ({"detect_local_mode": "InterfaceNamePrefix", "pod_interface_name_prefix": "a-very-long-name"}, [
            '--pod-interface-name-prefix "a-very-long-name": is no name of a network device',
        ]),
        ({"pod_bridge_interface": "cni*"}, ['--pod-bridge-interface "cni*": is no name of a network device']),
        ({"nodeport_addresses": "primary,here"}, [
            '--nodeport-addresses "here": write primary, localhost, all, or a range as 10.0.0.0/8',
        ]),
        ({"masquerade_bit": 32}, ["--masquerade-bit 32: must be 0 to 31"]),
        ({"backend": "iptables", "service_proxy_name": "mesh"}, [
            "--service-proxy-name mesh: iptables chains are the default proxy's: give --backend nftables",
        ]),
        *(
            ({"service_proxy_name": name}, [
                f'--service-proxy-name "{name}": is no value of a label: {WANTED}',
            ])
            for name in ("fd00:9::1", "-mesh", "mesh\n", "m" * 64, "a/b", "a b", "ä", "a,b")
        ),
        ({"sync_period": 0.0}, ["--sync-period 0.0: must be more than 0"]),
        ({"min_sync_period": -1.0}, ["--min-sync-period -1.0: must be 0 or more"]),
        ({"sync_period": -5.0}, ["--sync-period -5.0: must be more than 0"]),
        ({"min_sync_period": 31.0}, ["--min-sync-period 31.0: must be 0 to --sync-period, 30.0"]),
        ({"source": "", "node_name": "", "context": "x", "state_dir": ""}, [
            "--source is empty: give a value, or leave the flag out",
            "--node-name is empty: give a value, or leave the flag out",
            "--context x: it names a context in a kubeconfig: give --kubeconfig too",
            "--state-dir is empty: give a folder",
        ]),
        ({"health_addr": ":10256"}, [
            '--health-addr ":10256": no address; write 127.0.0.1:10256 for this machine only, 0.0.0.0:10256 for all',
        ]),
    ],
)  # fmt: skip
def test_mistakes(given: dict[str, Any], mistakes: list[str]) -> None:
    with pytest.raises(SettingsError) as error:
        settings_from(Settings, given)
    assert list(error.value.problems) == mistakes
