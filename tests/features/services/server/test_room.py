"""What the open files of a process are for."""

import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podgate.features.services.server.room import Room, Shares, shares_of

SHARES = {
    64: Shares(64, sockets=16, node_ports=12, clients=8, probes=4),
    256: Shares(256, sockets=64, node_ports=48, clients=32, probes=16),
    1024: Shares(1024, sockets=384, node_ports=288, clients=192, probes=64),
    4096: Shares(4096, sockets=1920, node_ports=1440, clients=960, probes=64),
    1048576: Shares(1048576, sockets=1046272, node_ports=784704, clients=1024, probes=64),
}


@pytest.mark.parametrize("limit", SHARES)
def test_how_a_limit_is_divided(limit: int) -> None:
    assert shares_of(limit) == SHARES[limit]


@given(st.integers(16, 1 << 30))
def test_a_part_stays_that_neither_services_nor_clients_can_take(limit: int) -> None:
    shares = shares_of(limit)
    pages = 3 * shares.probes  # as many connections may each of two addresses of pages have
    assert limit - shares.sockets - 2 * shares.clients - pages >= min(64, limit // 4)
    assert 0 < shares.node_ports <= shares.sockets


def test_it_is_this_process_that_the_shares_are_of() -> None:
    assert Room().shares.limit == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
