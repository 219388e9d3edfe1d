"""spelling: which known word a mistyped one was probably meant to be. Pure.

Here: the nearest word, and the same as the end of a message. Not here: which words are known where.
Invariant: a word far from all that are known is guessed at by nobody: no advice is better than a wrong one.
"""

import difflib
from collections.abc import Iterable
from typing import Final

_AS_NEAR: Final = 0.1
"""Of the share of letters in common, by which one is no nearer than another."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Give the known word that ``word`` was probably meant to be, ignoring case; None if none is near.

    Among those that are about as near as the nearest, one that begins with ``word``, or that ``word`` begins with,
    goes before the others.
    Of two that differ in case alone the last in the order of the alphabet counts, however ``known`` is ordered.
    """
    by_lower = {each.lower(): each for each in sorted(known)}
    meant = word.lower()
    near = difflib.get_close_matches(meant, list(by_lower), n=max(1, len(by_lower)), cutoff=0.7)
    if not near:
        return None
    least = _likeness(near[0], meant) - _AS_NEAR
    as_near = (each for each in near if _likeness(each, meant) >= least)
    longer_or_cut = (each for each in as_near if each.startswith(meant) or meant.startswith(each))
    return by_lower[next(longer_or_cut, near[0])]


def _likeness(known: str, word: str) -> float:
    return difflib.SequenceMatcher(None, known, word).ratio()


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Give `` (did you mean "x"?)`` for the nearest known word, else an empty text."""
    near = nearest(word, known)
    return "" if near is None else f' (did you mean "{near}"?)'
