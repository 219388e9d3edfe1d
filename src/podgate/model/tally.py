"""tally: how many of what, in a few words.

Here: ``3 chains, 1 rule``. Not here: what is counted. Pure.
Invariant: what there is none of is not named.
"""

from collections.abc import Mapping


def tally(counts: Mapping[str, int]) -> str:
    """Give counts in words, by nouns in the singular whose plural ends in s; "nothing" where all are 0."""
    words = (f"{count} {noun}{'' if count == 1 else 's'}" for noun, count in counts.items() if count)
    return ", ".join(words) or "nothing"
