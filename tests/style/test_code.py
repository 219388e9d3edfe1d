"""The house rules of CONTRIBUTING.md that a machine can hold, over every Python file.

Here: size, docstrings, names, imports, exceptions, what nobody uses, and a test for each source file. Not here: what
ruff and mypy hold (pyproject.toml), layers (.importlinter), purity (test_purity.py).
Invariant: each rule is a function that gives the offenders, so that it is tried on bad code too.
"""

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.style.exceptions import CATCH_ALL, LONG_FILES, LONG_FUNCTIONS, UNTESTED
from tests.style.reading import ROOT, SOURCE, name, python_files, tree

MOST_LINES = 399
MOST_LINES_OF_A_FUNCTION = 60
EMPTY_NAMES = re.compile("util|helper|manager|common", re.IGNORECASE)
UNFINISHED = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "NotImplemented" + "Error")) + r")\b")
FORBIDDEN_CATCHES = {"Exception", "BaseException"}
PARTS = ("Not here: ", "Invariant: ")

Rule = Callable[[ast.Module], Iterator[str]]


def functions(module: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(module) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


def long_functions(module: ast.Module) -> Iterator[str]:
    for function in functions(module):
        length = (function.end_lineno or function.lineno) - function.lineno + 1
        if length > MOST_LINES_OF_A_FUNCTION:
            yield function.name


def empty_names(module: ast.Module) -> Iterator[str]:
    return (node.name for node in ast.walk(module) if isinstance(node, ast.ClassDef) and EMPTY_NAMES.search(node.name))


def defined(module: ast.Module) -> Iterator[str]:
    """Give what a module defines, but for what nobody calls by its name: tests, pytest's hooks, ``__x__``."""
    for node in ast.walk(module):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            unasked = any("autouse=True" in ast.unparse(decorator) for decorator in node.decorator_list)
            if not unasked and not node.name.startswith(("__", "test_", "pytest_")):
                yield node.name
    for node in module.body:
        target = getattr(node, "target", None) or next(iter(getattr(node, "targets", ())), None)
        if isinstance(target, ast.Name) and target.id != "pytestmark":
            yield target.id


def relative_imports(module: ast.Module) -> Iterator[str]:
    return (ast.unparse(node) for node in ast.walk(module) if isinstance(node, ast.ImportFrom) and node.level)


def catches_of_everything(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.ExceptHandler):
            caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            if isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None:
                continue  # cleans up and lets the exception go on
            if any(each is None or (isinstance(each, ast.Name) and each.id in FORBIDDEN_CATCHES) for each in caught):
                yield f"line {node.lineno}"
        elif isinstance(node, ast.With):
            for call in (item.context_expr for item in node.items):
                if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("suppress"):
                    named = {each.id for each in call.args if isinstance(each, ast.Name)}
                    yield from [f"line {node.lineno}"] * bool(named & FORBIDDEN_CATCHES)


def imported(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def docstring_parts(module: ast.Module) -> list[str]:
    """Give which of the three parts of a module's docstring are missing."""
    text = ast.get_docstring(module) or ""
    return [part for part in PARTS if not re.search(rf"(^|[.;)]\s+){part}", text, re.MULTILINE)]


BAD: dict[str, tuple[Rule, str, list[str]]] = {
    "long function": (long_functions, "def f():\n" + "    x = 1\n" * 60, ["f"]),
    "function of 60 lines": (long_functions, "def f():\n" + "    x = 1\n" * 59, []),
    "empty class name": (empty_names, "class StringHelpers: ...", ["StringHelpers"]),
    "relative import": (relative_imports, "from . import x", ["from . import x"]),
    "catch Exception": (catches_of_everything, "try: ...\nexcept Exception: ...", ["line 2"]),
    "catch in a tuple": (catches_of_everything, "try: ...\nexcept (OSError, BaseException): ...", ["line 2"]),
    "bare except": (catches_of_everything, "try: ...\nexcept: ...", ["line 2"]),
    "suppress Exception": (catches_of_everything, "with contextlib.suppress(Exception): ...", ["line 1"]),
    "clean up and raise again": (catches_of_everything, "try: ...\nexcept BaseException:\n    f()\n    raise", []),
    "raise another": (catches_of_everything, "try: ...\nexcept Exception:\n    raise ValueError", ["line 2"]),
    "catch OSError": (catches_of_everything, "try: ...\nexcept OSError: ...", []),
    "definitions": (
        defined,
        "x = 1\ny: int = 2\ndef f(): ...\ndef test_g(): ...\nclass C:\n    def __len__(self): ...",
        ["f", "C", "x", "y"],
    ),
    "imports": (
        imported,
        "import a.b\nfrom c import d",
        ["a.b", "c", "c.d"],
    ),
    "no docstring": (lambda module: iter(docstring_parts(module)), "x = 1", ["Not here: ", "Invariant: "]),
    "a whole docstring": (
        lambda module: iter(docstring_parts(module)),
        '"""Short.\n\nHere: x. Not here: y.\nInvariant: z.\n"""',
        [],
    ),
}


@pytest.mark.parametrize(("rule", "code", "offenders"), BAD.values(), ids=BAD.keys())
def test_each_rule_finds_what_it_forbids(rule: Rule, code: str, offenders: list[str]) -> None:
    assert list(rule(ast.parse(code))) == offenders


def test_there_are_files_to_look_at() -> None:
    assert len(python_files("src")) > 20
    assert len(python_files("tests")) > 10


def test_files_are_short() -> None:
    lines = {name(path): len(path.read_text().splitlines()) for path in python_files()}
    assert {path: count for path, count in lines.items() if count > MOST_LINES and path not in LONG_FILES} == {}
    assert [path for path in LONG_FILES if lines.get(path, 0) <= MOST_LINES] == []


def test_functions_are_short() -> None:
    long = {f"{name(path)}:{function}" for path in python_files() for function in long_functions(tree(path))}
    assert long == set(LONG_FUNCTIONS)


def test_every_module_says_what_is_not_in_it_and_what_always_holds() -> None:
    """``__init__.py`` has one line at least; tests too, whose names say the rest."""
    missing = {
        name(path): parts
        for path in python_files("src")
        if path.name != "__init__.py" and (parts := docstring_parts(tree(path)))
    }
    assert missing == {}
    assert [name(path) for path in python_files() if not ast.get_docstring(tree(path))] == []


def test_no_module_or_class_has_a_name_that_says_nothing() -> None:
    assert [name(path) for path in python_files() if EMPTY_NAMES.search(path.stem)] == []
    assert {name(path): found for path in python_files() if (found := list(empty_names(tree(path))))} == {}


def test_imports_are_absolute() -> None:
    assert {name(path): found for path in python_files() if (found := list(relative_imports(tree(path))))} == {}


def test_nothing_catches_everything() -> None:
    found = {name(path): lines for path in python_files() if (lines := list(catches_of_everything(tree(path))))}
    assert found.keys() == CATCH_ALL.keys(), found


def test_nothing_is_defined_that_nobody_names() -> None:
    words = Counter(word for path in python_files() for word in re.findall(r"\w+", path.read_text()))
    alone = {name(path): [each for each in defined(tree(path)) if words[each] == 1] for path in python_files()}
    assert {path: names for path, names in alone.items() if names} == {}, "what is not needed is not there"


def test_nothing_is_left_to_do() -> None:
    assert [name(path) for path in python_files() if UNFINISHED.search(path.read_text())] == []


def has_test(path: Path) -> bool:
    """Say whether a test is where this file's reader looks for it.

    That is tests/ in the folder of the same place, in a file of that name or one that imports it; or tests/kernel, in
    one that imports it.
    """
    below = path.relative_to(SOURCE)
    module = ".".join(("podgate", *below.with_suffix("").parts))
    folder = ROOT / "tests" / below.parent
    if any(folder.glob(f"test_{path.stem}.py")):
        return True
    near = (*sorted(folder.glob("test_*.py")), *sorted((ROOT / "tests" / "kernel").glob("test_*.py")))
    return any(module in imports_of(test) for test in near)


@cache
def imports_of(path: Path) -> frozenset[str]:
    return frozenset(imported(tree(path)))


def test_each_source_file_has_a_test_file() -> None:
    without = {name(path) for path in python_files("src") if path.name != "__init__.py" and not has_test(path)}
    assert sorted(without - set(UNTESTED)) == [], "write the test, or give a reason in tests/style/exceptions.py"
    assert sorted(set(UNTESTED) - without) == [], "these have a test now, or are gone: take them off the list"
