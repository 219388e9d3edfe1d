"""The old program's reading of a target, as far as its answers go."""

import pytest

from podgate.features.metadata.v0112 import cleaned, go_quoted, old_answer

CLEANED = {
    b"": b"",
    b"/": b"/",
    b"//": b"/",
    b"/a//b": b"/a/b",
    b"/a/./b/": b"/a/b/",
    b"/a/../b": b"/b",
    b"/../../a": b"/a",
    b"/a/..": b"/",
    b"a/../..": b"..",
    b"a/..": b".",
    b"*": b"*",
}


@pytest.mark.parametrize(("path", "want"), CLEANED.items())
def test_cleaning_as_go_does_it(path: bytes, want: bytes) -> None:
    assert cleaned(path) == want


QUOTED = {
    "": "``",
    "a b": "`a b`",
    "tab\t": "`tab\t`",
    "re\becursive": '"re\\becursive"',
    "back`quote": '"back`quote"',
    'both`"\\': '"both`\\"\\\\"',
    "\x00\x7f\n": '"\\x00\\x7f\\n"',
    "é": "`é`",
    "\udcff": '"\\xff"',
    "\ufeff": '"\\ufeff"',
    "\U000e0001": '"\\U000e0001"',
}


@pytest.mark.parametrize(("text", "want"), QUOTED.items())
def test_quoting_as_go_does_it(text: str, want: str) -> None:
    assert go_quoted(text) == want


def test_what_it_forwarded_has_no_answer() -> None:
    forwarded = [
        b"/computeMetadata/v1/instance/attributes/kube-env/",
        b"/computeMetadata/v1/instance/attributes/kube%252Denv",
        b"/computeMetadata/v1/instance/?alt=text;recursive=true",
        b"/computeMetadata/v1/instance/?recursive=true%zz",
        b"/computeMetadata/v1/instance/service-accounts/default/?recursive",
        b"/computeMetadata/v1/instance/service-accounts/default%0a/identity",
        b"/computeMetadata/v1/instance/%zz",
    ]
    assert [old_answer(raw) for raw in forwarded] == [None] * len(forwarded)
