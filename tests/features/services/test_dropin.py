"""kube-proxy's command line: what its flags mean, what is said of those that change nothing, and its exit codes."""

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from podgate.commandline.goflags import FlagError
from podgate.features.services.dropin import main, settings_of
from podgate.features.services.proxy_fields import FIELDS
from podgate.features.services.proxy_flags import FLAGS, WITHOUT_EFFECT, read_flags
from podgate.features.services.proxy_usage import usage_lines
from podgate.features.services.settings import Settings
from podgate.observe.logs import stderr_log

HEAD = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
LOG = stderr_log({})
IDLE = "Taken without effect, with a warning in the log that says why:"

MEANINGS: dict[str, dict[str, Any]] = {
    "": {"backend": "iptables", "min_sync_period": 1.0, "oom_score_adj": -999},
    "--iptables-min-sync-period=0s": {"min_sync_period": 0.0},
    "--proxy-mode=nftables --cluster-cidr=10.244.0.0/16": {"backend": "nftables", "cluster_cidr": "10.244.0.0/16"},
    "--proxy-mode nftables --masquerade-all": {"backend": "nftables", "masquerade_all": True},
    "--proxy-mode nftables --iptables-masquerade-bit 13": {"backend": "nftables", "masquerade_bit": 13},
    "--proxy-mode nftables --nodeport-addresses primary,10.0.0.0/8": {"nodeport_addresses": "primary,10.0.0.0/8"},
    "--proxy-mode nftables --conntrack-udp-timeout 1m": {"conntrack_udp_timeout": 60.0},
    "--hostname-override n1 --kubeconfig /k": {"node_name": "n1", "kubeconfig": "/k"},
    "--feature-gates=AllowServiceExternalIPs=false,X=true": {"external_ips": False},
    "--metrics-bind-address 127.0.0.1:1 --healthz-bind-address 127.0.0.1:2": {
        "metrics_addr": "127.0.0.1:1",
        "health_addr": "127.0.0.1:2",
    },
    # As k3s has it: the port is the usual one, or that of a flag that is deprecated; 0 is nowhere.
    "--healthz-bind-address=127.0.0.1 --metrics-bind-address ::1": {
        "health_addr": "127.0.0.1:10256",
        "metrics_addr": "[::1]:10249",
    },
    "--healthz-bind-address=127.0.0.1 --healthz-port=3 --metrics-port=0": {
        "health_addr": "127.0.0.1:3",
        "metrics_addr": "",
    },
    "--healthz-port=3": {"health_addr": "0.0.0.0:10256"},
    "--bind-address=::": {"health_addr": "[::]:10256", "metrics_addr": "[::1]:10249"},
    "--proxy-mode nftables --iptables-sync-period=1m30s": {"sync_period": 90.0},
    "--hostname-override=N1": {"node_name": "n1"},
    "--oom-score-adj=-500 -v 4 --logging-format=json": {"oom_score_adj": -500},
}


@pytest.mark.parametrize(("line", "expected"), MEANINGS.items(), ids=[line or "nothing" for line in MEANINGS])
def test_flags_mean_settings(line: str, expected: dict[str, Any]) -> None:
    settings = settings_of(read_flags(line.split()), LOG)
    assert {name: getattr(settings, name) for name in expected} == expected


def test_every_flag_sets_fields_that_there_are() -> None:
    assert {path for flag in FLAGS.values() for path in flag.fields} <= FIELDS.keys()


