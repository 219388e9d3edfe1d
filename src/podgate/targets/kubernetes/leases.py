"""Leases: who leads, as a state machine over what a Lease object says. Pure.

Here: when to take, renew and give up a Lease, and whether we may write. Not here: requests and clocks (leading.py).
Invariant: of several that follow these rules, at most one may write at a time, as long as their clocks run about
equally fast; their clocks' times are never compared: what counts is how long a record was seen unchanged.

The rules are those of client-go's leader election (tools/leaderelection), on coordination.k8s.io/v1.
"""

from collections.abc import Mapping
from typing import Final

from podgate.model.frozen import Frozen
from podgate.model.kinds.meta import ApiStruct
from podgate.model.snapshot import Kind


class LeaseMeta(ApiStruct, frozen=True, rename="camel"):
    """As much of a Lease's metadata as a replacement needs."""

    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    annotations: Mapping[str, str] = {}


class LeaseSpec(ApiStruct, frozen=True, rename="camel", omit_defaults=True):
    """Who holds it; times are RFC 3339 with microseconds, written for people alone."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(ApiStruct, frozen=True, rename="camel"):
    """A Lease."""

    metadata: LeaseMeta = LeaseMeta()
    spec: LeaseSpec = LeaseSpec()


LEASE: Final[Kind[Lease]] = Kind(
    group="coordination.k8s.io", version="v1", kind="Lease", plural="leases", namespaced=True, decodes_to=Lease
)


CANDIDATES: Final = "podgate.dev/candidates"
"""The annotation in which a leader says how many take part, so that those who wait know how often to look."""

LOOKS: Final = 50.0
"""Looks at a Lease per second that all candidates together may take. With 5,000 nodes each looks every 100 s."""

LONGEST_PAUSE: Final = 300.0
"""Seconds between two looks, however many take part."""


class Terms(Frozen, frozen=True):
    """How long things last, in seconds; the defaults of client-go.

    Attributes:
        duration: after which a Lease that nobody renews is free.
        deadline: after which a holder that could not renew stops writing; less than ``duration``.
        retry: between attempts, before jitter.
        forbidden: between attempts of somebody who may not use the Lease.
    """

    duration: int = 15
    deadline: float = 10.0
    retry: float = 2.0
    forbidden: float = LONGEST_PAUSE


class LeaseWrite(Frozen, frozen=True):
    """What to write: a new Lease (no ``resource_version``), or a replacement of just that version."""

    spec: LeaseSpec
    resource_version: str = ""


class Election(Frozen, frozen=True):
    """What one candidate knows. Times are seconds of its own clock, which never goes back.

    Attributes:
        identity: who we are: unique among the candidates.
        seen: the record that was read or written last; None: there is none.
        seen_at: since when that record is unchanged.
        may_write_until: our leadership ends then unless it is renewed.
    """

    identity: str
    terms: Terms = Terms()
    seen: Lease | None = None
    seen_at: float = float("-inf")
    may_write_until: float = float("-inf")

    def leads(self, now: float) -> bool:
        """Say whether we may write."""
        return now < self.may_write_until

    def pause(self, now: float) -> float:
        """Seconds until the next turn: who leads renews, who waits looks the more seldom the more there are."""
        if self.leads(now) or not _holder(self.seen):
            return self.terms.retry
        return max(self.terms.retry, min(self.candidates / LOOKS, LONGEST_PAUSE))

    @property
    def candidates(self) -> int:
        """How many take part, as the Lease says that was seen last; 1 where it says nothing."""
        told = self.seen.metadata.annotations.get(CANDIDATES, "") if self.seen is not None else ""
        return max(1, int(told)) if told.isascii() and told.isdigit() and len(told) < 9 else 1

    def saw(self, lease: Lease | None, now: float) -> "Election":
        """Take what the API says. A record of somebody else ends our leadership at once."""
        unchanged = lease is not None and self.seen is not None and lease.spec == self.seen.spec
        until = self.may_write_until if _holder(lease) == self.identity else float("-inf")
        return Election(self.identity, self.terms, lease, self.seen_at if unchanged else now, until)

    def wants(self, now: float, wall: str) -> LeaseWrite | None:
        """Say what to write: None while somebody else holds the Lease. ``wall`` is the time for people."""
        spec = self.seen.spec if self.seen is not None else LeaseSpec()
        holder = _holder(self.seen)
        if holder and holder != self.identity and now < self.seen_at + (spec.lease_duration_seconds or 0):
            return None
        same = holder == self.identity
        before = spec.lease_transitions or 0
        fresh = LeaseSpec(
            holder_identity=self.identity,
            lease_duration_seconds=self.terms.duration,
            acquire_time=(spec.acquire_time if same else None) or wall,
            renew_time=wall,
            lease_transitions=before if same or self.seen is None else before + 1,
        )
        return LeaseWrite(fresh, self.seen.metadata.resource_version if self.seen is not None else "")

    def wrote(self, lease: Lease, asked_at: float, now: float) -> "Election":
        """Take a write that the API accepted. Leadership counts from when it was asked for, not from the answer."""
        return Election(self.identity, self.terms, lease, now, asked_at + self.terms.deadline)

    def releases(self, now: float, wall: str) -> LeaseWrite | None:
        """Say what to write so that the next one need not wait; None when we do not lead."""
        if self.seen is None or not self.leads(now):
            return None
        spec = LeaseSpec("", 1, self.seen.spec.acquire_time, wall, self.seen.spec.lease_transitions)
        return LeaseWrite(spec, self.seen.metadata.resource_version)

    def gone(self) -> "Election":
        """Stop leading."""
        return Election(self.identity, self.terms, self.seen, self.seen_at)


def _holder(lease: Lease | None) -> str:
    return (lease.spec.holder_identity or "") if lease is not None else ""
