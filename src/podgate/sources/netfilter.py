"""Other programs' address translation on this machine, for ``check``.

Here: listing nftables and iptables-legacy once, and picking the rules that may translate. Not here: judging them.
Invariant: iptables-legacy is asked only where its tables exist already, since merely listing them creates them.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from podgate.joints import ForeignNat, ForeignRule

_TABLE: Final = re.compile(r"table (\S+ \S+) \{")
_CHAIN: Final = re.compile(r"\s*chain (\S+) \{")
_TRANSLATES: Final = re.compile(r"\b(masquerade|snat)\b", re.IGNORECASE)
_SECONDS: Final = 30.0
"""How long a listing may take: a node with 40,000 rules needs about one second."""

_LEGACY: Final = (
    ("ip", "/proc/thread-self/net/ip_tables_names", "iptables-legacy-save"),
    ("ip6", "/proc/thread-self/net/ip6_tables_names", "ip6tables-legacy-save"),
)


def load_foreign_nat(ours: str) -> ForeignNat:
    """List the rules of all tables but ``ours`` that masquerade or translate sources."""
    try:
        rules = list(from_nft(_listed("nft", "list", "ruleset"), ours))
        for family, names, program in _LEGACY:
            if _in_use(names):
                rules += from_iptables_save(_listed(program, "-t", "nat"), family)
    except FileNotFoundError as error:
        return ForeignNat(unread=f"{error.filename} is not installed")
    except PermissionError as error:
        return ForeignNat(unread=str(error))
    except (subprocess.SubprocessError, OSError) as error:
        return ForeignNat(unread=f"{error}")
    return ForeignNat(tuple(rules))


def _in_use(names: str) -> bool:
    try:
        return "nat" in Path(names).read_text().split()
    except FileNotFoundError:
        return False


def _listed(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode:
        message = done.stderr.strip().splitlines()
        raise PermissionError(message[0] if message else f"{command[0]} ended with exit code {done.returncode}")
    return done.stdout


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