def test_flags_beside_a_file_are_not_looked_at_but_the_nodes_name(tmp_path: Path) -> None:
    path = tmp_path / "config.conf"
    path.write_text(f"{HEAD}mode: nftables\nclusterCIDR: 10.1.0.0/16\nhostnameOverride: other\n")
    flags = read_flags(["--config", str(path), "--cluster-cidr", "10.9.0.0/16", "--hostname-override=n1", "-v=2"])
    settings = settings_of(flags, LOG)
    assert (settings.cluster_cidr, settings.node_name) == ("10.1.0.0/16", "n1")
    assert [note.split()[0] for note in flags.notes] == ["--v", "--cluster-cidr"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--conntrack-udp-timeout 1d", 'invalid argument "1d"'),
        ("--feature-gates X", "write NAME=true"),
        ("serve", 'unknown command "serve"'),
        ("--healthz-port=99999 --init-only", 'invalid argument "99999" for "--healthz-port" flag: write 0 to 65535'),
        ("--metrics-port=-1", 'invalid argument "-1" for "--metrics-port" flag: write 0 to 65535'),
    ],
)
def test_flags_that_cannot_be_read(line: str, words: str) -> None:
    with pytest.raises(FlagError, match=words):
        read_flags(line.split())


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("--help", 0, "Usage of kube-proxy"),
        ("--version", 0, "in place of kube-proxy"),
        ("--proxy-moed=x", 1, 'did you mean "proxy-mode"'),
        ("--proxy-mode=ipvs", 2, "use nftables"),
        ("--proxy-mode=nftables --cluster-cidr=x", 1, "is no range"),
        ("-proxy-mode=nftables", 1, """'p' in -proxy-mode=nftables (did you mean "--proxy-mode"?)"""),
        ("--oom-score-adj=x", 1, 'invalid value "x" for flag --oom-score-adj: write a whole number'),
        ("--config /nonexistent", 1, "cannot be read"),
        ("--kubeconfig /nonexistent", 2, "kube-proxy: /nonexistent: the kubeconfig cannot be read"),
    ],
)
def test_exit_codes(line: str, code: int, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == code
    said = capsys.readouterr()
    assert words in said.out + said.err


def test_the_help_says_of_each_flag_what_it_does_or_why_it_does_nothing() -> None:
    lines = list(usage_lines())
    counts, idle = lines[: lines.index(IDLE)], lines[lines.index(IDLE) :]
    said = {line.split()[0]: meaning for line, meaning in pairwise(counts) if line.startswith("      --")}
    assert all(meaning.startswith(" " * 10) and len(meaning) < 130 for meaning in said.values())
    assert said["--conntrack-tcp-timeout-established"].endswith("; 0 leaves it (default 24h0m0s)")
    assert said["--proxy-mode"].endswith("(default iptables)")
    assert said["--oom-score-adj"].endswith("(default -999)")
    assert said["--iptables-min-sync-period"].endswith("(default 1s)")
    idle_names = [name for line in idle if line.startswith("      --") for name in line.strip().split(", ")]
    assert sorted((*said, *idle_names)) == sorted(f"--{name}" for name in (*FLAGS, *WITHOUT_EFFECT))
    assert idle[idle.index("      --profiling") + 1].strip() == "there is no Go runtime to profile"


def test_a_flag_that_changes_nothing_is_named_with_the_reason_unless_it_says_the_default() -> None:
    flags = read_flags(["--ipvs-scheduler=wrr", "--profiling=false", "--master=https://x", "--kube-api-qps=7"])
    assert flags.notes == (
        "--master has no effect here (the kubeconfig says where the API is): remove it",
        "--ipvs-scheduler has no effect here (mode ipvs is not built yet): remove it",
        f"--kube-api-qps has no effect here ({FIELDS['clientConnection.qps'].unused}): remove it",
    )


def test_a_flag_of_another_mode_is_named_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    line = "--proxy-mode=nftables --iptables-localhost-nodeports=false --pod-bridge-interface=br0 --masquerade-all"
    settings_of(read_flags(line.split()), stderr_log({}))
    said = capsys.readouterr().err
    assert [flag for flag in line.replace("=", " ").split() if f"{flag} has no effect here: " in said] == [
        "--iptables-localhost-nodeports",
        "--pod-bridge-interface",
    ]


def test_mistakes_in_flags_are_told_at_once_by_the_names_of_the_old_program(capsys: pytest.CaptureFixture[str]) -> None:
    line = "--proxy-mode=nft --healthz-bind-address=nowhere --iptables-sync-period=0s --hostname-override="
    assert main(line.split()) == 1
    assert sorted(capsys.readouterr().err.splitlines()) == [
        (
            'kube-proxy: --healthz-bind-address "nowhere": neither ADDRESS:PORT nor a port; write 127.0.0.1:10350, '
            "for example"
        ),
        "kube-proxy: --hostname-override is empty: give a value, or leave the flag out",
        "kube-proxy: --iptables-sync-period 0s: must be more than 0",
        'kube-proxy: --proxy-mode: "nft" is no mode: write nftables or iptables',
    ]


def test_what_is_wrong_with_a_flag_is_not_pushed_off_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--frob"]) == 1
    assert capsys.readouterr() == ("", "Error: unknown flag: --frob\nkube-proxy: --help says which there are\n")


def test_the_configuration_is_written_as_the_old_program_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    assert main(["--write-config-to", str(path), "--cluster-cidr=10.1.0.0/16"]) == 0
    written = yaml.safe_load(path.read_text())
    assert (written["mode"], written["clusterCIDR"]) == ("iptables", "10.1.0.0/16")
    assert written["conntrack"]["tcpEstablishedTimeout"] == "24h0m0s"
    assert main(["--write-config-to", os.fspath(tmp_path / "none" / "config.yaml")]) == 1


@pytest.mark.parametrize("mode", ["iptables", "nftables"])
def test_flags_mean_what_the_file_means_that_they_are_written_to(mode: str, tmp_path: Path) -> None:
    path, line = tmp_path / "config.yaml", [f"--proxy-mode={mode}", "--cluster-cidr=10.16.0.0/14"]
    assert main([*line, "--write-config-to", str(path)]) == 0
    alone, by_file = (settings_of(read_flags(words), LOG) for words in (line, ["--config", str(path)]))
    told = [_without_places(each) for each in (alone, by_file)]
    assert told[0] == told[1]
    short = tmp_path / "short.yaml"
    short.write_text(f"{HEAD}mode: {mode}\nclusterCIDR: 10.16.0.0/14\n")
    assert _without_places(settings_of(read_flags(["--config", str(short)]), LOG)) == told[0]


def _without_places(settings: Settings) -> Settings:
    # Without a word node ports are open at the first address in mode nftables; the file says the word.
    return replace(settings, config=None, nodeport_addresses=",".join(settings.nodeport_words))


def test_what_is_written_of_a_file_is_the_file_with_what_it_leaves_out(tmp_path: Path) -> None:
    path, given = tmp_path / "config.yaml", tmp_path / "given.conf"
    given.write_text(f"{HEAD}mode: nftables\nclusterCIDR: 10.1.0.0/16\niptables: {{syncPeriod: 90s}}\n")
    line = ["--config", str(given), "--hostname-override", "N1", "--cluster-cidr", "10.9.0.0/16"]
    assert main([*line, "--write-config-to", str(path)]) == 0
    written = yaml.safe_load(path.read_text())
    assert (written["mode"], written["clusterCIDR"], written["hostnameOverride"]) == ("nftables", "10.1.0.0/16", "n1")
    periods = [(written[part]["syncPeriod"], written[part]["minSyncPeriod"]) for part in ("iptables", "nftables")]
    assert periods == [("0s", "0s"), ("30s", "1s")], "it has one, which it writes to the part of the mode"
    given.write_text("mode: 3\n")
    assert main(["--config", str(given), "--write-config-to", str(path)]) == 1


@pytest.mark.parametrize("given", [["--proxy-mode=ipvs", "--iptables-localhost-nodeports=false"], ["--config"]])
def test_cleaning_up_is_not_about_a_mode(given: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.conf"
    path.write_text(f"{HEAD}mode: ipvs\niptables: {{masqueradeAll: true}}\n")
    words = [*given, str(path)] if given == ["--config"] else given
    assert settings_of(read_flags(["--cleanup", *words]), stderr_log({})).backend == "nftables"
    assert capsys.readouterr().err == ""
    assert main(words) == 2
