"""Case files: input and expected result of many small cases, in one place that reads like a specification.

Here: reading the format. Not here: what the sections mean, which each test says.
Invariant: a malformed file fails when it is read, so no case is skipped in silence.

A case begins with ``=== its name``; lines of ``#`` before the first section are its comment. A section begins with
``--- its name`` and goes to the next line of ``===`` or ``---``; blank lines at its end are dropped. A section named
``… (escaped)`` has its text read as a Python string literal would be, and no line break of its own.
"""

from pathlib import Path
from typing import NamedTuple

ESCAPED = " (escaped)"


class Section(NamedTuple):
    name: str
    data: bytes

    @property
    def text(self) -> str:
        return self.data.decode()

    @property
    def lines(self) -> list[str]:
        """The lines that say something."""
        return [line for line in self.text.splitlines() if line.strip()]


class Case(NamedTuple):
    name: str
    path: Path
    line: int
    sections: tuple[Section, ...]

    def __str__(self) -> str:
        return f"{self.path.stem}:{self.line} {self.name}"

    def one(self, name: str) -> Section | None:
        found = [section for section in self.sections if section.name == name]
        assert len(found) <= 1, f"{self}: several sections {name}"
        return found[0] if found else None

    def starting(self, word: str) -> list[tuple[str, Section]]:
        """Give the sections named ``word REST``, with REST."""
        return [
            (section.name[len(word) + 1 :], section) for section in self.sections if section.name.startswith(word + " ")
        ]


def read_cases(*paths: Path) -> list[Case]:
    cases = [case for path in paths for case in _read(path)]
    assert cases, f"no cases in {', '.join(map(str, paths))}"
    return cases


def _read(path: Path) -> list[Case]:
    found: list[tuple[str, int, list[tuple[str, list[str]]]]] = []
    for number, line in enumerate(path.read_text().split("\n"), 1):
        if line.startswith("=== "):
            found.append((line[4:].strip(), number, []))
        elif line.startswith("--- ") and found:
            found[-1][2].append((line[4:].strip(), []))
        elif found and found[-1][2]:
            found[-1][2][-1][1].append(line)
        else:
            assert not line.strip() or line.startswith("#"), f"{path}:{number}: a line outside any section"
    names = [name for name, _, _ in found]
    assert len(set(names)) == len(names), f"{path}: two cases have one name"
    return [Case(name, path, line, tuple(_section(*section) for section in sections)) for name, line, sections in found]


def _section(name: str, lines: list[str]) -> Section:
    while lines and not lines[-1].strip():
        lines.pop()
    if name.endswith(ESCAPED):
        text = "".join(lines).encode().decode("unicode_escape")
        return Section(name.removesuffix(ESCAPED), text.encode("latin-1"))
    return Section(name, "".join(line + "\n" for line in lines).encode())
