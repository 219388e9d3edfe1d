"""A batch is one transaction, and of one that is refused it is known what was refused."""

import errno
import socket
from collections.abc import Iterator

import pytest

from podgate.linux.namespaces import inside_network
from podgate.linux.netlink import NETLINK_NETFILTER, NLM_F_CREATE, Connection, NetlinkError, text
from podgate.linux.nftables import NEW_TABLE, TABLE, family_header, find_table, list_chains
from podgate.linux.nftables_batch import Batch, BatchMessage, RefusedError
from podgate.linux.nftables_elements import SetShape, list_elements
from tests.support.netns import NetNamespace, netns

pytestmark = pytest.mark.kernel

PLAIN = SetShape(4)


@pytest.fixture
def namespace() -> Iterator[NetNamespace]:
    with netns() as namespace:
        namespace.run("nft", "-f", "-", text="table ip t { set plain { type ipv4_addr; elements = { 10.0.0.1 }; }; }\n")
        yield namespace


@pytest.fixture
def connection(namespace: NetNamespace) -> Iterator[Connection]:
    with inside_network(namespace.descriptor):
        opened = Connection(NETLINK_NETFILTER)
    with opened:
        yield opened


def held(connection: Connection) -> set[bytes]:
    return {key for key, _ in list_elements(connection, socket.AF_INET, "t", "plain", PLAIN)}


def keys(*last: int) -> list[tuple[bytes, bytes | str]]:
    return [(bytes((10, 0, 0, each)), b"") for each in last]


def table(name: str) -> BatchMessage:
    return BatchMessage(NEW_TABLE, NLM_F_CREATE, family_header(socket.AF_INET) + text(TABLE, name), f"table {name}")


def test_all_of_it_is_done(connection: Connection) -> None:
    batch = Batch(connection, socket.AF_INET)
    batch.extend([table("other")])
    batch.delete("t", "plain", [b"\x0a\0\0\x01"], PLAIN)
    batch.add("t", "plain", keys(2, 3), PLAIN)
    batch.commit()
    assert find_table(connection, socket.AF_INET, "other")
    assert held(connection) == {b"\x0a\0\0\x02", b"\x0a\0\0\x03"}


def test_a_refused_element_is_named_and_nothing_is_done(connection: Connection) -> None:
    batch = Batch(connection, socket.AF_INET)
    batch.extend([table("other")])
    batch.delete("t", "plain", [b"\x0a\0\0\x01", b"\x0a\0\0\x09"], PLAIN)
    with pytest.raises(RefusedError) as refused:
        batch.commit()
    assert (refused.value.errno, refused.value.what) == (errno.ENOENT, "plain")
    assert refused.value.element == b"\x0a\0\0\x09"
    assert find_table(connection, socket.AF_INET, "other") is None
    assert held(connection) == {b"\x0a\0\0\x01"}


def test_a_refused_part_is_named_by_its_own_words(connection: Connection) -> None:
    batch = Batch(connection, socket.AF_INET)
    odd = BatchMessage(NEW_TABLE + 3, NLM_F_CREATE, family_header(socket.AF_INET) + text(TABLE, "nowhere"), "chain odd")
    batch.extend([table("t"), odd])
    with pytest.raises(RefusedError) as refused:
        batch.commit()
    assert (refused.value.what, refused.value.element) == ("chain odd", None)
    assert list_chains(connection, socket.AF_INET, "t") == []


def test_an_empty_batch_sends_nothing_and_a_closed_socket_is_no_refusal(connection: Connection) -> None:
    connection.close()
    batch = Batch(connection, socket.AF_INET)
    batch.commit()  # there is nothing to send
    batch.extend([table("t")])
    with pytest.raises(OSError, match="Bad file descriptor") as failed:
        batch.commit()
    assert not isinstance(failed.value, NetlinkError)
