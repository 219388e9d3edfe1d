"""Clouds: the metadata server that a Node of the lab has behind its uplink. Pure.

Here: the annotation that asks for one, the addresses that each cloud's server has, its place in the lab.
Not here: what it answers (lab/peers/clouds), its links and routes (lab/network.py).
Invariant: every node has a server of its own, as every virtual machine has, which no other node can reach.
"""

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any, Final

from podgate.model.machine import IPAddress

CLOUD: Final = "lab.podgate.dev/cloud-metadata"
"""The annotation of a Node; its value is one of ``ADDRESSES``."""
IMAGE: Final = "podgate-lab-cloud"
"""The image that runs a cloud's server; its argument is the cloud."""
WIRE_SERVER: Final = "168.63.129.16"

ADDRESSES: Final[Mapping[str, tuple[tuple[str, int], ...]]] = {
    "gce": (("169.254.169.254", 80), ("169.254.169.254", 443), ("fd20:ce::254", 80)),
    "aws": (("169.254.169.254", 80), ("fd00:ec2::254", 80)),
    "azure": (("169.254.169.254", 80), (WIRE_SERVER, 80), (WIRE_SERVER, 32526)),
    "openstack": (("169.254.169.254", 80),),
}
"""Where each cloud's server is. The one on 443 speaks plain HTTP: what matters is whether it is reached."""


def cloud_of(node: Mapping[str, Any]) -> str:
    """Give the cloud that a Node asks for; empty for none. Raises ValueError for one that is not known."""
    cloud = ((node.get("metadata") or {}).get("annotations") or {}).get(CLOUD, "")
    if cloud and cloud not in ADDRESSES:
        raise ValueError(f"{CLOUD}: {cloud!r} is not one of {', '.join(ADDRESSES)}")
    return str(cloud)


def addresses_of(cloud: str) -> tuple[IPAddress, ...]:
    """Give the addresses of a cloud's server."""
    return tuple(dict.fromkeys(ip_address(address) for address, _ in ADDRESSES[cloud]))


def host_name(node: str) -> str:
    """Name the outside machine that is a node's metadata server: ``lab logs host/cloud-NODE`` shows its requests."""
    return f"cloud-{node}"
