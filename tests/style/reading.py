"""The repository as the style tests see it: which files there are, and their syntax trees.

Here: walking and parsing. Not here: rules; each is a test beside this file.
Invariant: files that git would not take (caches, environments, build output) are not seen.
"""

import ast
import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "src" / "podgate"

_FOLDERS: Final = ("src", "tests", "benchmarks", "tools", "docs", "deploy", "examples", "requirements", ".ci")
_PYTHON: Final = ("src", "tests", "benchmarks", "tools")


def files() -> Iterator[Path]:
    """Give every file of the repository that holds text of ours."""
    yield from (path for path in sorted(ROOT.iterdir()) if path.is_file() and path.suffix not in (".pyc", ".lock"))
    for folder in _FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc":
                yield path


def python_files(*folders: str) -> list[Path]:
    """Give the Python files below some folders, or below all that hold Python."""
    return [path for folder in folders or _PYTHON for path in sorted((ROOT / folder).rglob("*.py"))]


def name(path: Path) -> str:
    """Give a path as messages show it: from the repository's root."""
    return str(path.relative_to(ROOT))


def tree(path: Path) -> ast.Module:
    """Give a file's syntax tree."""
    found = _trees().get(path)
    return _parsed(path) if found is None else found


@cache
def _trees() -> dict[Path, ast.Module]:
    """Give all trees, made once: without looking for garbage in between, which takes longer than reading."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return {path: _parsed(path) for path in python_files()}
    finally:
        if was_enabled:
            gc.enable()


def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=name(path))
