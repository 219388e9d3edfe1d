"""What YAML and JSON files mean, and where their fields stand."""

import json
import time
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from podgate.model.composing import MAX_ALIASED, MAX_DEPTH, Composer
from podgate.model.documents import (
    Lines,
    _composed,
    _json,
    each_json_line,
    json_line,
    locate,
    parse,
    parse_json,
    parse_json_lines,
)

SCALARS: list[tuple[str, Any]] = [
    ("yes", True), ("on", True), ("y", True), ("True", True), ("no", False), ("Off", False), ("n", False),
    ("oN", "oN"), ("null", None), ("~", None), ("", None), ("NULL", None), ("nil", "nil"),
    ("10", 10), ("-3", -3), ("+7", 7), ("010", 8), ("0o17", 15), ("0x1F", 31), ("0b101", 5), ("-0b101", -5),
    ("08", 8.0), ("1_000", 1000), ("1.5", 1.5), (".5", 0.5), ("1e3", 1000.0), ("1.", 1.0),
    ("18446744073709551615", 18446744073709551615), ("99999999999999999999", 1e20), ("1e999", "1e999"),
    ("9" * 5000, "9" * 5000), ("-x", "-x"), (".", "."), ("0x", "0x"),
    ("1:30", "1:30"), ("190:20:30", "190:20:30"), ("2024-01-02", "2024-01-02"),
    ("2001-12-14t21:59:43.10-05:00", "2001-12-14t21:59:43.10-05:00"),
    ("10.0.0.0/8", "10.0.0.0/8"), ("10.0.0.1", "10.0.0.1"), ("60s", "60s"), ("::1", "::1"), ("=", "="),
    ("'yes'", "yes"), ('"10"', "10"), ("!!str 10", "10"), ("!!int '10'", 10), ("!!float 1", 1), ("! 10", "10"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), SCALARS, ids=[text[:12] or "nothing" for text, _ in SCALARS])
def test_scalars_mean_what_kubernetes_tools_make_of_them(text: str, value: Any) -> None:
    parsed = parse(f"key: {text}\n".encode())
    assert parsed.faults == ()
    assert parsed.documents == ({"key": value},)
    assert type(parsed.documents[0]["key"]) is type(value)


VALUES: list[tuple[str, str, list[Any]]] = [
    ("nothing", "", []),
    ("a comment only", "# nothing\n", []),
    ("null", "null\n", [None]),
    ("a list at the top", "- 1\n- a\n", [[1, "a"]]),
    ("a bare dash is null", "list:\n  - a\n  -\n  - b\n", [{"list": ["a", None, "b"]}]),
    ("flow style", "{masqLinkLocal: true, list: [a, 'b']}", [{"masqLinkLocal": True, "list": ["a", "b"]}]),
    ("several documents", "a: 1\n---\nb: 2\n...\n---\n# none\n---\n", [{"a": 1}, {"b": 2}, None, None]),
    ("CRLF", "a: 1\r\nb:\r\n  - x\r\n", [{"a": 1, "b": ["x"]}]),
    ("block text", "a: |\n  one\n  two\nb: >-\n  one\n  two\n", [{"a": "one\ntwo\n", "b": "one two"}]),
    ("keys become text", "80: a\non: b\n1.5: c\n08: d\n", [{"80": "a", "true": "b", "1.5": "c", "8": "d"}]),
    ("an alias is a copy", "a: &x [1]\nb: *x\n", [{"a": [1], "b": [1]}]),
    ("an alias as a key", "a: &x name\n*x : 1\n", [{"a": "name", "name": 1}]),
    ("merge keys", "b: &b {x: 1, w: 2}\nm:\n  w: 3\n  <<: *b\n  z: 4\n",
     [{"b": {"x": 1, "w": 2}, "m": {"x": 1, "w": 3, "z": 4}}]),
    ("of merged maps the first wins", "a: &a {x: 1}\nb: &b {x: 2, w: 2}\nm:\n  <<: [*a, *b]\n",
     [{"a": {"x": 1}, "b": {"x": 2, "w": 2}, "m": {"x": 1, "w": 2}}]),
    ("a quoted << is a key", '"<<": 1\n', [{"<<": 1}]),
    ("<< is text as a value", "a: <<\n", [{"a": "<<"}]),
    ("JSON with TABs is YAML", '{\n\t"a": [\n\t\t1\n\t]\n}\n', [{"a": [1]}]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "documents"), [row[1:] for row in VALUES], ids=[row[0] for row in VALUES])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"], ids=["plain", "BOM"])
