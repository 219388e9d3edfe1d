"""Quantities as Kubernetes writes them: ``25Mi``, ``30m``, ``0.5``, ``1e3``. Pure.

Here: text to an exact number. Not here: what is measured (lab/limits.py, lab/podenv.py).
Invariant: no rounding: a quantity is a fraction, and whoever needs a whole number rounds up, as the API does.
"""

import re
from fractions import Fraction
from typing import Final

_QUANTITY: Final = re.compile(
    r"(?P<number>[+-]?([0-9]{1,40}(\.[0-9]{0,40})?|\.[0-9]{1,40}))"
    r"([eE](?P<exponent>[+-]?[0-9]{1,2})|(?P<suffix>[KMGTPE]i|[numkMGTPE]))?",
    re.ASCII,
)
_SUFFIXES: Final = {
    **{suffix: Fraction(10) ** power for suffix, power in
       zip("num kMGTPE", (-9, -6, -3, 0, 3, 6, 9, 12, 15, 18), strict=True)},
    **{f"{letter}i": Fraction(2) ** (10 * power) for power, letter in enumerate("KMGTPE", 1)},
}  # fmt: skip


def quantity(text: str | float) -> Fraction:
    """Give the exact value of a quantity (k8s.io/apimachinery, pkg/api/resource); YAML may have made it a number.

    Raises ValueError, which says what a quantity looks like.
    """
    match = _QUANTITY.fullmatch(str(text))
    if match is None:
        raise ValueError(
            f"{text!r} is not a quantity: write a number alone or with one of n, u, m, k, M, G, T, P, E, "
            "Ki, Mi, Gi, Ti, Pi, Ei, as 500m or 64Mi"
        )
    number = Fraction(match["number"])
    if match["exponent"]:
        return number * Fraction(10) ** int(match["exponent"])
    return number * _SUFFIXES[match["suffix"] or " "]
