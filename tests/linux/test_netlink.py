"""Netlink: framing against the bytes of linux/netlink.h, and requests, dumps and notifications of the real kernel."""

import asyncio
import errno
import socket
import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podgate.linux.namespaces import inside_network
from podgate.linux.netlink import (
    NLA_F_NESTED,
    NLM_F_ACK,
    Connection,
    Listener,
    NetlinkError,
    NotificationsLostError,
    attribute,
    attribute_list,
    attributes,
    frame,
    messages,
    nested,
    string,
    text,
)
from tests.support.netns import NetNamespace, netns

RTM_NEWLINK, RTM_GETLINK, RTM_GETADDR, RTM_SETLINK = 16, 18, 22, 19
RTMGRP_LINK = 1
IFLA_IFNAME = 3


def link_body(index: int) -> bytes:
    return struct.pack("=BxHiII", 0, 0, index, 0, 0)


def test_a_frame_is_header_body_and_padding() -> None:
    assert frame(0x10, 0x5, 7, b"abc") == struct.pack("=IHHII", 19, 0x10, 0x5, 7, 0) + b"abc\0"


def test_attributes_are_padded_to_four_bytes_and_nest() -> None:
    assert text(1, "eth0") == b"\x09\x00\x01\x00eth0\0\0\0\0"
    assert nested(2, attribute(1, b"ab")) == struct.pack("=HH", 12, 2 | NLA_F_NESTED) + b"\x06\x00\x01\x00ab\0\0"
    assert string(attributes(text(1, "eth0"))[1]) == "eth0"


@given(st.lists(st.tuples(st.integers(0, 0x3FFF), st.binary(max_size=40)), max_size=8))
def test_what_is_encoded_as_attributes_is_read_back(pairs: list[tuple[int, bytes]]) -> None:
    assert list(attribute_list(b"".join(attribute(kind, value) for kind, value in pairs))) == pairs


@given(st.lists(st.tuples(st.integers(0, 0xFFFF), st.integers(0, 0xFFFF), st.binary(max_size=40)), max_size=5))
def test_what_is_framed_is_read_back(parts: list[tuple[int, int, bytes]]) -> None:
    data = b"".join(frame(kind, flags, number, body) for number, (kind, flags, body) in enumerate(parts))
    found = list(messages(data))
    assert [(message.kind, message.flags, message.body) for message in found] == parts
    assert [message.sequence for message in found] == list(range(len(parts)))


@pytest.mark.parametrize("data", [struct.pack("=IHHII", 15, 0, 0, 0, 0), struct.pack("=IHHII", 99, 0, 0, 0, 0)])
def test_a_message_that_is_cut_off_is_an_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="netlink message at byte 0 says"):
        list(messages(data))


@pytest.mark.parametrize("data", [struct.pack("=HH", 3, 1), struct.pack("=HH", 9, 1) + b"abcd"])
def test_an_attribute_that_is_cut_off_is_an_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="netlink attribute at byte 0 says"):
        list(attribute_list(data))


@pytest.fixture
def namespace() -> Iterator[NetNamespace]:
    with netns() as fresh:
        yield fresh


@pytest.fixture
def connection(namespace: NetNamespace) -> Iterator[Connection]:
    with inside_network(namespace.descriptor):
        connection = Connection(socket.NETLINK_ROUTE)
    with connection:
        yield connection


@pytest.mark.kernel
def test_a_dump_gives_every_object_and_a_request_one(connection: Connection, namespace: NetNamespace) -> None:
    namespace.run("ip", "-batch", "-", text="link add veth0 type veth peer name veth1\n")
    addresses = "".join(f"addr add 10.{n // 250}.{n % 250}.1/32 dev lo\n" for n in range(2000))
    namespace.run("ip", "-batch", "-", text=addresses)
    names = {string(attributes(found.body, 16)[IFLA_IFNAME]) for found in connection.dump(RTM_GETLINK, link_body(0))}
    assert {"lo", "veth0", "veth1"} <= names
    assert len(connection.dump(RTM_GETADDR, struct.pack("=BBBBI", socket.AF_INET, 0, 0, 0, 0))) >= 2000
    (answer,) = connection.request(RTM_GETLINK, link_body(1), 0)
    assert string(attributes(answer.body, 16)[IFLA_IFNAME]) == "lo"


@pytest.mark.kernel
def test_a_refusal_carries_the_kernels_number_and_words(connection: Connection) -> None:
    with pytest.raises(NetlinkError) as failed:
        connection.request(RTM_GETLINK, link_body(9999), 0)
    assert failed.value.errno == errno.ENODEV
    with pytest.raises(NetlinkError) as failed:
        connection.request(RTM_SETLINK, link_body(1) + attribute(IFLA_IFNAME, b"far-too-long-a-name\0"), NLM_F_ACK)
    assert failed.value.errno == errno.ERANGE
    assert "ttribute" in failed.value.words
    # The connection goes on after an error.
    assert connection.request(RTM_GETLINK, link_body(1), 0)


@pytest.mark.kernel
def test_an_acknowledged_request_gives_nothing_and_is_done(connection: Connection, namespace: NetNamespace) -> None:
    iff_up = 1
    down = struct.pack("=BxHiII", 0, 0, 1, 0, iff_up)
    assert "UP" in namespace.run("ip", "link", "show", "lo")
    assert connection.request(RTM_SETLINK, down) == []
    assert "UP" not in namespace.run("ip", "link", "show", "lo")


@pytest.mark.kernel
def test_notifications_arrive_and_losing_them_is_told_once(namespace: NetNamespace) -> None:
    async def until_lost(listener: Listener) -> None:
        while True:
            await listener.receive()

    async def run() -> None:
        with inside_network(namespace.descriptor):
            listener = Listener(socket.NETLINK_ROUTE, (RTMGRP_LINK,), buffer_bytes=16384)
        with listener:
            namespace.run("ip", "-batch", "-", text="link add veth0 type veth peer name veth1\n")
            async with asyncio.timeout(60):
                found = await listener.receive()
            names = {string(attributes(item.body, 16)[IFLA_IFNAME]) for item in found if item.kind == RTM_NEWLINK}
            assert names == {"veth0", "veth1"}
            batch = "".join(f"link set veth0 {way}\n" for _ in range(100) for way in ("up", "down"))
            namespace.run("ip", "-batch", "-", text=batch)
            with pytest.raises(NotificationsLostError):
                await asyncio.wait_for(until_lost(listener), 60)
            listener.waiting()
            namespace.run("ip", "link", "set", "veth0", "up")
            assert await asyncio.wait_for(listener.receive(), 60)

    asyncio.run(run())