def test_structures(text: str, documents: list[Any], bom: bytes) -> None:
    parsed = parse(bom + text.encode())
    assert parsed.faults == ()
    assert list(parsed.documents) == documents


def test_an_alias_can_be_changed_without_changing_its_anchor() -> None:
    (document,) = parse(b"a: &x {k: [1]}\nb: *x\n").documents
    document["b"]["k"].append(2)
    assert document["a"] == {"k": [1]}


FATAL: list[tuple[str, bytes, int, str]] = [
    ("TAB in the indentation", b"a:\n\t- x\n", 2, "TAB"),
    ("TAB after spaces", b"a:\n  b: 1\n \tc: 2\n", 3, "TAB"),
    ("unclosed quote", b'a: 1\nb: "x\n', 3, "began on line 2"),
    ("unclosed bracket", b"a: 1\nb: [1, 2\nc: 3\n", 3, "not YAML"),
    ("bad indentation", b"a: 1\n  b: 2\n", 2, "not YAML"),
    ("NUL", b"a: 1\nb: \0\n", 2, "NUL"),
    ("binary", b"\x7fELF\x02\x01", 1, "text file"),
    ("not UTF-8", b"a: 1\nb: \xff\n", 2, "0xff is not UTF-8"),
    ("not UTF-8 after a BOM", b"\xef\xbb\xbfa: 1\n\xfe", 2, "0xfe"),
    ("unknown alias", b"a: *nowhere\n", 1, "*nowhere has no anchor"),
    ("an anchor of another document", b"a: &x 1\n---\nb: *x\n", 3, "has no anchor"),
    ("endless alias", b"a: &x\n  b: *x\n", 2, "endless"),
    ("endless list", b"&x [*x]\n", 1, "endless"),
    ("null key", b"a: 1\n~: 2\n", 2, "key is empty"),
    ("list as a key", b"[1]: 2\n", 1, "where a key must be"),
    ("map alias as a key", b"a: &x {}\n*x : 2\n", 2, "where a key must be"),
    ("merge of text", b"a: 1\n<<: x\n", 2, "merge key"),
    ("own tag", b"a: !mine x\n", 1, "!mine"),
    ("python tag", b"a: !!python/object/apply:os.system [x]\n", 1, "!!python"),
    ("binary tag", b"a: !!binary aGk=\n", 1, "!!binary"),
    ("wrong tag", b"a: !!int x\n", 1, "'x' is not what its tag !!int says"),
    ("set tag", b"a: !!set {x}\n", 1, "!!set"),
    ("not a number", b"a: 1\nb: .nan\n", 2, "quotes"),
    ("infinity", b"a: -.inf\n", 1, "quotes"),
]


@pytest.mark.parametrize(("data", "line", "says"), [row[1:] for row in FATAL], ids=[row[0] for row in FATAL])
def test_what_cannot_be_read_ends_in_one_fatal_fault(data: bytes, line: int, says: str) -> None:
    fatal = parse(data).fatal
    assert fatal is not None
    assert (fatal.line, says in fatal.message) == (line, True), str(fatal)
    assert fatal.column >= 1


def test_documents_before_a_fatal_fault_are_kept() -> None:
    assert parse(b"a: 1\n---\nb: [\n").documents == ({"a": 1},)


