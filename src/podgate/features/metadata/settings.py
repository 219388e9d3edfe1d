"""settings: the options of ``podgate metadata``.

Here: the fields, whose annotations are the flags' help, and what they say together. Not here: the rules of a policy
(spec.py), the old program's two flags (dropin.py).
Invariant: the default of each option is the safe one, or the one that clients of v0.1.12 rely on.
"""

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Annotated, Final, Literal

from podgate.commandline.options import CONTEXT, DECIDING, KUBECONFIG, Option, empty_mistakes, kube_mistakes, listed
from podgate.features.metadata.freshness import STALE_AFTER
from podgate.features.metadata.profiles import GCE, PROFILES, V0112, Profile, Switch
from podgate.model.frozen import Frozen
from podgate.model.spelling import did_you_mean

LOCAL_ADDRESS: Final = "169.254.169.252"
"""Where redirected packets arrive: an address on lo, of scope host."""
SOCKET_PATH: Final = "write an absolute path of at most 107 bytes"
BUILT_IN: Final = "builtin:"
_REACHED: Final = (IPv4Address(LOCAL_ADDRESS), IPv4Address("0.0.0.0"), IPv6Address("::"))  # noqa: S104 - compared only
_IN_DEVICE: Final = str.maketrans(dict.fromkeys("-_.@", "x"))

AllowOrDeny = Literal["allow", "deny"]


