"""A metrics page is valid as a whole, or not made; equal values give equal bytes.

Here: the writer against whole expected pages and a reader written from the format's description; Counters.
Not here: which metrics the product has.
Invariant: expected pages are literal bytes.
"""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podgate.observe.metrics import Counter, Counters, Distribution, Histogram, Measured, exposition

PAGES = {
    "nothing": ([], b""),
    "one gauge": (
        [Measured("podgate_up", 1)],
        b"# TYPE podgate_up gauge\npodgate_up 1\n",
    ),
    "families by name, samples by labels, labels by name": (
        [
            Measured("b_total", 2, (("z", "1"), ("a", "2")), "counter", "Bs."),
            Measured("a", 0.25),
            Measured("b_total", 1, (("a", "1"), ("z", "1")), "counter"),
        ],
        (
            b"# TYPE a gauge\na 0.25\n"
            b"# HELP b_total Bs.\n# TYPE b_total counter\n"
            b'b_total{a="1",z="1"} 1\nb_total{a="2",z="1"} 2\n'
        ),
    ),
    "escapes": (
        [Measured("a", 1, (("p", 'C:\\d "x"\ny'),), help='back\\slash\nline "quoted"')],
        b'# HELP a back\\\\slash\\nline "quoted"\n# TYPE a gauge\na{p="C:\\\\d \\"x\\"\\ny"} 1\n',
    ),
    "numbers": (
        [
            Measured("n", value, (("i", str(i)),))
            for i, value in enumerate([math.inf, -math.inf, math.nan, 1e300, 0.1, -2.0, 2**53, 1700000000.5])
        ],
        (
            b'# TYPE n gauge\nn{i="0"} +Inf\nn{i="1"} -Inf\nn{i="2"} NaN\nn{i="3"} 1e+300\nn{i="4"} 0.1\n'
            b'n{i="5"} -2\nn{i="6"} 9007199254740992.0\nn{i="7"} 1700000000.5\n'
        ),
    ),
    "histogram": (
        [Measured("h", Distribution((0.5, 1.0), (1, 0, 2), 7.25), (("s", "x"),), "histogram", "Hs.")],
        (
            b"# HELP h Hs.\n# TYPE h histogram\n"
            b'h_bucket{s="x",le="0.5"} 1\nh_bucket{s="x",le="1"} 1\nh_bucket{s="x",le="+Inf"} 3\n'
            b'h_sum{s="x"} 7.25\nh_count{s="x"} 3\n'
        ),
    ),
}

BUGS = {
    "bad name": ([Measured("a-b", 1)], "not a name"),
    "empty name": ([Measured("", 1)], "not a name"),
    "line end after a name": ([Measured("a\n", 1)], "not a name"),
    "unknown kind": ([Measured("a", 1, kind="summary")], "unknown kind"),
    "counter without _total": ([Measured("a", 1, kind="counter")], "_total"),
    "gauge with _total": ([Measured("a_total", 1)], "_total"),
    "bad label": ([Measured("a", 1, (("b-c", "x"),))], "label"),
    "reserved label": ([Measured("a", 1, (("__name__", "x"),))], "label"),
    "le in a histogram": ([Measured("a", Distribution((), (0,), 0), (("le", "1"),), "histogram")], "label"),
    "a label twice": ([Measured("a", 1, (("b", "x"), ("b", "y")))], "twice"),
    "a sample twice": (
        [Measured("a", 1, (("b", "x"), ("c", "y"))), Measured("a", 2, (("c", "y"), ("b", "x")))],
        "two samples",
    ),
    "two kinds": ([Measured("a_total", 1, kind="counter"), Measured("a_total", 1, (("b", "c"),))], "one name"),
    "two helps": ([Measured("a", 1, help="x"), Measured("a", 1, (("b", "c"),), help="y")], "one name"),
    "histogram of a number": ([Measured("a", 1, kind="histogram")], "Distribution"),
    "gauge of a distribution": ([Measured("a", Distribution((), (0,), 0))], "Distribution"),
    "bounds that fall": ([Measured("a", Distribution((2, 1), (0, 0, 0), 0), (), "histogram")], "bounds rise"),
    "a count missing": ([Measured("a", Distribution((1,), (0,), 0), (), "histogram")], "bounds rise"),
    "two names, one series": (
        [Measured("a", Distribution((), (0,), 0), (), "histogram"), Measured("a_count", 1)],
        "both write a_count",
    ),
}


