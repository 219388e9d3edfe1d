"""The command line of benchmarks whose figures come in parts: parts by name, ``--quick``, a table in the end.

Here: reading what is asked for, going through those parts, printing. Not here: any figure (figures/*.py), rows and
pinning (support.py).
Invariant: parts run in the order of their table, whatever the order of the command line.
"""

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from benchmarks.support import Row, machine, say, table

PartT = TypeVar("PartT")

InFolder = Callable[[Path, bool], list[Row]]
"""A part that measures with a folder to work in, fast or in full; gives rows."""


def parser_of(name: str, parts: Mapping[str, object], about: str, quick: str) -> argparse.ArgumentParser:
    """Give the parser of ``./dev bench NAME``.

    Args:
        name: what follows ``./dev bench``.
        parts: by the names that a user gives.
        about: whose figures they are.
        quick: what ``--quick`` does of each.
    """
    parser = argparse.ArgumentParser(prog=f"./dev bench {name}", description=f"Figures of {about}.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"only these of: {', '.join(parts)}")
    parser.add_argument("--quick", action="store_true", help=f"{quick} of each, to see that it works")
    return parser


def asked_of(
    parser: argparse.ArgumentParser, parts: Mapping[str, object], arguments: Sequence[str]
) -> argparse.Namespace:
    """Read a command line; a part that is none ends the process with exit code 2."""
    asked = parser.parse_args(arguments)
    unknown = sorted(set(asked.parts) - parts.keys())
    if unknown:
        parser.error(f"no part {', '.join(unknown)}: there are {', '.join(parts)}")
    return asked


def chosen(parts: Mapping[str, PartT], names: Sequence[str]) -> Iterator[PartT]:
    """Give the parts that are named, or all, and say when each begins."""
    for name, part in parts.items():
        if name in (names or parts):
            say(f"measuring: {name}")
            yield part


def in_folders(parts: Mapping[str, InFolder], asked: argparse.Namespace) -> list[Row]:
    """Measure the parts that are asked for, each with an empty folder that is gone afterwards."""
    rows: list[Row] = []
    for part in chosen(parts, asked.parts):
        with tempfile.TemporaryDirectory(prefix="podgate-bench-") as folder:
            rows += part(Path(folder), asked.quick)
    return rows


def show(rows: Sequence[Row], *, quick: bool, note: str = "") -> int:
    """Print the machine, with a note, and the table; give exit code 0, whatever the figures say."""
    print(f"{machine()}{note}{', --quick: too few runs to be quoted' if quick else ''}\n")
    print(table(rows), flush=True)
    return 0
