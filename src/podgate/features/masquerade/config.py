"""config: what a masquerade configuration says, however it was written.

Here: the value, the built-in defaults, merging, and the bytes that are kept as last good. Not here: reading a user's
text (reading.py), choosing which configuration is in force (compile.py).
Invariant: each entry and key names its origin, through merging and keeping too; equal configurations keep equal bytes.
"""

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Final

import msgspec

from podgate.features.masquerade.prefixes import BUILT_IN, Action, Entry, RuleOrigin, networks_of
from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.machine import Family

KEYS: Final = ("nonMasqueradeCIDRs", "cidrLimit", "masqLinkLocal", "masqLinkLocalIPv6", "resyncInterval")
"""The keys of the file, as ip-masq-agent spells them."""

PRIVATE_RANGES: Final = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")
"""The built-in list (RFC 1918), in force while no list is given."""

RESERVED_RANGES: Final = (
    "100.64.0.0/10",  # RFC 6598, shared address space
    "192.0.0.0/24",  # RFC 6890, IETF protocol assignments
    "192.0.2.0/24",  # RFC 5737, documentation
    "192.88.99.0/24",  # RFC 7526, 6to4 relays of old
    "198.18.0.0/15",  # RFC 2544 (6815), benchmarks
    "198.51.100.0/24",  # RFC 5737, documentation
    "203.0.113.0/24",  # RFC 5737, documentation
    "240.0.0.0/4",  # RFC 1112, reserved
)
"""What ``--nomasq-all-reserved-ranges`` adds to the built-in list."""

LINK_LOCAL: Final[Mapping[Family, IPv4Network | IPv6Network]] = {
    "ip": IPv4Network("169.254.0.0/16"),
    "ip6": IPv6Network("fe80::/10"),
}
CIDR_LIMIT: Final = 64
RESYNC_INTERVAL: Final = 60_000_000_000
"""Nanoseconds."""

KERNEL: Final = ObjectRef(kind="Kernel", name="podgate-masquerade")
"""The origin of entries that were read back from our own rules."""

_KEPT_VERSION: Final = 1


class Config(Frozen, frozen=True):
    """One configuration.

    Attributes:
        entries: nonMasqueradeCIDRs, or the built-in list, in the order written.
        masq_link_local: whether 169.254.0.0/16 is masqueraded like everything else.
        masq_link_local_ipv6: the same for fe80::/10.
        cidr_limit: how many entries one file may have.
        resync_interval: nanoseconds between two drift checks.
        given: where each key that was given stands; an absent key has its default.
    """

    entries: tuple[Entry, ...] = ()
    masq_link_local: bool = False
    masq_link_local_ipv6: bool = False
    cidr_limit: int = CIDR_LIMIT
    resync_interval: int = RESYNC_INTERVAL
    given: Mapping[str, RuleOrigin] = {}

    def link_local(self, family: Family) -> Entry | None:
        """Give the entry that keeps link-local destinations, unless they are masqueraded."""
        key = "masqLinkLocal" if family == "ip" else "masqLinkLocalIPv6"
        masqueraded = self.masq_link_local if family == "ip" else self.masq_link_local_ipv6
        return None if masqueraded else Entry(LINK_LOCAL[family], "keep", self.given.get(key, BUILT_IN))


def default_entries(*, all_reserved: bool) -> tuple[Entry, ...]:
    """Give the built-in list: the 3 private ranges, or all 11 reserved ones."""
    ranges = PRIVATE_RANGES + RESERVED_RANGES if all_reserved else PRIVATE_RANGES
    return tuple(Entry(IPv4Network(each), "keep") for each in ranges)


