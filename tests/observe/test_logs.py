"""One record is one line, whatever is in it; a lasting fault is one line too.

Here: forms, escaping, Repeats. Not here: what the product logs.
Invariant: the hostile values are one table, checked in both forms.
"""

import io
import json
import os
import pty
import unicodedata
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podgate.model.secret import Secret
from podgate.observe.logs import Log, Multiline, News, Repeats, as_json, clipped, escaped, log_for

NOON = 1_700_000_000.125  # 2023-11-14T22:13:20.125Z

HOSTILE = {
    "newline": "a\nERROR forged=yes",
    "carriage return": "a\rERROR",
    "terminal colour": "a\x1b[31mred",
    "terminal title": "\x1b]0;owned\x07",
    "C1 control": "a\x9b31m",
    "next line": "a\x85b",
    "line separator": "a\u2028b\u2029c",
    "right-to-left override": "a\u202eb",
    "zero width": "a\u200bb",
    "NUL": "a\0b",
    "lone surrogate": "a\udc80b",
    "tag character": "a\U000e0041b",
}


def text_of(**fields: object) -> str:
    stream = io.StringIO()
    Log(stream, "text", lambda: NOON).info("event", **fields)
    return stream.getvalue()


def json_of(**fields: object) -> str:
    stream = io.StringIO()
    Log(stream, "json", lambda: NOON).info("event", **fields)
    return stream.getvalue()


def test_text_is_time_level_event_and_fields() -> None:
    assert text_of(node="node-1", entries=3) == "2023-11-14T22:13:20.125Z info    event node=node-1 entries=3\n"


def test_json_has_time_level_message_first_and_then_the_fields_in_order() -> None:
    assert json_of(node="node-1", entries=3) == (
        '{"time": "2023-11-14T22:13:20.125Z", "level": "info", "message": "event", "node": "node-1", "entries": 3}\n'
    )


@pytest.mark.parametrize("level", ["info", "warning", "error"])
def test_each_level_says_its_name(level: str) -> None:
    stream = io.StringIO()
    getattr(Log(stream, "json", lambda: NOON), level)("event")
    assert json.loads(stream.getvalue())["level"] == level


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain", "v=plain"),
        ("", 'v=""'),
        ("two words", 'v="two words"'),
        ('say "hi"', r'v="say \"hi\""'),
        ("a=b", 'v="a=b"'),
        ("back\\slash", r'v="back\\slash"'),
        ("{}", 'v="{}"'),
        ("Köln", "v=Köln"),
        (True, "v=true"),
        (None, "v=null"),
        (1.5, "v=1.5"),
        (float("nan"), "v=nan"),
        (ip_network("10.0.0.0/8"), "v=10.0.0.0/8"),
        ((ip_address("10.0.0.1"), 2), 'v=["10.0.0.1", 2]'),
        (frozenset({"b", "a"}), 'v=["a", "b"]'),
        ({"a": ["x\n"]}, r'v={"a": ["x\n"]}'),
    ],
)
def test_values_in_text(value: object, shown: str) -> None:
    assert text_of(v=value).rstrip("\n").endswith(" " + shown)


def test_a_text_of_several_lines_that_is_ours_goes_on_below_its_record() -> None:
    plan = Multiline("table ip x:\n  + 1 element in keep\x1b[2J")
    assert text_of(step="nftables/ip", plan=plan, milliseconds=3).splitlines() == [
        "2023-11-14T22:13:20.125Z info    event step=nftables/ip milliseconds=3",
        "  plan:",
        "    table ip x:",
        r"      + 1 element in keep\u001b[2J",
    ]
    assert text_of(plan=Multiline("one line")).endswith(' plan="one line"\n')
    assert json.loads(json_of(plan=plan))["plan"] == plan
    assert json_of(plan=plan).count("\n") == 1


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("short", "short"),
        ("0123456789", "0123456789"),
        ("0123456789a", "0123456789… (1 more characters)"),
        ("one\ntwo\nthree", "one\ntwo… (6 more characters)"),
    ],
)
def test_a_long_text_is_clipped_behind_a_whole_line(text: str, shown: str) -> None:
    assert clipped(text, 10) == shown


def test_a_secret_shows_its_digest_wherever_it_stands() -> None:
    secret = Secret(b"hunter2")
    for line in (text_of(v=secret), json_of(v=secret), json_of(v=[secret]), json_of(v={"k": secret})):
        assert "hunter2" not in line
        assert secret.digest() in line


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_stays_on_its_line_and_shows_as_escapes(value: str) -> None:
    stream = io.StringIO()
    for form in ("text", "json"):
        Log(stream, form, lambda: NOON, bound={"b": value}).error(value, **{"v": value, value: [value]})
    lines = stream.getvalue().split("\n")
    assert [bool(line) for line in lines] == [True, True, False]
    assert all(line.isprintable() for line in lines)
    assert json.loads(lines[1])["v"] == value
    assert json.loads(lines[1])["message"] == value