class Settings(Frozen, frozen=True):
    """How this node's metadata proxy works."""

    addr: Annotated[
        str,
        Option(
            "where the proxy listens; 8080 is redirected to the port before it", metavar="ADDR:PORT", verbs=DECIDING
        ),
    ] = f"{LOCAL_ADDRESS}:988"
    metrics_addr: Annotated[
        str, Option("where metrics are served, on any path; empty for nowhere", metavar="ADDR:PORT", verbs=("run",))
    ] = "127.0.0.1:989"
    profile: Annotated[Literal["gce", "aws", "azure", "openstack"], Option("whose metadata server it is")] = "gce"
    policy: Annotated[
        str | None,
        Option(
            "rules beside the profile's: a file, a folder of files, or builtin:NAME", metavar="FILE|DIR|builtin:NAME"
        ),
    ] = None
    audit: Annotated[
        bool, Option("forward what would be denied, and only log and count it", verbs=("run", "explain"))
    ] = False
    log_requests: Annotated[bool, Option("write a log line for each request", verbs=("run",))] = True
    firewall: Annotated[bool, Option("make the node's rules; without them nothing is redirected here")] = True
    backend: Annotated[Literal["nftables", "iptables"], Option("what the rules are written to")] = "nftables"
    upstream: Annotated[
        str, Option("the metadata server, by its address", metavar="http://ADDRESS[:PORT]", verbs=("run",))
    ] = "http://169.254.169.254"
    uplink: Annotated[
        str | None,
        Option(
            "the node's own network devices, separated by commas; without it those of the IPv4 default routes",
            metavar="DEV,…",
            many=True,
        ),
    ] = None
    node_uids: Annotated[
        str,
        Option(
            "users whose processes on the node itself may ask the metadata server; all others there, as in Pods with "
            "hostNetwork, are refused; without it all may",
            metavar="FIRST-LAST",
        ),
    ] = ""
    allow_from: Annotated[
        str, Option("who may connect here directly, beside loopback; separated by commas", metavar="CIDR,…", many=True)
    ] = ""
    source: Annotated[
        str | None,
        Option("read Kubernetes objects from this folder or file", metavar="DIR|FILE", verbs=DECIDING),
    ] = None
    kubeconfig: Annotated[str | None, KUBECONFIG] = None
    context: Annotated[str | None, CONTEXT] = None
    per_pod: Annotated[
        bool,
        Option(
            "follow Pods and MetadataPolicies in a second process: those of --source or --kubeconfig, which imply it, "
            "else of $PODGATE_SOURCE or the Pod's own cluster",
            verbs=("run",),
        ),
    ] = False
    watch_socket: Annotated[
        str | None,
        Option("take them from podgate metadata watch, which serves this socket", metavar="PATH", verbs=("run",)),
    ] = None
    stale_after: Annotated[
        int,
        Option(
            "how long Pods may be unheard of until what a policy allows single Pods is not allowed, 10 to 86400",
            metavar="SECONDS",
            verbs=("run",),
        ),
    ] = STALE_AFTER
    node_name: Annotated[
        str | None, Option("this node's name; without it $NODE_NAME, else the host name", metavar="NAME")
    ] = None
    token: Annotated[
        AllowOrDeny | None, Option("access tokens of the node's account; without it allow for gce, deny elsewhere")
    ] = None
    ssh_keys: Annotated[AllowOrDeny | None, Option("users' public ssh keys; without it deny")] = None
    startup_script: Annotated[AllowOrDeny | None, Option("scripts run at start and shutdown; without it deny")] = None
    user_data: Annotated[AllowOrDeny | None, Option("user data; without it deny")] = None
    guest_attribute_writes: Annotated[
        AllowOrDeny | None, Option("PUT and DELETE of guest attributes; without it deny")
    ] = None
    legacy_endpoints: Annotated[
        AllowOrDeny | None, Option("GCE's /0.1/ and /computeMetadata/v1beta1/; without it allow")
    ] = None
    require_header: Annotated[
        bool, Option("ask for the profile's header everywhere (Metadata-Flavor: Google), as GKE's own server does")
    ] = False
    host_check: Annotated[bool, Option("refuse requests whose Host names another server, as after DNS rebinding")] = (
        True
    )
    host: Annotated[str, Option("other names that Host may have; separated by commas", metavar="NAME,…", many=True)] = (
        ""
    )
    token_hop_limit: Annotated[
        int, Option("hops that the answer with an AWS session token travels, 1 to 64", metavar="N", verbs=("run",))
    ] = 1

    @property
    def cloud(self) -> Profile:
        """The built-in policy in force."""
        name = self.policy.removeprefix(BUILT_IN) if self.policy and self.policy.startswith(BUILT_IN) else self.profile
        return PROFILES.get(name, PROFILES[self.profile])

    @property
    def policy_path(self) -> str | None:
        """The file or folder of rules; None without one."""
        return None if self.policy is None or self.policy.startswith(BUILT_IN) else self.policy.rstrip("/") or "/"

    @property
    def follows_objects(self) -> bool:
        """Whether ``run`` follows Pods and policies."""
        return self.per_pod or self.source is not None or self.kubeconfig is not None

    @property
    def opened(self) -> tuple[Switch, ...]:
        """The switches that are open: the profile's, unless a flag says otherwise."""
        chosen: dict[Switch, AllowOrDeny | None] = {
            "token": self.token,
            "ssh-keys": self.ssh_keys,
            "startup-script": self.startup_script,
            "user-data": self.user_data,
            "guest-attribute-writes": self.guest_attribute_writes,
            "legacy-endpoints": self.legacy_endpoints,
        }
        default = self.cloud.open
        return tuple(name for name, choice in chosen.items() if choice == "allow" or (not choice and name in default))

    @property
    def node_users(self) -> tuple[int, int] | None:
        """The first and the last user of ``--node-uids``; None for all."""
        first, _, last = self.node_uids.partition("-")
        return (int(first), int(last)) if self.node_uids else None

    @property
    def uplinks(self) -> tuple[str, ...]:
        """The devices of ``--uplink``; empty for those of the IPv4 default routes."""
        return listed(self.uplink or "")

    @property
    def hosts(self) -> tuple[str, ...]:
        """The other names that Host may have."""
        return listed(self.host)

    @property
    def allowed_networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """The ranges of ``--allow-from``."""
        return tuple(ip_network(text) for text in listed(self.allow_from))

    @property
    def listen(self) -> tuple[IPv4Address | IPv6Address, int]:
        """Where the proxy listens."""
        return address_and_port(self.addr)

    @property
    def upstream_address(self) -> tuple[IPv4Address | IPv6Address, int]:
        """Where the metadata server is."""
        rest = self.upstream.removeprefix("http://").rstrip("/")
        return address_and_port(rest if rest.rpartition("]")[2].count(":") == 1 else f"{rest}:80")

    def mistakes(self) -> Iterator[str]:
        """Give what the types cannot say."""
        yield from self._bad_addresses()
        yield from self._bad_lists()
        if self.node_uids and not _is_range(self.node_uids):
            yield f'--node-uids "{self.node_uids}": write FIRST-LAST, as 0-2999, with 0 in it: podgate itself is user 0'
        if self.policy is not None and self.policy.startswith(BUILT_IN):
            yield from self._bad_built_in(self.policy.removeprefix(BUILT_IN))
        yield from empty_mistakes({"--policy": self.policy, "--source": self.source, "--node-name": self.node_name})
        yield from kube_mistakes(self.kubeconfig, self.context)
        if self.watch_socket is not None:
            yield from self._bad_watch(self.watch_socket)
        if self.require_header and not self.cloud.headers:
            yield f"--require-header: the profile {self.cloud.name} has no such header; leave the flag out"
        if not 10 <= self.stale_after <= 86400:
            yield f"--stale-after {self.stale_after}: must be 10 to 86400: a sign of life comes every 5 seconds"
        if not 1 <= self.token_hop_limit <= 64:
            yield f"--token-hop-limit {self.token_hop_limit}: must be 1 to 64"

    def _bad_lists(self) -> Iterator[str]:
        for text in listed(self.allow_from):
            try:
                ip_network(text)
            except ValueError:
                yield f'--allow-from "{text}": is no CIDR; write it as 10.64.0.0/24, without host bits'
        for name in () if self.uplink is None else self.uplinks or ("",):
            if not _is_device(name):
                yield f'--uplink "{name}": is no name of a network device; write one, as eth0, or several as eth0,eth1'
        for name in self.hosts:
            if not name.isascii() or any(character.isspace() or character in "/@,:" for character in name):
                yield f'--host "{name}": write a name as in a Host header, without a port'

    def _bad_watch(self, path: str) -> Iterator[str]:
        if not is_socket_path(path):
            yield f'--watch-socket "{path}": {SOCKET_PATH}'
        others = (("--per-pod", self.per_pod), ("--source", self.source), ("--kubeconfig", self.kubeconfig))
        for flag, given in (*others, ("--policy FILE", self.policy_path)):
            if given:
                yield f"{flag}: with --watch-socket it belongs to podgate metadata watch: give it there"

    def _bad_addresses(self) -> Iterator[str]:
        try:
            address, port = self.listen
        except ValueError:
            yield f'--addr "{self.addr}": write ADDRESS:PORT, as {LOCAL_ADDRESS}:988'
        else:
            if self.firewall and address not in _REACHED:
                yield (
                    f'--addr "{self.addr}": redirected packets go to {LOCAL_ADDRESS}:{port} and would not arrive; '
                    f"listen on {LOCAL_ADDRESS} or 0.0.0.0, or give --no-firewall"
                )
            if self.firewall and port < 2:
                yield f'--addr "{self.addr}": the port before it, for 8080, is none; choose a higher one'
        if self.metrics_addr:
            try:
                address_and_port(self.metrics_addr)
            except ValueError:
                yield f'--metrics-addr "{self.metrics_addr}": write ADDRESS:PORT, as 127.0.0.1:989'
        try:
            if not self.upstream.startswith("http://"):
                raise ValueError(self.upstream)  # noqa: TRY301 - one message for all that is wrong with it
            self.upstream_address  # noqa: B018 - looked at for its error
        except ValueError:
            yield (
                f'--upstream "{self.upstream}": write http://ADDRESS or http://ADDRESS:PORT; '
                "a name is never looked up, since whoever answers for it could be anybody"
            )

    def _bad_built_in(self, name: str) -> Iterator[str]:
        if name not in PROFILES:
            yield f'--policy "{self.policy}": there is no such policy{did_you_mean(name, PROFILES)}; {_known()}'
        elif name != self.profile and not (self.profile == GCE.name and name == V0112.name):
            yield f'--policy "{self.policy}" is not for --profile {self.profile}: give --profile {name} instead'


