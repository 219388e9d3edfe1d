"""spelling: which known word a mistyped one was probably meant to be. Pure.

Here: the nearest word, and the same as the end of a message. Not here: which words are known where.
Invariant: a word far from all that are known is guessed at by nobody: no advice is better than a wrong one.
"""

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Give the known word that ``word`` was probably meant to be, ignoring case; None if none is near.

    Of two that differ in case alone the last in the order of the alphabet counts, however ``known`` is ordered.
    """
    by_lower = {each.lower(): each for each in sorted(known)}
    near = difflib.get_close_matches(word.lower(), list(by_lower), n=1, cutoff=0.7)
    return by_lower[near[0]] if near else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Give `` (did you mean "x"?)`` for the nearest known word, else an empty text."""
    near = nearest(word, known)
    return "" if near is None else f' (did you mean "{near}"?)'