def merge(configs: Sequence[Config]) -> Config:
    """Join the files of a directory, as Azure's agent does.

    The lists are joined in order, a boolean is true if it is in any file, and of the intervals the shortest counts.
    The built-in list is not in it: whoever writes any such file says all that is kept.
    """
    given: dict[str, RuleOrigin] = {}
    entries: list[Entry] = []
    link_local = link_local_ipv6 = False
    resync: int | None = None
    for config in configs:
        entries.extend(config.entries)
        deciding = {
            "masqLinkLocal": config.masq_link_local and not link_local,
            "masqLinkLocalIPv6": config.masq_link_local_ipv6 and not link_local_ipv6,
            "resyncInterval": resync is not None and config.resync_interval < resync,
        }
        link_local |= config.masq_link_local
        link_local_ipv6 |= config.masq_link_local_ipv6
        if "resyncInterval" in config.given:
            resync = config.resync_interval if resync is None else min(resync, config.resync_interval)
        for key, origin in config.given.items():
            if key not in given or deciding.get(key, False):
                given[key] = origin
    return Config(
        entries=tuple(entries),
        masq_link_local=link_local,
        masq_link_local_ipv6=link_local_ipv6,
        cidr_limit=max((config.cidr_limit for config in configs), default=CIDR_LIMIT),
        resync_interval=RESYNC_INTERVAL if resync is None else resync,
        given=given,
    )


class _Kept(Frozen, frozen=True):
    """The kept bytes: refs apart, since thousands of entries share a few."""

    version: int
    refs: tuple[ObjectRef, ...]
    entries: tuple[tuple[str, Action, int, str], ...]  # CIDR, action, index into refs or -1, field
    given: tuple[tuple[str, int, str], ...]  # key, index into refs, field
    masq_link_local: bool
    masq_link_local_ipv6: bool
    cidr_limit: int
    resync_interval: int


def kept_bytes(config: Config) -> bytes:
    """Write a configuration so that ``from_kept`` gives it back, origins included."""
    indexes: dict[ObjectRef | None, int] = {None: -1}

    def index(ref: ObjectRef | None) -> int:
        return indexes.setdefault(ref, len(indexes) - 1)

    entries = tuple((str(e.network), e.action, index(e.origin.ref), e.origin.field) for e in config.entries)
    given = tuple((key, index(origin.ref), origin.field) for key, origin in sorted(config.given.items()))
    kept = _Kept(
        version=_KEPT_VERSION,
        refs=tuple(ref for ref in indexes if ref is not None),
        entries=entries,
        given=given,
        masq_link_local=config.masq_link_local,
        masq_link_local_ipv6=config.masq_link_local_ipv6,
        cidr_limit=config.cidr_limit,
        resync_interval=config.resync_interval,
    )
    return msgspec.json.encode(kept)


def from_kept(data: bytes, families: Iterable[Family]) -> Config | None:
    """Read kept bytes back; None when they are not ours, or of another version.

    Entries of a family that is off now are left out.
    """
    versions = {"ip": 4, "ip6": 6}
    wanted = {versions[family] for family in families}
    try:
        kept = msgspec.json.decode(data, type=_Kept)
        if kept.version != _KEPT_VERSION:
            return None
        refs = (*kept.refs, None)  # index -1
        networks = tuple(ip_network(cidr) for cidr, _, _, _ in kept.entries)
        entries = tuple(
            Entry(network, action, RuleOrigin(refs[index], field))
            for network, (_, action, index, field) in zip(networks, kept.entries, strict=True)
            if network.version in wanted
        )
        given = {key: RuleOrigin(refs[index], field) for key, index, field in kept.given}
    except (msgspec.DecodeError, ValueError, IndexError):
        return None
    return Config(
        entries=entries,
        masq_link_local=kept.masq_link_local,
        masq_link_local_ipv6=kept.masq_link_local_ipv6,
        cidr_limit=kept.cidr_limit,
        resync_interval=kept.resync_interval,
        given=given,
    )


def recover(spans: Mapping[Family, Sequence[tuple[int, int]]]) -> bytes:
    """Turn the keep intervals of our own kernel rules back into kept bytes.

    For a start with a bad file where nothing could be kept on disk. Link-local ranges are among the intervals if they
    were kept, so they are not added again. The caller makes sure that our rules were there at all.
    """
    entries = tuple(
        Entry(network, "keep", RuleOrigin(KERNEL))
        for family in sorted(spans)
        for span in spans[family]
        for network in networks_of(span, family)
    )
    return kept_bytes(Config(entries=entries, masq_link_local=True, masq_link_local_ipv6=True))
