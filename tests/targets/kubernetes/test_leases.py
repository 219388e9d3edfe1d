"""Who leads, in histories without I/O: at most one may write, whatever is lost, delayed or skewed."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podgate.targets.kubernetes.leases import CANDIDATES, Election, Lease, LeaseMeta, LeaseSpec, LeaseWrite

WALL = "2026-01-01T00:00:00.000000Z"


class Api:
    """One Lease, with the optimistic lock that an API server has."""

    def __init__(self) -> None:
        self.lease: Lease | None = None
        self.version = 0

    def write(self, write: LeaseWrite) -> Lease | None:
        have = self.lease.metadata.resource_version if self.lease else ""
        if write.resource_version != have:
            return None
        self.version += 1
        self.lease = Lease(LeaseMeta("l", "ns", str(self.version)), write.spec)
        return self.lease


def turn(election: Election, api: Api, now: float, asked_at: float | None = None) -> Election:
    """Read, and write what is wanted; the write is answered at ``now``."""
    election = election.saw(api.lease, now)
    write = election.wants(now, WALL)
    written = api.write(write) if write else None
    return election.wrote(written, now if asked_at is None else asked_at, now) if written else election


def test_the_first_one_makes_the_lease_and_leads() -> None:
    api = Api()
    one = turn(Election("one"), api, 0)
    assert api.lease is not None
    assert api.lease.spec == LeaseSpec("one", 15, WALL, WALL, 0)
    assert one.leads(9.9)
    assert not one.leads(10)


def test_the_second_one_waits_until_it_saw_no_change_for_the_whole_duration() -> None:
    api = Api()
    turn(Election("one"), api, 0)
    two = turn(Election("two"), api, 100)
    assert two.wants(100 + 14.9, WALL) is None
    two = turn(two, api, 115)
    assert two.leads(115)
    assert api.lease is not None
    assert (api.lease.spec.holder_identity, api.lease.spec.lease_transitions) == ("two", 1)


def test_each_renewal_starts_the_wait_afresh() -> None:
    api = Api()
    one, two = turn(Election("one"), api, 0), Election("two")
    for now in range(0, 60, 5):
        one = one.saw(api.lease, now)
        write = one.wants(now, f"time {now}")
        assert write is not None
        written = api.write(write)
        assert written is not None
        one = one.wrote(written, now, now)
        two = turn(two, api, now + 1)
        assert one.leads(now + 1)
        assert not two.leads(now + 1)
    assert api.lease is not None
    assert api.lease.spec.acquire_time == WALL
    assert api.lease.spec.lease_transitions == 0


def test_time_counts_from_when_it_was_asked_for() -> None:
    api = Api()
    one = turn(Election("one"), api, 8, asked_at=0)
    assert one.leads(9)
    assert not one.leads(10)


def test_seeing_another_holder_ends_leadership_at_once() -> None:
    api = Api()
    one = turn(Election("one"), api, 0)
    other = Lease(LeaseMeta("l", "ns", "9"), LeaseSpec("two", 15, WALL, WALL, 1))
    assert one.leads(1)
    assert not one.saw(other, 1).leads(1)
    assert not one.saw(None, 1).leads(1)


def test_a_lease_that_is_given_back_is_free_at_once() -> None:
    api = Api()
    one = turn(Election("one"), api, 0)
    write = one.releases(1, WALL)
    assert write is not None
    assert api.write(write)
    assert not one.gone().leads(1)
    assert turn(Election("two"), api, 1).leads(1)
    assert one.gone().releases(1, WALL) is None


def test_a_write_that_lost_the_race_leads_nobody() -> None:
    api = Api()
    one, two = Election("one").saw(None, 0), Election("two").saw(None, 0)
    first, second = one.wants(0, WALL), two.wants(0, WALL)
    assert first is not None
    assert second is not None
    assert api.write(first) is not None
    assert api.write(second) is None


def test_our_own_lease_of_an_earlier_life_is_renewed_at_once() -> None:
    api = Api()
    turn(Election("one"), api, 0)
    reborn = turn(Election("one"), api, 1)
    assert reborn.leads(1)
    assert api.lease is not None
    assert api.lease.spec.lease_transitions == 0


Steps = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 2]),
        st.sampled_from(["turn", "lost answer", "stale", "release", "rest"]),
        st.floats(0, 6),
    ),
    max_size=60,
)


@settings(deadline=None)
@given(Steps)
def test_at_most_one_leads_at_any_time(steps: list[tuple[int, str, float]]) -> None:
    api, now = Api(), 0.0
    elections = [Election(f"c{index}") for index in range(3)]
    # Each has a clock of its own, which shows another time.
    skew = [0.0, 1e6, -500.0]
    for index, deed, passes in steps:
        now += passes
        own = now + skew[index]
        election = elections[index]
        match deed:
            case "turn":
                elections[index] = turn(election, api, own)
            case "lost answer":
                election = election.saw(api.lease, own)
                write = election.wants(own, WALL)
                if write:
                    api.write(write)
                elections[index] = election
            case "stale":
                write = election.wants(own, WALL)
                written = api.write(write) if write else None
                elections[index] = election.wrote(written, own, own) if written else election
            case "release":
                write = election.releases(own, WALL)
                elections[index] = election.gone()
                if write:
                    api.write(write)
        leaders = [each.identity for each, late in zip(elections, skew, strict=True) if each.leads(now + late)]
        assert len(leaders) <= 1, leaders


@pytest.mark.parametrize(
    ("candidates", "holder", "seconds"),
    [
        ("1", "other", 2.0),
        ("100", "other", 2.0),
        ("5000", "other", 100.0),
        ("5000", "c0", 2.0),
        ("5000", "", 2.0),
        ("99999999", "other", 300.0),
        ("many", "other", 2.0),
        ("", "other", 2.0),
    ],
)
def test_the_more_take_part_the_more_seldom_those_who_wait_look(candidates: str, holder: str, seconds: float) -> None:
    lease = Lease(LeaseMeta("l", "n", "7", {CANDIDATES: candidates}), LeaseSpec(holder, 15))
    election = Election("c0").saw(lease, 100.0)
    if holder == "c0":
        election = election.wrote(lease, 100.0, 100.0)
    assert election.pause(101.0) == seconds
    assert election.candidates == (int(candidates) if candidates.isdigit() else 1)


def test_a_lease_of_the_api_decodes() -> None:
    data = (
        b'{"kind":"Lease","metadata":{"name":"l","namespace":"n","resourceVersion":"7"},"spec":{"holderIdentity":"x"}}'
    )
    lease = msgspec.json.decode(data, type=Lease)
    assert (lease.metadata.resource_version, lease.spec.holder_identity) == ("7", "x")
    assert msgspec.json.encode(LeaseSpec("x", 15)) == b'{"holderIdentity":"x","leaseDurationSeconds":15}'
