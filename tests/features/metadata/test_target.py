"""Targets: what is decoded, what is written, and which oddity is named first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podgate.features.metadata.target import MAX_PARAMETERS, MAX_SEGMENTS, Odd, RequestTarget, encoded, read_target

PRINTABLE = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=20)


@given(st.lists(st.tuples(PRINTABLE, st.one_of(st.none(), PRINTABLE)), min_size=1, max_size=MAX_PARAMETERS))
def test_any_printable_query_comes_back_as_it_went(pairs: list[tuple[str, str | None]]) -> None:
    written = encoded(tuple(pairs))
    target = read_target(b"/x?" + written.encode("ascii"))
    assert isinstance(target, RequestTarget)
    # A pair of nothing at all cannot be written.
    assert target.pairs == tuple(pair for pair in pairs if pair != ("", None))


SPELLINGS = {
    b"/x?a=b%20c": b"/x?a=b%20c",
    b"/x?a=b+c": b"/x?a=b%20c",
    b"/x?a=b%2Bc": b"/x?a=b%2Bc",
    b"/x?a=%41": b"/x?a=A",
    b"/x?a=%2f": b"/x?a=%2F",
    b"/x?a=@": b"/x?a=@",
    b"/x?a=%40": b"/x?a=@",
    b"/x?a=b=c": b"/x?a=b%3Dc",
    b"/x?a=?": b"/x?a=%3F",
    b"/x?a=%3B%5C%23": b"/x?a=%3B%5C%23",
    b"/x?a=%2525": b"/x?a=%2525",
    b"/x?a": b"/x?a",
    b"/x?a=": b"/x?a=",
    b"/x?&": b"/x",
    b"/x?": b"/x",
    b"/%78": b"/x",
    b"/a%40b": b"/a@b",
    b"/a!$'()*,:=&~b": b"/a!$'()*,:=&~b",
    b"/x/": b"/x/",
    b"http://a.example/x?b": b"/x?b",
    b"http://a.example": b"/",
    b"http://[::1]:80?b": b"/?b",
}


@pytest.mark.parametrize(("raw", "sent"), SPELLINGS.items())
def test_each_target_has_one_spelling(raw: bytes, sent: bytes) -> None:
    target = read_target(raw)
    assert isinstance(target, RequestTarget)
    assert target.raw == sent


ODD = {
    b"": "OpaqueTarget",
    b"x": "OpaqueTarget",
    b"*": "OpaqueTarget",
    b"http:x": "OpaqueTarget",
    b"http://": "OpaqueTarget",
    b"http:///x": "OpaqueTarget",
    b"http://a@b/": "OpaqueTarget",
    b"ftp://a/": "OpaqueTarget",
    b"/%": "BadEncoding",
    b"/%4": "BadEncoding",
    b"/%4g": "BadEncoding",
    b"/%u0041": "BadEncoding",
    b"/%2541": "DoubleEncoding",
    b"/a%2Fb": "EncodedSeparator",
    b"/a\\b": "Backslash",
    b"/a%5cb": "Backslash",
    b"/a;b": "Semicolon",
    b"/a%3bb": "Semicolon",
    b"/a?b;c": "Semicolon",
    b"/a?b\\c": "Backslash",
    b"/a\x00": "ControlByte",
    b"/a%0d%0a": "ControlByte",
    b"/a?b=%7f": "ControlByte",
    b"/\xc3\xa9": "NonAscii",
    b"/a?b=%ff": "NonAscii",
    b"/a%20": "ForbiddenCharacter",
    b"/a#b": "ForbiddenCharacter",
    b"/a?b#c": "ForbiddenCharacter",
    b'/"': "ForbiddenCharacter",
    b"//a": "DoubledSlash",
    b"/a//": "DoubledSlash",
    b"/.": "DotSegment",
    b"/a/..": "DotSegment",
    b"/a/../b": "DotSegment",
    b"/%2e%2e/b": "DotSegment",
    b"/...": "TrailingDot",
    b"/a./b": "TrailingDot",
    b"/a+": "OuterBlank",
    b"/+a/b": "OuterBlank",
    b"/a" * (MAX_SEGMENTS + 1): "TooLong",
    b"/a?" + b"b&" * MAX_PARAMETERS: "TooManyParameters",
    b"/a?" + b"&" * 20_000: "TooManyParameters",
}


@pytest.mark.parametrize(("raw", "reason"), ODD.items(), ids=[str(raw[:20]) for raw in ODD])
def test_odd_targets(raw: bytes, reason: str) -> None:
    odd = read_target(raw)
    assert isinstance(odd, Odd)
    assert odd.reason == reason