def test_a_duplicate_key_is_a_warning_with_both_lines_and_the_last_counts() -> None:
    parsed = parse(b"data:\n  a.b:\n  - {x: 1}\n  - {x: 1, w: 2,\n     x: 3}\ndata2: 1\ndata2: 2\n")
    assert parsed.documents == ({"data": {"a.b": [{"x": 1}, {"x": 3, "w": 2}]}, "data2": 2},)
    assert parsed.fatal is None
    assert [(fault.line, fault.fatal) for fault in parsed.faults] == [(5, False), (7, False)]
    assert parsed.faults[0].message.startswith('data["a.b"][1].x is given twice, on lines 4 and 5')


def test_warnings_are_bounded() -> None:
    parsed = parse(b"a: 1\n" * 5000)
    assert parsed.documents == ({"a": 1},)
    assert len(parsed.faults) == 100


def laughs(levels: int) -> bytes:
    lines = ["l0: &l0 [ha, ha, ha, ha, ha, ha, ha, ha, ha, ha]"]
    lines += [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, levels)]
    return "\n".join(lines).encode()


BOMBS: list[tuple[str, bytes]] = [
    ("a billion laughs", laughs(12)),
    ("laughs in merge keys", b"a: &a {<<: [" + b"{x: &y yyyyyyyyyyyy, z: [" + b"*y, " * 100_000 + b"]}]}"),
    ("one long text, many times", b"a: &a " + b"x" * 100_000 + b"\nb: [" + b"*a, " * 1000 + b"]"),
    ("deep flow", b"[" * 200_000),
    ("deep maps", b"{a: " * 100_000),
    ("deep block", b"- " * 50_000),
    ("deep by alias", "\n".join(
        [f"a0: &a0 {'[' * 60}{']' * 60}", *(f"a{n}: &a{n} {'[' * 60}*a{n - 1}{']' * 60}" for n in range(1, 9))]
    ).encode()),
]  # fmt: skip


@pytest.mark.parametrize("data", [row[1] for row in BOMBS], ids=[row[0] for row in BOMBS])
def test_bombs_are_refused_in_bounded_time(data: bytes) -> None:
    began = time.process_time()
    fatal = parse(data).fatal
    assert fatal is not None
    assert "nest" in fatal.message or f"more than {MAX_ALIASED}" in fatal.message
    assert time.process_time() - began < 5


def test_depth_counts_up_to_its_limit() -> None:
    assert parse(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH).fatal is None
    assert parse_json(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH).fatal is None
    for deep in (MAX_DEPTH + 1, 200_000):
        fatal = parse_json(b"[" * deep + b"]" * deep).fatal
        assert fatal is not None
        assert "nest deeper" in fatal.message


JSON_FATAL: list[tuple[str, bytes, int, str]] = [
    ("trailing comma", b'{\n "a": 1,\n}', 3, "not JSON"),
    ("trailing text", b'{"a": 1}\n}', 2, "Extra data"),
    ("unquoted key", b"{masqLinkLocal: true}", 1, "not JSON"),
    ("comment", b'{\n// no\n"a": 1}', 2, "not JSON"),
    ("not a number", b'{"a":\n NaN}', 2, "NaN is not a number"),
    ("too large a number", b'{"a": 1,\n "b": 1e999}', 2, "1e999"),
    ("two documents", b"{}\n{}\n", 2, "Extra data"),
    ("unclosed", b'{"a": [1, 2', 1, "not JSON"),
]


@pytest.mark.parametrize(("data", "line", "says"), [row[1:] for row in JSON_FATAL], ids=[row[0] for row in JSON_FATAL])
def test_json_is_strict_and_gives_lines(data: bytes, line: int, says: str) -> None:
    fatal = parse_json(data).fatal
    assert fatal is not None
    assert (fatal.line, says in fatal.message) == (line, True), str(fatal)


def test_json_duplicates_are_warnings_and_empty_keys_are_keys() -> None:
    parsed = parse_json(b'{"a": [{"": 1}, {"x": 1,\n "x": 2}]}')
    assert parsed.documents == ({"a": [{"": 1}, {"x": 2}]},)
    assert [str(fault) for fault in parsed.faults] == [
        "line 2, column 2: a[1].x is given twice, on lines 1 and 2: the last one counts; remove one"
    ]


