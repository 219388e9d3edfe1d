"""Request heads: in pieces, at the limits, and against h11's opinion."""

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podgate.features.metadata.head import (
    MAX_HEAD,
    MAX_HEADERS,
    MAX_REQUEST_LINE,
    BadRequest,
    Head,
    NeedMore,
    read_head,
)

GOOD = b"GET /computeMetadata/v1/ HTTP/1.1\r\nHost: metadata\r\nMetadata-Flavor:\t Google \r\n\r\n"


def test_a_head_is_read_as_it_came() -> None:
    head = read_head(GOOD + b"rest")
    assert isinstance(head, Head)
    assert (head.method, head.target, head.version) == (b"GET", b"/computeMetadata/v1/", 11)
    assert head.headers == ((b"Host", b"metadata"), (b"Metadata-Flavor", b"Google"))
    assert (head.size, head.content_length, head.keep_alive, head.expects_continue) == (len(GOOD), 0, True, False)


def test_a_body_is_counted_and_a_client_may_wait_for_leave_to_send_it() -> None:
    head = read_head(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\nExpect: 100-Continue\r\n\r\n")
    assert isinstance(head, Head)
    assert (head.content_length, head.expects_continue) == (12, True)
    assert head.request("10.0.0.1").content_length == 12


@given(st.lists(st.integers(1, 20), max_size=20))
def test_pieces_give_the_same_head(sizes: list[int]) -> None:
    data, searched = bytearray(), 0
    rest = GOOD
    for size in [*sizes, len(GOOD)]:
        data += rest[:size]
        rest = rest[size:]
        head = read_head(data, searched)
        if isinstance(head, NeedMore):
            searched = head.searched
        else:
            break
    assert read_head(bytes(data)) == read_head(GOOD)
    assert bytes(data) == GOOD


def headers(count: int) -> bytes:
    return b"".join(b"A%d: b\r\n" % number for number in range(count))


LIMITS = {
    "a request line at the limit": (b"GET /" + b"a" * (MAX_REQUEST_LINE - 14) + b" HTTP/1.1\r\nHost: a\r\n\r\n", None),
    "one above": (b"GET /" + b"a" * (MAX_REQUEST_LINE - 13) + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
    "far above, not ended": (b"GET /" + b"a" * (MAX_REQUEST_LINE + 9), 414),
    "headers at the limit": (b"GET / HTTP/1.1\r\nHost: a\r\n" + headers(MAX_HEADERS - 1) + b"\r\n", None),
    "one header more": (b"GET / HTTP/1.1\r\nHost: a\r\n" + headers(MAX_HEADERS) + b"\r\n", 431),
    "twenty thousand headers": (b"GET / HTTP/1.1\r\nHost: a\r\n" + headers(20_000) + b"\r\n", 431),
    "a long value": (b"GET / HTTP/1.1\r\nHost: a\r\nA: " + b"b" * MAX_HEAD + b"\r\n\r\n", 431),
    "a long name": (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"b" * 300 + b": c\r\n\r\n", 400),
    "a long method": (b"G" * 30 + b" / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
}


@pytest.mark.parametrize(("data", "status"), LIMITS.values(), ids=LIMITS.keys())
def test_limits(data: bytes, status: int | None) -> None:
    head = read_head(data)
    assert (head.status if isinstance(head, BadRequest) else None) == status
    assert not isinstance(head, NeedMore)


def test_what_can_be_no_head_any_more_is_refused_before_it_ends() -> None:
    assert isinstance(read_head(b"GET / HTTP/1.1\n"), BadRequest)
    assert isinstance(read_head(b"\x16\x03\x01"), BadRequest)
    assert isinstance(read_head(b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * (MAX_HEAD // 6)), BadRequest)
    assert isinstance(read_head(b""), NeedMore)
    assert isinstance(read_head(b"\r\n"), NeedMore)
    assert isinstance(read_head(b"\r"), NeedMore)


PARTS = st.lists(
    st.sampled_from(
        [
            *(
                b"GET",
                b"POST",
                b" ",
                b"/",
                b"/x?a=b",
                b" HTTP/1.1",
                b" HTTP/1.0",
                b"\r\n",
                b"\r\n",
                b"\r\n",
                b"\n",
                b"\r",
            ),
            *(b"Host: a", b"Host: a\r\n", b"Content-Length: 0\r\n", b"Content-Length: 5\r\n", b"Connection: close\r\n"),
            *(
                b"Transfer-Encoding: chunked\r\n",
                b"A: b\r\n",
                b"A : b\r\n",
                b" c\r\n",
                b"A: \x00\r\n",
                b": x\r\n",
                b"\xff",
            ),
        ]
    ),
    max_size=12,
)
WHOLE = st.builds(
    lambda method, version, fields, noise: b"".join(
        [method, b" /x", version, b"\r\nHost: a\r\n", *fields, *noise, b"\r\n"]
    ),
    st.sampled_from([b"GET", b"POST"]),
    st.sampled_from([b" HTTP/1.1", b" HTTP/1.0"]),
    st.lists(
        st.sampled_from([b"A: b\r\n", b"Content-Length: 5\r\n", b"Connection: keep-alive\r\n", b"B:\tc \r\n"]),
        max_size=4,
    ),
    PARTS.map(lambda parts: parts[:2]),
)


@given(st.one_of(PARTS.map(b"".join), WHOLE))
def test_whatever_is_taken_h11_takes_and_reads_in_the_same_way(data: bytes) -> None:
    head = read_head(data)
    if not isinstance(head, Head):
        return
    other = h11.Connection(h11.SERVER)
    other.receive_data(data)
    event = other.next_event()
    assert isinstance(event, h11.Request)
    assert (event.method, event.target) == (head.method, head.target)
    assert [value for _, value in event.headers] == [value for _, value in head.headers]
    assert [name for name, _ in event.headers] == [name.lower() for name, _ in head.headers]
    assert other.trailing_data[0][: len(data) - head.size] == data[head.size :][: len(other.trailing_data[0])]


def test_h11_and_this_parser_see_a_smuggled_request_differently() -> None:
    """h11 joins a folded line; here it is refused, so that the metadata server never has to choose."""
    data = b"GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n X-Forwarded-For: c\r\n\r\n"
    other = h11.Connection(h11.SERVER)
    other.receive_data(data)
    assert isinstance(other.next_event(), h11.Request)
    assert isinstance(read_head(data), BadRequest)