def address_and_port(text: str) -> tuple[IPv4Address | IPv6Address, int]:
    """Read ``ADDRESS:PORT``, IPv6 in brackets; raises ValueError for anything else."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    address = ip_address(host[1:-1] if bracketed else host)
    if bracketed != (address.version == 6) or not colon or not port.isascii() or not port.isdecimal():
        raise ValueError(text)
    number = int(port)
    if not 0 < number < 65536:
        raise ValueError(text)
    return address, number


def is_socket_path(path: str) -> bool:
    """Say whether a unix socket can be at a path: 107 bytes and a NUL are sun_path of sockaddr_un, unix(7)."""
    return path.startswith("/") and "\0" not in path and len(path.encode(errors="surrogateescape")) <= 107


def _is_device(name: str) -> bool:
    """Say whether a name can be a network device's (IFNAMSIZ is 16), and is a plain one."""
    return 0 < len(name) < 16 and name.isascii() and name.translate(_IN_DEVICE).isalnum()


def _is_range(text: str) -> bool:
    """Say whether a text is a range of users with 0 in it."""
    first, _, last = text.partition("-")
    return first == "0" and last.isascii() and last.isdecimal() and int(last) < 1 << 32


def _known() -> str:
    return "there are " + ", ".join(BUILT_IN + name for name in PROFILES)