def test_json_text_can_always_be_written_again() -> None:
    (document,) = parse_json(rb'["\ud800", "\ud83d\ude00", "\u0001", 18446744073709551616, -0.5]').documents
    assert document == ["\ufffd", "\U0001f600", "\x01", 18446744073709551616.0, -0.5]
    json.dumps(document, ensure_ascii=False).encode()


def test_json_lines() -> None:
    parsed = parse_json_lines(b'{"a": 1}\r\n\n{"b": 2, "b": 3}\n')
    assert parsed.documents == ({"a": 1}, {"b": 3})
    assert [fault.line for fault in parsed.faults] == [3]
    fatal = parse_json_lines(b'{"a": 1}\n\n{"b": \n').fatal
    assert fatal is not None
    assert fatal.line == 3


def test_json_lines_come_one_by_one() -> None:
    first, second, last = each_json_line(b'{"a": 1}\n\n{"b": 2, "b": 3}\n{"c": \n')
    assert first.documents == ({"a": 1},)
    assert second.documents == ({"b": 3},)
    assert [fault.line for fault in second.faults] == [3]
    assert last.documents == ()
    assert last.fatal is not None
    assert last.fatal.line == 4


CONFIG = b"""\
# a comment
nonMasqueradeCIDRs:
  - 10.0.0.0/8

  - 172.16.0.0/12
x: &x {deep: [1, 2]}
copy: *x
merged:
  <<: *x
  own: 1
---
apiVersion: v1
metadata:
  annotations:
    lab.podgate.dev/ip: 10.16.1.6
spec:
  containers:
  - name: a
    image: one
  - {name: b,
     image: two}
dup: {a: 1}
dup:
  b: 2
"""
LINES: list[tuple[int, str, int | None]] = [
    (0, "", 2), (0, "nonMasqueradeCIDRs", 2), (0, "nonMasqueradeCIDRs[0]", 3), (0, "nonMasqueradeCIDRs[1]", 5),
    (0, "nonMasqueradeCIDRs[7]", 2), (0, "x.deep[1]", 6), (0, "copy.deep[1]", 7), (0, "merged.deep[0]", 8),
    (0, "merged.own", 10), (0, "missing", 2), (1, "", 12), (1, 'metadata.annotations["lab.podgate.dev/ip"]', 15),
    (1, "spec.containers[0].image", 19), (1, "spec.containers[1]", 20), (1, "spec.containers[1].image", 21),
    (1, "dup", 23), (1, "dup.b", 24), (1, "dup.a", 23), (2, "", None), (2, "a", None),
]  # fmt: skip


@pytest.mark.parametrize(("document", "path", "line"), LINES)
def test_locate(document: int, path: str, line: int | None) -> None:
    assert locate(CONFIG, document, path) == line


def test_the_lines_of_many_fields_and_documents_are_had_by_one_reading() -> None:
    count = 5000
    lines = Lines(b"list:\n" + b"- 10.0.0.0/8\n" * count + b"---\na: 1\n")
    assert [lines.of(0, f"list[{index}]") for index in range(count)] == list(range(2, count + 2))
    assert (lines.of(1, "a"), lines.of(1, "b"), lines.of(2, "")) == (count + 3, count + 3, None)


def test_a_document_of_json_lines_is_found_with_its_line() -> None:
    data = b'{"a": 1}\n\n \n{"b": 2}\n{"c": '
    assert [json_line(data, index) for index in range(4)] == [(1, b'{"a": 1}'), (4, b'{"b": 2}'), (5, b'{"c": '), None]


def test_locate_in_json_with_what_yaml_does_not_know() -> None:
    data = b'{\n"e": "\\ud83d\\ude00",\n"a": {"b":\n[1,\n2]}}'
    assert locate(data, 0, "a.b[1]") == 5
    assert locate(b'{"a": 1}\n\n{"b": "\\ud83d\\ude00"}\n', 1, "b") == 3


