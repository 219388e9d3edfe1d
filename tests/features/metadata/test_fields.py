"""Header fields: each spelling of those that are dropped, and those that are wanted."""

import pytest

from podgate.features.metadata.fields import look, with_host, without_port
from podgate.features.metadata.request import Headers

WANTED = ((b"metadata-flavor", b"google"), (b"x-token", b""))


def test_what_is_sent_keeps_order_and_spelling() -> None:
    headers: Headers = ((b"HOST", b"a"), (b"X-Thing", b"1"), (b"x-thing", b"2"), (b"Via", b"b"), (b"Accept", b""))
    seen = look(headers, WANTED)
    assert seen.sent == ((b"HOST", b"a"), (b"X-Thing", b"1"), (b"x-thing", b"2"), (b"Accept", b""))
    assert (seen.host, seen.forwarded_for, seen.marked) == (b"a", False, False)


@pytest.mark.parametrize("name", [b"X-Forwarded-For", b"x_forwarded_for", b"X.Forwarded!For", b"XFORWARDEDFOR"])
def test_forwarded_for_is_seen_and_kept(name: bytes) -> None:
    seen = look(((name, b""),), WANTED)
    assert seen.forwarded_for
    assert seen.sent == ((name, b""),)


@pytest.mark.parametrize(
    ("name", "value", "marked"),
    [
        (b"Metadata-Flavor", b"Google", True),
        (b"metadata-flavor", b"GOOGLE", True),
        (b"Metadata_Flavor", b"Google", False),
        (b"Metadata-Flavor", b"Googlex", False),
        (b"X-Token", b"any", True),
        (b"X-Token", b"", False),
    ],
)
def test_the_wanted_header(name: bytes, value: bytes, marked: bool) -> None:
    assert look(((name, value),), WANTED).marked is marked


def test_a_host_is_put_in_the_place_of_all_others() -> None:
    assert with_host(((b"A", b"b"), (b"host", b"x")), b"y") == ((b"Host", b"y"), (b"A", b"b"))


@pytest.mark.parametrize(
    ("host", "name"), [(b"A:80", b"a"), (b"a", b"a"), (b"[::1]:80", b"[::1]"), (b"[::1]", b"[::1]"), (b"a:b", b"a:b")]
)
def test_the_port_of_a_host(host: bytes, name: bytes) -> None:
    assert without_port(host) == name
