"""Path patterns: what they cover, against a slow reading of the same grammar."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podgate.features.metadata.globs import Globs, Wild, mistake

COVERS = [
    ("/a", "/a", True),
    ("/a", "/a/", True),
    ("/a/", "/a", True),
    ("/a", "/a/b", False),
    ("/a", "/A", False),
    ("/*", "/a", True),
    ("/*", "/", False),
    ("/*", "/a/b", False),
    ("/a*", "/a", True),
    ("/a*c", "/abc", True),
    ("/a*c", "/ac", True),
    ("/a*a", "/a", False),
    ("/**", "/", True),
    ("/**", "/a/b/c", True),
    ("/a/**", "/a", True),
    ("/a/**/b", "/a/b", True),
    ("/a/**/b", "/a/x/y/b", True),
    ("/a/**/b", "/a/x/y/b/c", False),
    ("/a/*/**", "/a", False),
    ("/a/*/**", "/a/b", True),
    ("/**/a/**/a", "/a/b/a", True),
    ("/**/a/**/a", "/a", False),
]


@pytest.mark.parametrize(("pattern", "path", "covers"), COVERS)
def test_what_a_pattern_covers(pattern: str, path: str, covers: bool) -> None:
    assert (Globs([(pattern, 1)]).first(path) == 1) is covers


def test_any_case_and_all_that_is_below() -> None:
    globs = Globs([("/a/B", 1)], any_case=True, below=True)
    assert [globs.first(path) for path in ("/A/b", "/a/b/c/d", "/a", "/a/bc")] == [1, 1, None, None]


def test_what_may_be_beneath() -> None:
    globs = Globs([("/a/b/c", 1), ("/x/*/y", 2)], below=True)
    paths = ("/", "/a", "/a/b", "/a/b/c", "/a/b/c/d", "/a/c", "/x/q", "/x/q/z", "/y")
    assert [globs.beneath(path) for path in paths] == [True, True, True, True, True, False, True, False, False]


def test_of_equal_patterns_the_first_counts_and_all_that_cover_are_given() -> None:
    globs = Globs([("/a", 1), ("/a", 2), ("/*", 3), ("/**", 4)])
    assert sorted(globs.all_of("/a")) == [1, 3, 4]


MISTAKES = {
    "a": "begins with /",
    "/a//b": "empty segment",
    "/a b": "' '",
    "/a%20": "'%'",
    "/a/**b": "**",
    "/a/..": "dot",
    "/a;b": "';'",
}


@pytest.mark.parametrize(("pattern", "words"), MISTAKES.items())
def test_mistakes(pattern: str, words: str) -> None:
    assert words in mistake(pattern)


def slow(pattern: str) -> re.Pattern[str]:
    """Write a pattern as a regular expression."""
    text = ""
    for segment in [part for part in pattern.split("/") if part]:
        if segment == "**":
            text += "(?:/[^/]+)*"
        elif segment == "*":
            text += "/[^/]+"
        else:
            text += "/" + ".*".join(map(re.escape, segment.split("*"))).replace(".*", "[^/]*")
    return re.compile(text or "/?")


SEGMENTS = st.sampled_from(["a", "b", "ab", "*", "a*", "*b", "**", "a*b*"])
PATTERNS = st.lists(SEGMENTS, max_size=5).map(lambda parts: "/" + "/".join(parts))
PATHS = st.lists(st.sampled_from(["a", "b", "ab", "aab", "bb", "abb"]), max_size=6).map(
    lambda parts: "/" + "/".join(parts)
)


@given(st.lists(PATTERNS, min_size=1, max_size=5), PATHS)
def test_the_patterns_that_cover_a_path(patterns: list[str], path: str) -> None:
    assert all(mistake(pattern) == "" for pattern in patterns)
    globs = Globs((pattern, pattern) for pattern in patterns)
    shown = "" if path == "/" else path
    want = {pattern for pattern in patterns if slow(pattern).fullmatch(shown)}
    # "/a/**/**" and "/a/**" are one pattern, of which the first counts.
    assert {slow(pattern).pattern for pattern in globs.all_of(path)} <= {slow(pattern).pattern for pattern in want}
    assert bool(globs.all_of(path)) == bool(want)


def test_wildcards_do_not_backtrack() -> None:
    import time

    wild = Wild("a*" * 40 + "b")
    start = time.process_time()
    assert not wild.matches("a" * 4_000 + "c")
    assert Globs([("/**/a" * 20, 1)]).first("/a" * 32) == 1
    # With backtracking it would not end; the rest is for a collection of what thousands of tests left.
    assert time.process_time() - start < 5
