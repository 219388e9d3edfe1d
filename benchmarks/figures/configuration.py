"""Configurations for the figures: as short as the built-in one, or with thousands of entries.

Here: texts. Not here: how they reach a file (benchmarks/support.py).
Invariant: no two entries touch, so that each is an interval of its own in the kernel's set.
"""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network
from typing import Final

_BULK: Final = int(IPv4Address("30.0.0.0"))
_MARKS: Final = int(IPv4Address("20.0.0.0"))
_APART: Final = 512


def bulk(count: int, first: int = 0) -> list[IPv4Network]:
    """Give ``count`` entries; those of another ``first`` are the same where the numbers overlap."""
    return [IPv4Network((_BULK + number * _APART, 24)) for number in range(first, first + count)]


def mark(number: int) -> IPv4Network:
    """Give an entry by which one edit is recognised; numbers return after 32,768."""
    return IPv4Network((_MARKS + number % 32768 * _APART, 24))


def text_of(networks: Iterable[IPv4Network], resync: str = "60s") -> str:
    """Give the text of a configuration as users write it."""
    lines = ["nonMasqueradeCIDRs:", *(f"- {network}" for network in networks)]
    return "\n".join((*lines, "cidrLimit: 20000", f"resyncInterval: {resync}", ""))
