"""JSON read fast: what is given is what the slow road gives, and any doubt leads there."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podgate.model.documents import each_json_line, parse_json_lines
from podgate.model.plainjson import plain_lines

PLAIN = b'{"kind": "Service", "spec": {"ports": [{"port": 80}, {"port": 18446744073709551615}]}, "x": "\xc3\xa4\\"\\n"}'

DOUBTS: list[tuple[str, bytes]] = [
    ("a key twice", b'{"a": 1, "a": 2}'),
    ("a key twice, inside", b'{"a": [{"b": "x", "c": 1, "b": "y"}]}'),
    ("a key twice, once as an escape", b'{"a": 1, "\\u0061": 2}'),
    ("a key twice, and quotation marks as escapes that hide it", b'{"a": "\\u0022\\u0022", "a": "\\u0022\\u0022"}'),
    ("half of a surrogate pair", b'{"a": "\\ud800"}'),
    ("a number of 65 bits", b"[18446744073709551616]"),
    ("a number of 65 bits, below zero", b"[-9223372036854775809]"),
    ("too large a number", b"[1e999]"),
    ("no number", b"[NaN]"),
    ("too deep", b"[" * 101 + b"]" * 101),
    ("nothing", b""),
    ("blanks", b"  \r"),
    ("two documents", b"{} {}"),
    ("a part of a document", b'{"a":'),
    ("not UTF-8", b'"\xff"'),
]


@pytest.mark.parametrize("line", [row[1] for row in DOUBTS], ids=[row[0] for row in DOUBTS])
@pytest.mark.parametrize(("before", "after"), [(0, 0), (2, 0), (0, 2), (1, 1)])
def test_one_line_of_doubt_sends_a_block_to_the_slow_road(line: bytes, before: int, after: int) -> None:
    assert plain_lines(b"\n".join([PLAIN] * before + [line] + [PLAIN] * after)) is None


FINE: list[tuple[str, bytes]] = [
    ("an object", PLAIN),
    ("as deep as may be", b"[" * 100 + b"]" * 100),
    ("many brackets", b"[" + b"[{}], " * 100 + b"[]]"),
    ("brackets in text", json.dumps("[{" * 200).encode()),
    ("text", b'"\xf0\x9f\x98\x80"'),
    ("null", b"null"),
    ("white space", b'\t{"a" :\t1 }\r'),
]


@pytest.mark.parametrize("line", [row[1] for row in FINE], ids=[row[0] for row in FINE])
def test_what_is_right_needs_no_slow_road(line: bytes) -> None:
    assert plain_lines(line + b"\n" + PLAIN) == [json.loads(line), json.loads(PLAIN)]


def read(data: bytes) -> tuple[str, list[Any]]:
    """Read some lines at a time; values as text, in which 1 is not 1.0."""
    parts = list(each_json_line(data))
    return repr([each for part in parts for each in part.documents]), [each for part in parts for each in part.faults]


LINES = st.sampled_from([PLAIN, PLAIN[:-1] + b', "kind": "Pod"}', *(row[1] for row in (*DOUBTS, *FINE)), b"\x7f"])


@given(st.lists(LINES, max_size=12), st.booleans())
def test_blocks_and_single_lines_mean_the_same(lines: list[bytes], bom: bool) -> None:
    data = (b"\xef\xbb\xbf" if bom else b"") + b"\n".join(lines)
    whole = parse_json_lines(data)
    assert read(data) == (repr(list(whole.documents)), list(whole.faults))


@pytest.mark.parametrize("line", [row[1] for row in DOUBTS], ids=[row[0] for row in DOUBTS])
@pytest.mark.parametrize("at", [0, 700])
@pytest.mark.parametrize("blank", [b"\n", b"\n\n"], ids=["", "blank lines"])
def test_in_a_file_of_many_blocks_each_line_has_its_number(line: bytes, at: int, blank: bytes) -> None:
    data = blank.join([PLAIN] * at + [line] + [PLAIN] * (1000 - at)) + b"\n"
    whole = parse_json_lines(data)
    assert read(data) == (repr(list(whole.documents)), list(whole.faults))


@pytest.mark.parametrize("byte", [b"\0", b"\x0b", b"\x1f", b"\x7f", b"\xff", "\ufffe".encode()])
@pytest.mark.parametrize("at", [0, 999])
def test_a_file_with_a_character_that_no_text_has_gives_nothing(byte: bytes, at: int) -> None:
    lines = [PLAIN] * 1000
    lines[at] = b'{"a": "x' + byte + b'"}'
    (found,) = each_json_line(b"\n".join(lines))
    assert found == parse_json_lines(b"\n".join(lines))
    assert found.documents == ()
    assert found.fatal is not None
    assert found.fatal.line == at + 1
