"""settings: the options of ``podgate services``.

Here: the fields, whose annotations are the flags' help, and what they say together. Not here: the file that kube-proxy
reads (KubeProxyConfiguration).
Invariant: defaults are kube-proxy's where it has the option too, but for two (proxy_unasked.py); an option that does
nothing is not a field.
"""

import re
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
    listed,
)
from podgate.features.services.addresses import Span, family_of, span
from podgate.model.frozen import Frozen
from podgate.model.machine import Family
from podgate.observe.listen import listen_mistakes

_SETTING: Final = ("run", "plan")
"""The verbs that look at parameters of the kernel."""

PRIMARY: Final = "primary"
LOCALHOST: Final = "localhost"
ALL: Final = "all"

_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII)
"""What the API takes as a label's value (apimachinery, IsValidLabelValue), but for none at all."""

DetectLocal = Literal["ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"]


class Settings(Frozen, frozen=True):
    """How this node forwards Services."""

    backend: Annotated[Literal["nftables", "iptables"], Option("what the rules are written to", verbs=DECIDING)] = (
        "nftables"
    )
    source: Annotated[str | None, SOURCE] = None
    kubeconfig: Annotated[str | None, KUBECONFIG] = None
    context: Annotated[str | None, CONTEXT] = None
    node_name: Annotated[str | None, NODE_NAME] = None
    service_proxy_name: Annotated[
        str,
        Option(
            "serve only what is labelled service.kubernetes.io/service-proxy-name with this name, beside the "
            "cluster's default proxy; empty: be the default proxy",
            metavar="NAME",
        ),
    ] = ""
    detect_local_mode: Annotated[
        DetectLocal,
        Option("how Pods' traffic is told from other traffic: by source range, or by interface", verbs=DECIDING),
    ] = "ClusterCIDR"
    cluster_cidr: Annotated[
        str,
        Option(
            "the ranges of all Pods, one per family at most, for ClusterCIDR; empty: nothing tells Pods apart",
            metavar="CIDR,…",
            verbs=DECIDING,
        ),
    ] = ""
    pod_bridge_interface: Annotated[
        str, Option("the bridge that Pods' traffic comes from, for BridgeInterface", metavar="NAME", verbs=DECIDING)
    ] = ""
    pod_interface_name_prefix: Annotated[
        str,
        Option(
            "how names of interfaces begin that Pods' traffic comes from, for InterfaceNamePrefix",
            metavar="PREFIX",
            verbs=DECIDING,
        ),
    ] = ""
    nodeport_addresses: Annotated[
        str,
        Option(
            "where node ports are open: primary (the first address of each family in this node's Node), all, "
            "localhost, ranges, in any mix; empty: primary with nftables, all with iptables",
            metavar="WORD|CIDR,…",
            verbs=DECIDING,
        ),
    ] = ""
    masquerade_all: Annotated[
        bool, Option("give Pods' traffic to cluster IPs this node's address too", verbs=DECIDING)
    ] = False
    masquerade_bit: Annotated[
        int, Option("the bit of the packet mark that says masquerade, 0 to 31", metavar="N", verbs=DECIDING)
    ] = 14
    external_ips: Annotated[
        bool,
        Option(
            "use spec.externalIPs, which let whoever may write a Service take over any address (CVE-2020-8554)",
            verbs=DECIDING,
        ),
    ] = True
    metrics_addr: Annotated[str, METRICS_ADDR] = "127.0.0.1:10249"
    health_addr: Annotated[
        str,
        Option(
            "where /healthz and /livez are served; empty for the address of the metrics",
            metavar="ADDR:PORT",
            verbs=("run",),
        ),
    ] = "0.0.0.0:10256"
    sync_period: Annotated[
        float,
        Option("seconds between full reads of rules that nobody tells changes of", metavar="SECONDS", verbs=("run",)),
    ] = 30.0
    min_sync_period: Annotated[
        float,
        Option("seconds between two writes at least; changes in between are merged", metavar="SECONDS", verbs=("run",)),
    ] = 0.0
    config: Annotated[
        str | None,
        Option(
            "a KubeProxyConfiguration (kubeproxy.config.k8s.io/v1alpha1), read at the start; flags go before it",
            metavar="FILE",
            verbs=DECIDING,
        ),
    ] = None
    conntrack_max_per_core: Annotated[
        int,
        Option("connections that the kernel tracks at least, times processors; 0: leave the limit", verbs=_SETTING),
    ] = 32768
    conntrack_min: Annotated[
        int, Option("connections that the kernel tracks at least, however few processors", verbs=_SETTING)
    ] = 131072
    conntrack_tcp_be_liberal: Annotated[
        bool, Option("take TCP packets outside of the window as part of their connection", verbs=_SETTING)
    ] = False
    conntrack_tcp_timeout_established: Annotated[
        float, Option("for how long idle TCP connections are tracked; 0: leave it", metavar="SECONDS", verbs=_SETTING)
    ] = 86400.0
    conntrack_tcp_timeout_close_wait: Annotated[
        float, Option("the same in the state CLOSE_WAIT", metavar="SECONDS", verbs=_SETTING)
    ] = 3600.0
    conntrack_udp_timeout: Annotated[
        float, Option("for how long UDP without an answer is tracked; 0: leave it", metavar="SECONDS", verbs=_SETTING)
    ] = 0.0
    conntrack_udp_timeout_stream: Annotated[
        float, Option("the same for UDP in both directions", metavar="SECONDS", verbs=_SETTING)
    ] = 0.0
    oom_score_adj: Annotated[
        int | None,
        Option("how much rather the kernel ends this process than others, -1000 to 1000", metavar="N", verbs=("run",)),
    ] = None
    once: Annotated[bool, ONCE] = False
    clean_on_exit: Annotated[bool, CLEAN_ON_EXIT] = False
    state_dir: Annotated[
        str,
        Option("where is kept what the next start needs", metavar="DIR", verbs=("run", "plan", "clean")),
    ] = "/var/lib/podgate/services"

    @property
    def cluster_ranges(self) -> tuple[str, ...]:
        """The ranges of ``--cluster-cidr``, as they are written."""
        return listed(self.cluster_cidr)

    @property
    def nodeport_words(self) -> tuple[str, ...]:
        """What ``--nodeport-addresses`` says, with its default."""
        return listed(self.nodeport_addresses) or ((PRIMARY,) if self.backend == "nftables" else (ALL,))

    def mistakes(self) -> Iterator[str]:
        """Give what the types cannot say."""
        yield from listen_mistakes({"--metrics-addr": self.metrics_addr, "--health-addr": self.health_addr})
        yield from empty_mistakes({"--source": self.source, "--node-name": self.node_name})
        yield from kube_mistakes(self.kubeconfig, self.context)
        yield from self._bad_local()
        for word in listed(self.nodeport_addresses):
            if word not in (PRIMARY, LOCALHOST, ALL) and span(word) is None:
                yield f'--nodeport-addresses "{word}": write {PRIMARY}, {LOCALHOST}, {ALL}, or a range as 10.0.0.0/8'
        if not 0 <= self.masquerade_bit <= 31:
            yield f"--masquerade-bit {self.masquerade_bit}: must be 0 to 31"
        yield from self._bad_name(self.service_proxy_name)
        yield from self._bad_numbers()
        if not self.state_dir:
            yield "--state-dir is empty: give a folder"

    def _bad_name(self, name: str) -> Iterator[str]:
        if name and not _LABEL_VALUE.fullmatch(name):
            wanted = "at most 63 letters, digits, -, _ and ., a letter or digit at both ends"
            yield f'--service-proxy-name "{name}": is no value of a label: {wanted}'
        elif name and self.backend == "iptables":
            yield f"--service-proxy-name {name}: iptables chains are the default proxy's: give --backend nftables"

    def _bad_numbers(self) -> Iterator[str]:
        if self.sync_period <= 0:
            yield f"--sync-period {self.sync_period}: must be more than 0"
        if self.min_sync_period < 0:
            yield f"--min-sync-period {self.min_sync_period}: must be 0 or more"
        elif 0 < self.sync_period < self.min_sync_period:
            yield f"--min-sync-period {self.min_sync_period}: must be 0 to --sync-period, {self.sync_period}"
        for flag, value in (
            ("--conntrack-max-per-core", self.conntrack_max_per_core),
            ("--conntrack-min", self.conntrack_min),
            ("--conntrack-tcp-timeout-established", self.conntrack_tcp_timeout_established),
            ("--conntrack-tcp-timeout-close-wait", self.conntrack_tcp_timeout_close_wait),
            ("--conntrack-udp-timeout", self.conntrack_udp_timeout),
            ("--conntrack-udp-timeout-stream", self.conntrack_udp_timeout_stream),
        ):
            if value < 0:
                yield f"{flag} {value}: must be 0 or more"
        if self.oom_score_adj is not None and not -1000 <= self.oom_score_adj <= 1000:
            yield f"--oom-score-adj {self.oom_score_adj}: must be -1000 to 1000"

    def _bad_local(self) -> Iterator[str]:
        families: set[Family] = set()
        for text in self.cluster_ranges:
            given: Span | None = span(text)
            if given is None:
                yield f'--cluster-cidr "{text}": is no range; write one as 10.244.0.0/16, for example'
            elif family_of(given[0]) in families:
                yield f'--cluster-cidr "{text}": is the second range of its family; give one of each'
            else:
                families.add(family_of(given[0]))
        needed = {
            "BridgeInterface": ("--pod-bridge-interface", self.pod_bridge_interface),
            "InterfaceNamePrefix": ("--pod-interface-name-prefix", self.pod_interface_name_prefix),
        }
        for mode, (flag, given_name) in needed.items():
            # IFNAMSIZ is 16, with the byte that ends a name.
            if len(given_name.encode()) > 15 or any(each.isspace() or each in '/"*' for each in given_name):
                yield f'{flag} "{given_name}": is no name of a network device'
            elif self.detect_local_mode == mode and not given_name:
                yield f"--detect-local-mode {mode}: give {flag} too"
