"""Configurations beyond the limits of kube-proxy, and within them, which it judges too (cases/proxy-limits.yaml)."""

from pathlib import Path
from typing import Any, Final

import yaml

_FILE: Final = Path(__file__).with_name("cases") / "proxy-limits.yaml"
_HEAD: Final = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"

CASES: Final[dict[str, Any]] = yaml.safe_load(_FILE.read_text())


def given(body: str, folder: Path) -> Path:
    """Write a configuration, of mode nftables unless it names one."""
    path = folder / "config.conf"
    path.write_text(_HEAD + (body if body.startswith("mode:") else f"mode: nftables\n{body}") + "\n")
    return path