@given(st.text())
def test_any_text_becomes_printable_and_no_two_look_alike(text: str) -> None:
    assert escaped(text).isprintable()
    assert json.loads('"' + escaped(text).replace('"', '\\"') + '"') == text
    assert json.loads(json_of(v=text))["v"] == text


def test_printable_text_of_any_script_stays_readable() -> None:
    for text in ("Grüße", "日本語", "🙂"):
        assert all(unicodedata.category(char)[0] != "C" for char in text)
        assert text in text_of(v=text)
        assert text in json_of(v=text)


def test_bound_fields_come_first_and_a_field_of_the_record_wins() -> None:
    stream = io.StringIO()
    log = Log(stream, "json", lambda: NOON)
    log.bind(feature="masquerade", step="a").bind(step="b").info("x", feature="services")
    log.info("y")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert (first["feature"], first["step"]) == ("services", "b")
    assert "feature" not in second


def test_fields_never_replace_time_level_or_message() -> None:
    record = json.loads(json_of(time="never", level="none", message="other"))
    assert (record["level"], record["message"]) == ("info", "event")
    assert (record["time_"], record["level_"], record["message_"]) == ("never", "none", "other")


def test_a_stream_of_a_narrow_encoding_gets_escapes() -> None:
    raw = io.BytesIO()
    log = Log(io.TextIOWrapper(raw, encoding="ascii"), "json", lambda: NOON)
    log.info("Köln")
    assert json.loads(raw.getvalue().replace(b"\\xf6", b"\\u00f6"))["message"] == "Köln"


def test_a_full_disk_a_broken_pipe_and_a_closed_stream_stop_nobody() -> None:
    full = os.fdopen(os.open("/dev/full", os.O_WRONLY), "w", encoding="utf-8")
    Log(full, "json", lambda: NOON).info("lost")
    with pytest.raises(OSError, match="No space left"):
        full.close()
    read, write = os.pipe()
    os.close(read)
    broken = os.fdopen(write, "w", encoding="utf-8")
    Log(broken, "json", lambda: NOON).info("lost")
    with pytest.raises(BrokenPipeError):
        broken.close()
    closed = io.StringIO()
    closed.close()
    Log(closed, "json", lambda: NOON).info("lost")


@pytest.mark.parametrize(
    ("environ", "coloured"),
    [
        ({}, True),
        ({"NO_COLOR": ""}, True),  # no-color.org: only when not empty
        ({"NO_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
    ],
)
def test_a_terminal_gets_text_with_colour_unless_told_otherwise(environ: dict[str, str], coloured: bool) -> None:
    main, terminal = pty.openpty()
    with os.fdopen(terminal, "w", encoding="utf-8") as stream:
        log_for(stream, environ, lambda: NOON).warning("event")
        seen = os.read(main, 4096).decode()
    os.close(main)
    assert ("\x1b[33m" in seen) is coloured
    assert seen.rstrip().endswith("event")


def test_what_is_no_terminal_gets_json() -> None:
    stream = io.StringIO()
    log_for(stream, {}, lambda: NOON).info("event")
    assert json.loads(stream.getvalue())["message"] == "event"


def test_a_lasting_fault_is_news_when_it_appears_changes_and_ends() -> None:
    repeats = Repeats()
    assert repeats.saw("nft", "busy") == News("appeared", "busy")
    assert [repeats.saw("nft", "busy") for _ in range(3)] == [None, None, None]
    assert repeats.saw("nft", "missing") == News("changed", "missing", repeated=3)
    assert repeats.ended("nft") == News("ended", "missing", repeated=0)
    assert repeats.ended("nft") is None
    assert repeats.saw("nft", "busy") == News("appeared", "busy")


def test_faults_at_different_places_do_not_hide_each_other() -> None:
    repeats = Repeats()
    assert repeats.saw("nft/ip", "busy") == News("appeared", "busy")
    assert repeats.saw("nft/ip6", "busy") == News("appeared", "busy")
    assert repeats.ended("nft/ip") == News("ended", "busy")
    assert repeats.saw("nft/ip6", "busy") is None


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["x", "y", None]))))
def test_no_sighting_is_lost(history: list[tuple[str, str | None]]) -> None:
    repeats, spoken, silent = Repeats(), 0, 0
    for place, fault in history:
        news = repeats.ended(place) if fault is None else repeats.saw(place, fault)
        if news is not None:
            spoken += news.what != "ended"
            silent += news.repeated
    for place in "ab":
        last = repeats.ended(place)
        silent += last.repeated if last else 0
    assert spoken + silent == sum(fault is not None for _, fault in history)


def test_a_value_alone_is_written_as_in_a_record() -> None:
    assert as_json({"path": "/a\n", "count": 3, "none": None}) == '{"path": "/a\\n", "count": 3, "none": null}'
    assert Log(io.StringIO(), "text").form == "text"
    assert Log(io.StringIO()).bind(node="n").form == "json"
