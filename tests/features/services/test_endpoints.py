"""Choosing endpoints: an oracle that is written down rule by rule, and the choice for random endpoints."""

from collections.abc import Iterable
from random import Random
from typing import TypeVar

from hypothesis import given
from hypothesis import strategies as st

from podgate.features.services.endpoints import Here, choose, endpoints_of, ready_here
from podgate.features.services.slices import READY, SERVING, TERMINATING, SliceEndpoint, SliceFacts, SlicePort
from podgate.model.frozen import ObjectRef

T = TypeVar("T")
HERE = Here("node-1", "a")
PORT = (80).to_bytes(2)
SERVICE = ObjectRef("Service", "web", "shop")

backends = st.builds(
    SliceEndpoint,
    address=st.integers(1, 4).map(lambda number: bytes((10, 0, 0, number))),
    state=st.integers(0, 7),
    node=st.sampled_from(["", "node-1", "node-2"]),
    zones=st.sampled_from([(), ("a",), ("b",), ("a", "b")]),
    nodes=st.sampled_from([(), ("node-1",), ("node-2",)]),
    pod=st.sampled_from(["", "p", "q"]),
    changed=st.sampled_from(["", "1", "2"]),
)
slices = st.lists(st.lists(backends, max_size=4), max_size=3).map(
    lambda found: [SliceFacts(SERVICE, "ip", (SlicePort("", "tcp", PORT),), tuple(each)) for each in found]
)


def is_draining(backend: SliceEndpoint) -> bool:
    return bool(backend.state & SERVING and backend.state & TERMINATING)


def usable(found: list[SliceEndpoint], *, local: bool) -> list[SliceEndpoint]:
    """The ready ones; where there are none, those that terminate and serve."""
    if local:
        found = [backend for backend in found if backend.node == HERE.node]
    ready = [backend for backend in found if backend.state & READY]
    return ready or [backend for backend in found if is_draining(backend)]


def near(found: list[SliceEndpoint]) -> list[SliceEndpoint]:
    """By hints, where each ready endpoint has one of a level and one of them names this place."""
    if not any(backend.state & READY for backend in found):
        return found
    by_node = [backend for backend in found if HERE.node in backend.nodes]
    by_zone = [backend for backend in found if HERE.zone in backend.zones]
    if by_node and all(backend.nodes for backend in found):
        return by_node
    return by_zone if by_zone and all(backend.zones for backend in found) else found


@given(slices, st.booleans(), st.booleans())
def test_the_choice_is_the_oracle_s(facts: list[SliceFacts], uses_cluster: bool, uses_local: bool) -> None:
    found = endpoints_of(facts, "", "tcp")
    chosen = choose(found, HERE, uses_cluster=uses_cluster, uses_local=uses_local, udp=True)
    each = list(found.values())
    assert keys(chosen.cluster) == (
        {backend.address for backend in near(usable(each, local=False))} if uses_cluster else set()
    )
    assert keys(chosen.local) == ({backend.address for backend in usable(each, local=True)} if uses_local else set())
    assert chosen.anywhere is bool(usable(each, local=False))
    assert keys(chosen.serving) == {backend.address for backend in each if backend.state & (READY | SERVING)}
    used = {*keys(chosen.cluster), *keys(chosen.local)}
    assert set(chosen.own) == {
        backend.address for backend in each if backend.address in used and backend.node in ("", HERE.node)
    }
    assert all(list(part) == sorted(set(part)) for part in (chosen.cluster, chosen.local, chosen.serving, chosen.own))


def keys(endpoints: tuple[bytes, ...]) -> set[bytes]:
    return {endpoint[:-2] for endpoint in endpoints}


@given(slices, st.randoms(use_true_random=False))
def test_the_order_of_slices_and_endpoints_changes_nothing(facts: list[SliceFacts], random: Random) -> None:
    def mixed(items: Iterable[T]) -> tuple[T, ...]:
        found = list(items)
        random.shuffle(found)
        return tuple(found)

    shuffled = [SliceFacts(SERVICE, "ip", each.ports, mixed(each.endpoints)) for each in mixed(facts)]
    assert endpoints_of(shuffled, "", "tcp") == endpoints_of(facts, "", "tcp")


def only(*found: SliceEndpoint) -> SliceEndpoint:
    """Give the one that counts of several of one address, each in a slice of its own."""
    facts = [SliceFacts(SERVICE, "ip", (SlicePort("", "tcp", PORT),), (each,)) for each in found]
    (backend,) = endpoints_of(facts, "", "tcp").values()
    return backend


def test_of_two_pods_with_one_address_the_living_one_counts() -> None:
    address = bytes((10, 0, 0, 1))
    ending = SliceEndpoint(address, SERVING | TERMINATING, pod="old", changed="2")
    starting = SliceEndpoint(address, 0, pod="new", changed="1")
    ready = SliceEndpoint(address, READY | SERVING, pod="new", changed="1")
    assert only(ending, ready) == ready
    assert only(ending, starting) == starting
    assert only(SliceEndpoint(address, READY | TERMINATING, pod="old", changed="2"), ready) == ready


def test_of_one_pod_in_two_slices_the_newer_slice_counts() -> None:
    address = bytes((10, 0, 0, 1))
    before = SliceEndpoint(address, READY | SERVING, pod="p", changed="2026-01-01T00:00:00")
    after = SliceEndpoint(address, TERMINATING, pod="p", changed="2026-01-01T00:00:00.5")
    assert only(before, after) == only(after, before) == after
    better = SliceEndpoint(address, READY | SERVING, pod="p", changed="2026-01-01T00:00:01")
    assert only(after, better) == only(better, after) == better
    other = SliceEndpoint(address, READY | SERVING, pod="q", changed="2025-01-01T00:00:00")
    assert only(before, after, other) == only(other, after, before) == other


def test_without_a_node_s_name_nothing_is_local() -> None:
    found = {bytes((10, 0, 0, 1)) + PORT: SliceEndpoint(bytes((10, 0, 0, 1)))}
    assert choose(found, Here(), uses_cluster=True, uses_local=True).local == ()
    assert ready_here([], Here(), [("", "tcp")]) == 0