@pytest.mark.parametrize(("samples", "page"), PAGES.values(), ids=PAGES.keys())
def test_pages(samples: list[Measured], page: bytes) -> None:
    assert exposition(samples) == page
    assert exposition(reversed(samples)) == page


@pytest.mark.parametrize(("samples", "message"), BUGS.values(), ids=BUGS.keys())
def test_what_cannot_be_a_page_is_refused_with_its_reason(samples: list[Measured], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        exposition(samples)


LINE = re.compile(
    r'(?P<name>[a-zA-Z_:][\w:]*)(\{(?P<labels>(?:\w+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (?P<value>\S+)', re.ASCII
)
UNESCAPED = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])),
        st.floats(allow_nan=False),
        max_size=5,
    )
)
def test_a_reader_gets_back_every_label_and_value(values: dict[str, float]) -> None:
    page = exposition([Measured("m", value, (("l", label),)) for label, value in values.items()]).decode()
    read: dict[str, float] = {}
    for line in page.split("\n")[1:-1]:
        found = LINE.fullmatch(line)
        assert found is not None, line
        label = found["labels"].removeprefix('l="').removesuffix('"')
        read[re.sub(r"\\.", lambda pair: UNESCAPED[pair[0]], label)] = float(found["value"])
    assert read == values


def test_text_that_is_not_unicode_does_not_spoil_the_page() -> None:
    assert exposition([Measured("m", 1, (("l", "a\udc80"),))]).endswith(b'm{l="a?"} 1\n')


COUNTERS = (
    Counter("plain_total", "Plain."),
    Counter("by_reason_total", "By reason.", ("reason",)),
    Histogram("seconds", "Duration.", ("step",), (0.1, 1.0)),
)


def test_a_counter_without_labels_is_there_before_its_first_event() -> None:
    assert exposition(Counters(COUNTERS).samples()) == (
        b"# HELP plain_total Plain.\n# TYPE plain_total counter\nplain_total 0\n"
    )


def test_counters_grow_by_name_and_labels() -> None:
    counters = Counters(COUNTERS)
    counters.add("plain_total")
    counters.add("plain_total", 2)
    counters.add("by_reason_total", reason="a")
    counters.add("by_reason_total", reason="b")
    counters.add("by_reason_total", reason="b")
    assert {(sample.name, sample.labels): sample.value for sample in counters.samples()} == {
        ("plain_total", ()): 3,
        ("by_reason_total", (("reason", "a"),)): 1,
        ("by_reason_total", (("reason", "b"),)): 2,
    }


def test_a_bound_is_part_of_its_own_bucket() -> None:
    counters = Counters(COUNTERS)
    for value in (0.05, 0.1, 0.5, 1.0, 1.5):
        counters.observe("seconds", value, step="ip")
    page = exposition(counters.samples()).decode()
    assert re.findall(r'seconds_bucket\{step="ip",le="(.*)"\} (\d)', page) == [("0.1", "2"), ("1", "4"), ("+Inf", "5")]
    assert 'seconds_count{step="ip"} 5' in page


def test_samples_taken_earlier_do_not_change() -> None:
    counters = Counters(COUNTERS)
    counters.observe("seconds", 1, step="ip")
    early = counters.samples()
    page = exposition(early)
    counters.observe("seconds", 1, step="ip")
    assert exposition(early) == page != exposition(counters.samples())


def test_uses_that_do_not_fit_the_declaration_are_bugs() -> None:
    counters = Counters(COUNTERS)
    with pytest.raises(ValueError, match="no counter unknown_total"):
        counters.add("unknown_total")
    with pytest.raises(ValueError, match="labels"):
        counters.add("by_reason_total")
    with pytest.raises(ValueError, match="no counter seconds"):
        counters.add("seconds", step="ip")
    with pytest.raises(ValueError, match="no histogram plain_total"):
        counters.observe("plain_total", 1)
    with pytest.raises(ValueError, match="shrink"):
        counters.add("plain_total", -1)
    with pytest.raises(ValueError, match="twice"):
        Counters((Counter("a_total", "A."), Counter("a_total", "B.")))
