"""Go's ParseDuration, by its documented grammar and the table of ip-masq-agent's inputs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podgate.model.durations import NANOSECONDS, NotADuration, go_text, parse, text_of

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("0", 0),
        ("-0", 0),
        ("+0", 0),
        ("0s", 0),
        ("60s", 60 * SECOND),
        ("+5s", 5 * SECOND),
        ("-5s", -5 * SECOND),
        (".5s", SECOND // 2),
        ("5.s", 5 * SECOND),
        ("1.5m", 90 * SECOND),
        ("1h30m", 5400 * SECOND),
        ("30m1h", 5400 * SECOND),
        ("1h1h", 7200 * SECOND),
        ("100us", 100_000),
        ("1\u00b5s", 1_000),
        ("1\u03bcs", 1_000),
        ("1ms", 1_000_000),
        ("1ns", 1),
        ("0.9ns", 0),
        ("00000000000000000000000000000001s", SECOND),
        ("0.100000000000000000000h", 360 * SECOND),
        ("0.3333333333333333333h", 20 * 60 * SECOND),
        ("0.9223372036854775807h", 3_320_413_933_267),
        ("9223372036854775807ns", (1 << 63) - 1),
        ("-9223372036854775808ns", -(1 << 63)),
        ("2562047h", 2562047 * 3600 * SECOND),
    ],
)
def test_accepted(text: str, nanoseconds: int) -> None:
    assert parse(text) == nanoseconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "+",
        "60",
        ".",
        ".s",
        "-.",
        "s",
        "1d",
        "1w",
        "5M",
        "1S",
        "1e3s",
        "10 s",
        "1h 30m",
        " 1s",
        "1s ",
        "1h-30m",
        "--1s",
        "1.2.3s",
        "3000000h",
        "2562048h",
        "9223372036854775808ns",
        "9223372036854775807ns1ns",
        "-9223372036854775809ns",
        "9" * 5000 + "s",
        "\u0663s",
        "1s\n",
    ],
)
def test_refused(text: str) -> None:
    with pytest.raises(NotADuration):
        parse(text)


@given(st.text(alphabet="0159.+-hmsnuµd e", max_size=12))
def test_a_duration_or_a_reason(text: str) -> None:
    try:
        value = parse(text)
    except NotADuration:
        return
    assert -(1 << 63) <= value < (1 << 63)
    assert text[-1] in "shm0"


@given(st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from(sorted(NANOSECONDS))), min_size=1, max_size=4))
def test_the_sum_of_its_parts(parts: list[tuple[int, str]]) -> None:
    assert parse("".join(f"{n}{unit}" for n, unit in parts)) == sum(n * NANOSECONDS[unit] for n, unit in parts)


@pytest.mark.parametrize(("nanoseconds", "text"), [(SECOND, "1s"), (60 * SECOND, "60s"), (1500, "1.5us"), (7, "7ns")])
def test_text(nanoseconds: int, text: str) -> None:
    assert text_of(nanoseconds) == text
    assert parse(text) == nanoseconds


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1_100, "1.1\u00b5s"),
        (2_200_000, "2.2ms"),
        (3_300_000_000, "3.3s"),
        (60 * SECOND, "1m0s"),
        (4 * 60 * SECOND + 5 * SECOND + 1_000_000, "4m5.001s"),
        (86400 * SECOND, "24h0m0s"),
        (-90 * SECOND, "-1m30s"),
    ],
)
def test_written_as_go_writes_it(nanoseconds: int, text: str) -> None:
    assert go_text(nanoseconds) == text


@given(st.integers(-(1 << 60), 1 << 60))
def test_what_go_writes_reads_back(nanoseconds: int) -> None:
    assert abs(parse(go_text(nanoseconds)) - nanoseconds) <= abs(nanoseconds) >> 50  # Go's own floating point
