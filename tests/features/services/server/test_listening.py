"""How many sockets listen, and which come first, over real sockets in a network namespace."""

import asyncio

import pytest

from podgate.features.services.server import room
from podgate.features.services.server.listening import NodePortListeners
from podgate.features.services.server.room import Room, Shares
from podgate.targets.listeners.state import ListenAddress, State
from tests.support.netns import netns

SHARES = Shares(limit=100, sockets=4, node_ports=3, clients=1, probes=1)


def four(port: int) -> ListenAddress:
    return ListenAddress("127.0.0.1", port, f"IPv4 node port {port}")


def six(port: int) -> ListenAddress:
    return ListenAddress("::1", port, f"IPv6 node port {port}")


def health(port: int) -> ListenAddress:
    return ListenAddress("0.0.0.0", port, f"IPv4 health check {port}")


Asked = frozenset[ListenAddress]
HISTORIES: dict[str, list[tuple[Asked, Asked]]] = {
    "what there is room for": [(frozenset({four(1001), six(1001), health(1002)}), frozenset())],
    "the lowest come first, IPv4 before IPv6": [
        (frozenset({four(1001), six(1001), four(1002), six(1002)}), frozenset({six(1002)}))
    ],
    "health checks come first, and may have all": [
        (frozenset(map(health, range(1011, 1014))) | {four(1001), four(1002)}, frozenset({four(1002)}))
    ],
    "node ports leave room for a health check": [
        (frozenset(map(four, range(1001, 1005))), frozenset({four(1004)})),
        (frozenset({*map(four, range(1001, 1005)), health(1011)}), frozenset({four(1004)})),
    ],
    "what is open stays open": [
        (frozenset({four(1002), four(1003), four(1004)}), frozenset()),
        (frozenset({four(1001), four(1002), four(1003), four(1004)}), frozenset({four(1001)})),
        (frozenset({four(1001), four(1002), four(1003)}), frozenset()),
    ],
}


@pytest.mark.kernel
@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_what_there_is_no_room_for_is_refused(
    history: list[tuple[Asked, Asked]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "shares_of", lambda _limit: SHARES)

    async def told() -> None:
        target = NodePortListeners(_Silent(), Room())
        for wanted, refused in history:
            found = await target.apply(target.diff(await target.read(), State(wanted)))
            assert set(found) == refused
            assert (await target.read()).addresses == wanted - refused
        await target.apply(target.diff(await target.read(), State()))

    with netns() as node:
        node.run_async(told)


class _Silent(dict[str, type[asyncio.Protocol]]):
    def __missing__(self, _name: str) -> type[asyncio.Protocol]:
        return asyncio.Protocol