def test_locate_before_a_syntax_error() -> None:
    assert locate(b"a: 1\nb: 2\nc: [\n", 0, "b") == 2


PIECES = st.sampled_from([
    b"a", b": ", b"\n", b"- ", b"  ", b"&x ", b"*x", b"<<: ", b"[", b"]", b"{", b"}", b", ", b"'", b'"', b"|\n", b"? ",
    b"!!", b"!t ", b"\t", b"%", b"---\n", b"...\n", b"#", b"~", b"\xff", b"\0", b"0x1", b".inf", b"\\u12", b"\r",
])  # fmt: skip


@given(st.lists(PIECES, max_size=40).map(b"".join) | st.binary(max_size=200))
@settings(max_examples=max(100, settings().max_examples))
def test_no_bytes_raise(data: bytes) -> None:
    line_by_line = list(each_json_line(data))
    whole = parse_json_lines(data)
    assert [each for part in line_by_line for each in part.documents] == list(whole.documents)
    assert [each for part in line_by_line for each in part.faults] == list(whole.faults)
    for read in (parse, parse_json, parse_json_lines):
        parsed = read(data)
        assert all(fault.line >= 1 and fault.column >= 1 for fault in parsed.faults)
        json.dumps(parsed.documents, allow_nan=False, ensure_ascii=False).encode()
    assert locate(data, 0, "a[0].b") is None or parse(data).documents or parse(data).faults


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(categories=["L"])), inner),
    max_leaves=12,
)


ODD_JSON = [
    '{"a": 1, "a": 2}',
    '{"a": {"b": 1, "b": 1}}',
    '"\\ud800"',
    '["\\ud83d\\ude00"]',
    "[1e999]",
    "[NaN]",
    "[" * 100 + "]" * 100,
    "[" * 101 + "]" * 101,
    '["]]]]", ' * 60 + "[" * 101 + "]" * 161,
    '{"a": "[[[["}',
    "null",
    "[1,]",
    "nothing",
    "[1.0, 1e2, 12345678901234567890123]",
]


def by_tokens(text: str) -> tuple[list[Any], list[str]]:
    """Read token by token, as it is done where lines are asked for."""
    found = _composed(Composer(records=True), text.encode(), _json)
    return list(found.documents), [fault.message for fault in found.faults]


@pytest.mark.parametrize("text", ODD_JSON, ids=range(len(ODD_JSON)))
def test_odd_json_means_the_same_read_as_a_whole_or_token_by_token(text: str) -> None:
    found = parse_json(text.encode())
    assert (list(found.documents), [fault.message for fault in found.faults]) == by_tokens(text)


@given(JSON, st.sampled_from([None, 2]))
def test_json_means_the_same_read_as_a_whole_or_token_by_token(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    assert repr(list(parse_json(text.encode()).documents)) == repr(by_tokens(text)[0])


@given(JSON)
def test_what_json_writes_is_read_back(value: Any) -> None:
    data = json.dumps(value).encode()
    assert parse_json(data).documents == (value,)
    assert parse_json(data).faults == ()


@given(JSON)
def test_yaml_and_json_agree(value: Any) -> None:
    data = json.dumps(value, ensure_ascii=False, indent=1).encode()
    assert parse(data).documents == parse_json(data).documents


def test_the_pure_python_loader_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [row[1] for row in FATAL] + [text.encode() for _, text, _ in VALUES if "\t" not in text] + [CONFIG]
    expected = [parse(text) for text in texts]
    monkeypatch.setattr("podgate.model.documents._LOADER", yaml.SafeLoader)
    found = [parse(text) for text in texts]
    assert [parsed.documents for parsed in found] == [parsed.documents for parsed in expected]
    assert [bool(parsed.fatal) for parsed in found] == [bool(parsed.fatal) for parsed in expected]
