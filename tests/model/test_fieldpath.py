"""How messages name a field."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podgate.model.fieldpath import field_path, split_path

PATHS: list[tuple[tuple[str | int, ...], str]] = [
    ((), ""),
    (("nonMasqueradeCIDRs", 1), "nonMasqueradeCIDRs[1]"),
    (("spec", "containers", 0, "image"), "spec.containers[0].image"),
    (("data", "ip-masq-agent"), "data.ip-masq-agent"),
    (("metadata", "annotations", "a.b/c"), 'metadata.annotations["a.b/c"]'),
    (("a.b", 0, "c"), '["a.b"][0].c'),
    (("", 'say "hi"'), '[""]["say \\"hi\\""]'),
    ((0, 1, "x"), "[0][1].x"),
]


@pytest.mark.parametrize(("parts", "path"), PATHS)
def test_paths(parts: tuple[str | int, ...], path: str) -> None:
    assert field_path(parts) == path
    assert split_path(path) == parts


@given(st.lists(st.text() | st.integers(0, 999_999_999)))
def test_paths_read_back_as_they_were_written(parts: list[str | int]) -> None:
    assert split_path(field_path(parts)) == tuple(parts)


@pytest.mark.parametrize("text", ["a..b", ".a", "a[", "a b", "a[x]", '["x'])
def test_what_is_no_path_is_a_bug_of_the_caller(text: str) -> None:
    with pytest.raises(ValueError, match="not a field path"):
        split_path(text)
