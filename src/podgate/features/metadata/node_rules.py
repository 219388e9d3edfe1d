"""node_rules: options and machine to the node's rules. Pure.

Here: which ports are redirected, what is refused, which devices are left alone. Not here: Kubernetes objects
(compile.py), what the rules become (to_nftables.py, to_iptables.py).
Invariant: the proxy's own process and the verbs that only look get their rules here, so what is shown is what is made.
"""

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final

from podgate.features.metadata.intent import NodeRules, Redirect, RefusedPorts
from podgate.features.metadata.settings import LOCAL_ADDRESS, Settings
from podgate.model.machine import Machine

READY_LABEL: Final = "cloud.google.com/metadata-proxy-ready"
_CLOUD_PORTS: Final = ((80, 0), (8080, -1))
"""The ports that are redirected, and where to, counted from the proxy's own port."""


def node_rules(settings: Settings, machine: Machine, labels: Mapping[str, str] | None = None) -> NodeRules:
    """Give the rules for the time when the proxy listens.

    Args:
        settings: the options.
        machine: the node's machine: its IPv4 default routes name the uplinks.
        labels: of the Node, where it is known: on GCE it must have the label that the proxy's DaemonSet selects by.
    """
    if not settings.firewall:
        return NodeRules(why="--no-firewall")
    if labels is not None and settings.cloud.name in ("gce", "v0.1.12") and labels.get(READY_LABEL) != "true":
        return NodeRules(why=f"the Node has no label {READY_LABEL}=true")
    cloud, port = settings.cloud, settings.listen[1]
    v4 = [address for address in cloud.addresses if ip_address(address).version == 4]
    v6 = [address for address in cloud.addresses if ip_address(address).version == 6]
    redirects = tuple(
        Redirect(address, number, LOCAL_ADDRESS, port + shift) for address in v4 for number, shift in _CLOUD_PORTS
    )
    refusals = (
        *(RefusedPorts(address, (443,)) for address in v4),
        *(RefusedPorts(address, (80, 443, 8080)) for address in v6),
        *(RefusedPorts(address, ports) for address, ports in cloud.closed_ports),
        RefusedPorts(LOCAL_ADDRESS),
    )
    uplinks = settings.uplinks or tuple(sorted(machine.uplinks("ip")))
    return NodeRules("open", "", LOCAL_ADDRESS, redirects, refusals, tuple(v4), uplinks, settings.node_users)
