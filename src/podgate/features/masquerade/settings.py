"""settings: the options of ``podgate masquerade``.

Here: the fields, whose annotations are the flags' help. Not here: the keys of the configuration file (config.py).
Invariant: an option that does nothing is not a field.
"""

from collections.abc import Iterator
from typing import Annotated, Final, Literal

from podgate.commandline.options import (
    CLEAN_ON_EXIT,
    CONTEXT,
    DECIDING,
    KUBECONFIG,
    METRICS_ADDR,
    NODE_NAME,
    ONCE,
    SOURCE,
    Option,
    empty_mistakes,
    kube_mistakes,
)
from podgate.features.masquerade.ports import NotPorts, Ports, read_ports
from podgate.features.masquerade.to_iptables import CHAIN
from podgate.model.frozen import Frozen
from podgate.observe.listen import listen_mistakes
from podgate.targets.iptables.state import chain_name_mistake

DEFAULT_CONFIG: Final = "/etc/config/ip-masq-agent"
"""Where ip-masq-agent's manifests mount the ConfigMap."""


class Settings(Frozen, frozen=True):
    """How this node masquerades."""

    config: Annotated[
        str | None,
        Option(
            f"configuration: a file, or a directory whose ip-masq* files are merged; without it {DEFAULT_CONFIG}, "
            "else the ConfigMap kube-system/ip-masq-agent of the source",
            metavar="PATH",
            verbs=DECIDING,
        ),
    ] = None
    backend: Annotated[
        Literal["nftables", "iptables", "iptables-nft", "iptables-legacy", "auto"],
        Option(
            "what the rules are written to; iptables: by the program that this node's kubelet uses, as its hint chains "
            "say; auto: the same where there is a hint, else nftables; the rules of all others are taken away",
            verbs=DECIDING,
        ),
    ] = "nftables"
    source: Annotated[str | None, SOURCE] = None
    kubeconfig: Annotated[str | None, KUBECONFIG] = None
    context: Annotated[str | None, CONTEXT] = None
    node_name: Annotated[str | None, NODE_NAME] = None
    metrics_addr: Annotated[str, METRICS_ADDR] = "127.0.0.1:10350"
    health_addr: Annotated[
        str,
        Option(
            "where /healthz and /readyz are served; empty for the address of the metrics",
            metavar="ADDR:PORT",
            verbs=("run",),
        ),
    ] = ""
    once: Annotated[bool, ONCE] = False
    clean_on_exit: Annotated[bool, CLEAN_ON_EXIT] = False
    state_dir: Annotated[
        str,
        Option(
            "where the last good configuration is kept for the next start, and which iptables chains are ours",
            metavar="DIR",
            verbs=("run", "plan", "clean"),
        ),
    ] = "/var/lib/podgate/masquerade"
    nomasq_all_reserved_ranges: Annotated[
        bool,
        Option("widen the built-in default list from the 3 private ranges to all 11 reserved ranges", verbs=DECIDING),
    ] = False
    random_fully: Annotated[
        bool,
        Option(
            "choose source ports at random, which avoids dropped packets when flows race for a port",
            verbs=("run", "render", "plan"),
        ),
    ] = True
    to_ports: Annotated[
        str,
        Option(
            "source ports of translated TCP, UDP and SCTP connections, as 1024-29999,32768-65535; empty for any",
            metavar="RANGES",
            verbs=DECIDING,
        ),
    ] = ""
    enable_ipv6: Annotated[
        bool,
        Option(
            "masquerade IPv6 too; the cluster's ranges, fc00::/7 and fe80::/10 keep the Pod's address", verbs=DECIDING
        ),
    ] = False

    masq_chain: Annotated[
        str,
        Option("the chain that iptables rules are in; an earlier one is removed", metavar="NAME", verbs=DECIDING),
    ] = CHAIN
    rules: Annotated[
        Literal["podgate", "ip-masq-agent"],
        Option(
            "whose rules iptables gets: podgate's, or ip-masq-agent's and no others, which know no policies and "
            "masquerade IPv6 between Pods until a list says otherwise",
            verbs=DECIDING,
        ),
    ] = "podgate"
    cut_tcp: Annotated[
        bool,
        Option(
            "cut open TCP connections whose decision changed, so that clients connect anew; without it they keep their "
            "translation until they end",
            verbs=("run",),
        ),
    ] = False

    @property
    def ports(self) -> Ports:
        """The ranges of ``to_ports``; none of a text that ``mistakes`` complains about."""
        try:
            return read_ports(self.to_ports)
        except NotPorts:
            return ()

    @property
    def config_path(self) -> str:
        """The path of the configuration, without a trailing slash."""
        return (self.config or DEFAULT_CONFIG).rstrip("/") or "/"

    def mistakes(self) -> Iterator[str]:
        """Give what the types cannot say: addresses that are none, empty paths."""
        yield from listen_mistakes({"--metrics-addr": self.metrics_addr, "--health-addr": self.health_addr})
        yield from empty_mistakes({"--config": self.config, "--source": self.source, "--node-name": self.node_name})
        yield from kube_mistakes(self.kubeconfig, self.context)
        mistake = chain_name_mistake(self.masq_chain)
        if mistake:
            yield f"--masq-chain: {mistake}"
        if self.rules == "ip-masq-agent" and not self.backend.startswith("iptables"):
            yield f"--rules ip-masq-agent: these are iptables rules, not {self.backend}: give --backend iptables too"
        try:
            read_ports(self.to_ports)
        except NotPorts as error:
            yield f'--to-ports "{self.to_ports}": {error}'
        if not self.state_dir:
            yield "--state-dir is empty: give a folder"
