"""Quantities are read exactly, and what is none is told so."""

from fractions import Fraction

import pytest

from podgate.lab.quantities import quantity

EXACT = {
    "0": 0, "1": 1, "500m": Fraction(1, 2), "30m": Fraction(3, 100), "0.5": Fraction(1, 2), ".5": Fraction(1, 2),
    "5.": 5, "25Mi": 25 * 2**20, "64Ki": 2**16, "1G": 10**9, "1Gi": 2**30, "2k": 2000, "1.5Ti": 3 * 2**39,
    "1P": 10**15, "1Pi": 2**50, "1E": 10**18, "1Ei": 2**60, "1e3": 1000, "1E3": 1000, "12e-3": Fraction(12, 1000),
    "100n": Fraction(1, 10**7), "7u": Fraction(7, 10**6), "-1": -1, "+1": 1, "0.1": Fraction(1, 10),
}  # fmt: skip


@pytest.mark.parametrize(("text", "value"), EXACT.items())
def test_a_quantity_is_an_exact_number(text: str, value: Fraction | int) -> None:
    assert quantity(text) == value


@pytest.mark.parametrize(("number", "value"), [(3, 3), (0.1, Fraction(1, 10)), (1e-7, Fraction(1, 10**7))])
def test_numbers_of_yaml_are_quantities(number: float, value: Fraction) -> None:
    assert quantity(number) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "lots",
        "25MB",
        "25mi",
        "25 Mi",
        " 1",
        "1\n",
        "1K",
        "Mi",
        ".",
        "1.2.3",
        "0x10",
        "1e",
        "1e999",
        "\u0661",
        "1_0",
    ],
)
def test_what_is_no_quantity_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a quantity: write a number .* as 500m or 64Mi") as caught:
        quantity(text)
    assert repr(text) in str(caught.value)
