"""The case files: what a client asks, what it is answered, and what the metadata server sees of it."""

from pathlib import Path

import pytest

from tests.features.metadata.reading import EXPECTED, actual
from tests.support.cases import Case, read_cases

CASES = read_cases(*sorted((Path(__file__).parent / "cases").glob("*.case")))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case: Case) -> None:
    expected = {section.name: section.lines for section in case.sections if section.name in EXPECTED}
    assert expected, "the case expects nothing"
    assert {name: actual(case, name, lines) for name, lines in expected.items()} == expected
