"""iptables without running it: which tables of iptables-legacy are in use, and which of the two programs a node uses.

Here: /proc/net/ip_tables_names, and the chains that a kubelet leaves as a hint. Not here: rules (targets/iptables).
Invariant: iptables-legacy is never run for a table that is not there: listing it would make it.
"""

import subprocess
from collections.abc import Iterable
from typing import Final, Literal

from podgate.linux.netlink import NETLINK_NETFILTER, Connection, NetlinkError
from podgate.linux.nftables import FAMILIES, list_chains

_NAMES: Final = {
    "ip": "/proc/thread-self/net/ip_tables_names",
    "ip6": "/proc/thread-self/net/ip6_tables_names",
}
LEGACY_SAVE: Final = {"ip": "iptables-legacy-save", "ip6": "ip6tables-legacy-save"}
_HINTS: Final = frozenset(("KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY"))
_MANGLE: Final = "mangle"
_SECONDS: Final = 10.0


def legacy_tables(family: str) -> frozenset[str]:
    """Give the tables of iptables-legacy that are in use in this thread's network namespace; family ``ip`` or ``ip6``.

    Without the module there is no such file, and no table.
    """
    try:
        with open(_NAMES[family], encoding="ascii") as names:
            return frozenset(names.read().split())
    except FileNotFoundError:
        return frozenset()


def hinted_binary() -> Literal["nft", "legacy"] | None:
    """Give the program that this node's kubelet uses, by the chain that it leaves in table mangle; None without any.

    A kubelet since 1.24 makes KUBE-IPTABLES-HINT, an older one KUBE-KUBELET-CANARY. They are looked for in nf_tables,
    IPv4 and IPv6, then in the old tables: the order of the wrapper in Kubernetes' iptables images, which takes ``nft``
    where there is no hint. Whoever may not look finds no hint: what he wants to do with the rules is refused anyway.
    """
    if any(_hints(_nft_chains(family)) for family in FAMILIES):
        return "nft"
    if any(_hints(_legacy_chains(family)) for family in FAMILIES):
        return "legacy"
    return None


def _hints(chains: Iterable[str]) -> bool:
    return not _HINTS.isdisjoint(chains)


def _nft_chains(family: str) -> list[str]:
    try:
        with Connection(NETLINK_NETFILTER) as connection:
            return [chain.name for chain in list_chains(connection, FAMILIES[family], _MANGLE)]
    except (NetlinkError, OSError):
        return []


def _legacy_chains(family: str) -> list[str]:
    try:
        if _MANGLE not in legacy_tables(family):
            return []
        done = subprocess.run(
            [LEGACY_SAVE[family], "-t", _MANGLE], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line[1:].split(" ", 1)[0] for line in done.stdout.splitlines() if line.startswith(":")]
