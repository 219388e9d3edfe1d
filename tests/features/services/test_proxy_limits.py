"""What kube-proxy refuses of a configuration is refused, by run and by --write-config-to alike, all at once.

The real kube-proxy judges the same cases in tests/cluster/test_kube_proxy_config.py.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from podgate.commandline.options import SettingsError
from podgate.features.services.dropin import main
from podgate.features.services.server.proxy_file import configured_by
from tests.features.services.proxy_limits import CASES, given


def errors(lines: str) -> list[str]:
    """Give what is called an error, without place and program."""
    return re.findall(r"config\.conf:[0-9]+: error: (.*)", lines)


@pytest.mark.parametrize("case", CASES["refused"], ids=[case["body"] for case in CASES["refused"]])
def test_what_is_refused(case: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = given(case["body"], tmp_path)
    assert main(["--config", str(path), "--write-config-to", str(tmp_path / "written")]) == 1
    assert sorted(errors(capsys.readouterr().err)) == sorted(case["said"])
    assert not (tmp_path / "written").exists()
    with pytest.raises(SettingsError) as raised:
        configured_by(str(path), {"config": str(path)}, lambda _line: None)
    no_ipvs = "mode: mode ipvs is not built yet"
    said = [line for line in errors("\n".join(raised.value.problems)) if not line.startswith(no_ipvs)]
    assert sorted(said) == sorted(case["said"])


@pytest.mark.parametrize("body", CASES["taken"])
def test_what_is_taken(body: str, tmp_path: Path) -> None:
    path, written = given(body, tmp_path), tmp_path / "written"
    assert main(["--config", str(path), "--write-config-to", str(written)]) == 0
    assert yaml.safe_load(written.read_text())["kind"] == "KubeProxyConfiguration"
    if "ipvs" not in path.read_text().partition("mode:")[2].split()[0]:
        configured_by(str(path), {"config": str(path)}, lambda _line: None)


def test_flags_have_the_same_limits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = (
        "--oom-score-adj=-2000 --iptables-masquerade-bit=40 --kube-api-burst=-1 --nodeport-addresses=x --bind-address=y"
    )
    for words in ([*line.split(), "--write-config-to", str(tmp_path / "written")], [*line.split(), "--init-only"]):
        assert main(words) == 1
        said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("kube-proxy: ")]
        assert sorted(said) == [
            'kube-proxy: --bind-address "y": is no IP address; write 0.0.0.0 or ::',
            "kube-proxy: --iptables-masquerade-bit 40: must be 0 to 31",
            "kube-proxy: --kube-api-burst -1: must be 0 or more",
            'kube-proxy: --nodeport-addresses "x": write primary, localhost, all, or a range as 10.0.0.0/8',
            "kube-proxy: --oom-score-adj -2000: must be -1000 to 1000",
        ]
    assert not (tmp_path / "written").exists()


def test_flags_without_a_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = str(tmp_path / "written")
    taken = "--bind-address= --detect-local-mode= --healthz-bind-address= --nodeport-addresses= --proxy-mode="
    assert main([*taken.split(), "--write-config-to", written]) == 0
    assert main(["--cluster-cidr=", "--config-sync-period=0s", "--logging-format=", "--write-config-to", written]) == 1
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("kube-proxy: ")]
    assert sorted(said) == [
        (
            'kube-proxy: --cluster-cidr "": is no range; '
            "write one as 10.244.0.0/16, for example, with a comma alone between two"
        ),
        "kube-proxy: --config-sync-period 0s: must be more than 0",
        'kube-proxy: --logging-format "": write text or json',
    ]
