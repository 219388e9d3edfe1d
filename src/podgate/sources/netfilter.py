"""Other programs' address translation on this machine, for ``check``.

Here: listing nftables and iptables-legacy once, and picking the rules that may translate. Not here: judging them.
Invariant: iptables-legacy is asked only where its tables exist already, since merely listing them creates them.
"""

import asyncio
import re
from collections.abc import Iterator
from typing import Final

from podgate.joints import ForeignNat, ForeignRule
from podgate.linux.iptables import LEGACY_SAVE, legacy_tables
from podgate.linux.running import find_program, run

_TABLE: Final = re.compile(r"table (\S+ \S+) \{")
_CHAIN: Final = re.compile(r"\s*chain (\S+) \{")
_TRANSLATES: Final = re.compile(r"\b(masquerade|snat)\b", re.IGNORECASE)
_SECONDS: Final = 30.0
"""How long a listing may take: a node with 40,000 rules needs about one second."""


class _UnreadError(Exception):
    """Rules that could not be listed; the message says why."""


def load_foreign_nat(ours: str) -> ForeignNat:
    """List the rules of all tables but ``ours`` that masquerade or translate sources.

    What can be read is given also when something else cannot. Not for use inside an event loop.
    """
    return asyncio.run(_foreign_nat(ours))


async def _foreign_nat(ours: str) -> ForeignNat:
    rules: list[ForeignRule] = []
    unread: list[str] = []
    try:
        rules += from_nft(await _listed("nft", "list", "ruleset"), ours)
    except _UnreadError as error:
        unread.append(str(error))
    for family, program in LEGACY_SAVE.items():
        try:
            if "nat" in legacy_tables(family):
                rules += from_iptables_save(await _listed(program, "-t", "nat"), family)
        except (_UnreadError, OSError) as error:
            unread.append(str(error))
    return ForeignNat(tuple(rules), "; ".join(dict.fromkeys(unread)))


async def _listed(program: str, *words: str) -> str:
    path = find_program(program)
    if path is None:
        raise _UnreadError(f"{program} is not installed")
    try:
        ended = await run((path, *words), seconds=_SECONDS)
    except TimeoutError:
        raise _UnreadError(f"{path} did not end in {_SECONDS:.0f} s and was ended") from None
    except OSError as error:
        raise _UnreadError(f"{path} cannot be started: {error.strerror}") from error
    if ended.is_cut:
        raise _UnreadError(f"{path} shows more than can be read")
    if ended.code:
        message = ended.errors.strip().splitlines()
        raise _UnreadError(message[0] if message else f"{path} ended with exit code {ended.code}")
    return ended.output


def from_nft(listing: str, ours: str) -> Iterator[ForeignRule]:
    """Pick rules out of ``nft list ruleset``."""
    table = chain = ""
    for line in listing.splitlines():
        if found := _TABLE.match(line):
            table, chain = found[1], ""
        elif found := _CHAIN.match(line):
            chain = found[1]
        elif line.strip() == "}":
            chain = ""
        elif chain and table.split()[1] != ours and _TRANSLATES.search(line):
            yield ForeignRule(table, chain, line.strip())


def from_iptables_save(listing: str, family: str) -> Iterator[ForeignRule]:
    """Pick rules out of ``iptables-save -t nat``."""
    for line in listing.splitlines():
        words = line.split(maxsplit=2)
        if len(words) == 3 and words[0] == "-A" and _TRANSLATES.search(words[2]):
            yield ForeignRule(f"{family} nat", words[1], words[2])
