"""iptables_names: kube-proxy's chains by name, in each table of iptables.

Here: the shared chains, the chains of one port of a Service, whose names are ours. Not here: what they hold
(iptables_rules.py, to_iptables.py).
Invariant: names are those that kube-proxy gives to the same Services, so that one takes over from the other chain by
chain; none is of the kubelet's (KUBE-IPTABLES-HINT, KUBE-KUBELET-CANARY, KUBE-FIREWALL, KUBE-MARK-DROP).
"""

import hashlib
from base64 import b32encode
from collections.abc import Mapping
from typing import Final

from podgate.features.services.addresses import endpoint_text
from podgate.features.services.intent import ServicePort
from podgate.targets.iptables.state import Names, TableName

SERVICES: Final = "KUBE-SERVICES"
EXTERNAL: Final = "KUBE-EXTERNAL-SERVICES"
NODE_PORTS: Final = "KUBE-NODEPORTS"
POSTROUTING: Final = "KUBE-POSTROUTING"
MARK: Final = "KUBE-MARK-MASQ"
FORWARD: Final = "KUBE-FORWARD"
FIREWALL: Final = "KUBE-PROXY-FIREWALL"
CANARY: Final = "KUBE-PROXY-CANARY"

TABLES: Final[tuple[TableName, ...]] = ("mangle", "filter", "nat")
"""In the order in which they are written: what is refused is refused before anything is translated."""

_IPVS_NAT: Final = ("KUBE-LOAD-BALANCER", "KUBE-NODE-PORT")
_IPVS_FILTER: Final = ("KUBE-IPVS-FILTER", "KUBE-IPVS-OUT-FILTER", "KUBE-NODE-PORT", "KUBE-SOURCE-RANGES-FIREWALL")
"""Chains that kube-proxy has in mode ipvs alone."""

NAMES: Final[Mapping[TableName, Names]] = {
    "nat": Names(
        frozenset((SERVICES, NODE_PORTS, POSTROUTING, MARK, CANARY, *_IPVS_NAT)),
        # KUBE-XLB- is what KUBE-EXT- was called up to 1.23.
        ("KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-SEP-", "KUBE-FW-", "KUBE-XLB-"),
    ),
    "filter": Names(frozenset((SERVICES, EXTERNAL, NODE_PORTS, FORWARD, FIREWALL, CANARY, *_IPVS_FILTER))),
    "mangle": Names(frozenset((CANARY,))),
}
"""Whose chains are ours, kube-proxy's included: that is the take-over."""

_LETTERS: Final = 16


class PortChains:
    """The names of the chains of one port of a Service, in table nat."""

    def __init__(self, port: ServicePort) -> None:
        self._port = proxy_name(port) + port.protocol
        digest = _digest(self._port)
        self.cluster = f"KUBE-SVC-{digest}"
        self.local = f"KUBE-SVL-{digest}"
        self.external = f"KUBE-EXT-{digest}"
        self.firewall = f"KUBE-FW-{digest}"

    def endpoint(self, endpoint: bytes) -> str:
        """Name the chain of an endpoint, an address and a port of 2 bytes."""
        return f"KUBE-SEP-{_digest(self._port + endpoint_text(endpoint))}"


def proxy_name(port: ServicePort) -> str:
    """Give ``namespace/name:port`` as kube-proxy writes it: without what a port has for a name that has none."""
    return port.name.removesuffix(f":{port.port}") if port.unnamed else port.name


def _digest(text: str) -> str:
    return b32encode(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())[:_LETTERS].decode()
