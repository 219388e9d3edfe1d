"""A lab with several nodes, each with a cloud and a metadata proxy of its own, as manifests.

Here: the Node, and the proxy of deploy/metadata for it alone. Not here: Pods that ask, what they ask (the tests).
Invariant: a proxy differs from the deployed one in its name, its node and its further flags.
"""

from typing import Any

import yaml

from tests.style.reading import ROOT

_DAEMON_SET = (ROOT / "deploy" / "metadata" / "daemonset.yaml").read_text()


def cloud_node(name: str, number: int, cloud: str) -> dict[str, Any]:
    """Give a Node whose addresses have ``number`` in them, in the cloud of that name."""
    labels = {"node": name, "cloud.google.com/metadata-proxy-ready": "true", "kubernetes.io/os": "linux"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {"lab.podgate.dev/cloud-metadata": cloud}},
        "spec": {"podCIDRs": [f"10.16.{number}.0/24"]},
        "status": {"addresses": [{"type": "InternalIP", "address": f"10.140.0.{number}"}]},
    }


def proxy_of(node: str, flags: list[str]) -> dict[str, Any]:
    """Give the DaemonSet of a node's proxy."""
    proxy: dict[str, Any] = yaml.safe_load(_DAEMON_SET.replace("metadata-proxy-v0.1", f"proxy-{node}"))
    template = proxy["spec"]["template"]
    for labels in (proxy["spec"]["selector"]["matchLabels"], template["metadata"]["labels"]):
        labels["node"] = node
    template["spec"]["nodeSelector"]["node"] = node
    template["spec"]["containers"][0]["args"] += flags
    return proxy
