"""Pure modules do no I/O, and read no clock, randomness or environment, not even through what they import.

Here: the rule over the import graph, and over calls that need no import; and that imports make no circle, those for
types alone included. Not here: layers (.importlinter).
Invariant: a new module of a pure folder is pure without being listed, and so is one that says "Pure." of itself.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

from tests.style.reading import ROOT, name, python_files, tree

IMPURE_FEATURE_FILES = {"feature", "server", "watcher", "untaint", "dropin"}
PURE_TARGET_FILES = {"state", "render", "diff"}
PURE_LAB = {"network", "rootfs", "pods", "controllers"}
# Not pathlib, whose PurePath does nothing: a call of Path is found below.
EFFECTS = {
    *("asyncio", "concurrent", "fcntl", "http", "inotify_simple", "io", "logging", "multiprocessing", "os"),
    *("random", "secrets", "select", "selectors", "shutil", "signal", "socket", "socketserver", "ssl", "subprocess"),
    *("sys", "tempfile", "threading", "time", "urllib", "uuid"),
}
CALLS = re.compile(r"^(Path\b.*|open|print|input|exec|eval|__import__)$|\.(now|today|utcnow)$")


def is_pure(module: str) -> bool:
    """Say what docs/architecture.md says of a module."""
    match module.split(".")[1:]:
        case ["model" | "commandline", *_] | ["joints"] | ["engine", "pacing"]:
            return True
        case ["features", _, name, *_]:
            return name not in IMPURE_FEATURE_FILES
        case ["targets", _, name, *_]:
            return name in PURE_TARGET_FILES
        case ["lab", name, *_]:
            return name in PURE_LAB
    return False


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")


def says_it_is_pure(module: ast.Module) -> bool:
    return bool(re.search(r"(^|\. |\n)Pure[.:]", ast.get_docstring(module) or ""))


def pure_files() -> dict[str, Path]:
    """Give the pure modules, by the rule and by what they say."""
    modules = {module_of(path): path for path in python_files("src")}
    return {module: path for module, path in modules.items() if is_pure(module) or says_it_is_pure(tree(path))}


def effects_reached(graph: grimp.ImportGraph, pure: Iterable[str]) -> Iterator[str]:
    for module in sorted(pure):
        if module in graph.modules:
            for effect in sorted(EFFECTS & graph.modules):
                chain = graph.find_shortest_chain(importer=module, imported=effect)
                if chain:
                    yield " -> ".join(chain)


def effects_called(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and CALLS.search(ast.unparse(node.func)):
            yield f"line {node.lineno}: {ast.unparse(node.func)}"


def circle(graph: grimp.ImportGraph) -> str:
    """Give modules of a circle, each imported by the next one; empty where there is none."""
    sorter = TopologicalSorter({each: graph.find_modules_directly_imported_by(each) for each in sorted(graph.modules)})
    try:
        sorter.prepare()
    except CycleError as error:
        return " -> ".join(error.args[1])
    return ""


PURE = {
    "podgate.model.table": True,
    "podgate.model.kinds.pods": True,
    "podgate.joints": True,
    "podgate.engine.pacing": True,
    "podgate.engine.host": False,
    "podgate.features.masquerade.compile": True,
    "podgate.features.masquerade.prefixes": True,
    "podgate.features.masquerade.feature": False,
    "podgate.features.masquerade.dropin": False,
    "podgate.targets.nftables.diff": True,
    "podgate.targets.nftables.apply": False,
    "podgate.lab.controllers.daemonsets": True,
    "podgate.lab.daemon": False,
    "podgate.observe.logs": False,
}


@pytest.mark.parametrize(("module", "pure"), PURE.items())
def test_which_modules_are_pure(module: str, pure: bool) -> None:
    assert is_pure(module) is pure


def test_an_import_through_another_module_is_found() -> None:
    graph = grimp.ImportGraph()
    graph.add_import(importer="podgate.model.a", imported="podgate.linux.b")
    graph.add_import(importer="podgate.linux.b", imported="socket")
    assert list(effects_reached(graph, ["podgate.model.a"])) == ["podgate.model.a -> podgate.linux.b -> socket"]


def test_what_says_that_it_is_pure_is_held_to_it() -> None:
    assert {"podgate.model.table", "podgate.sources.settling", "podgate.joints"} <= pure_files().keys()
    assert "podgate.engine.host" not in pure_files()


def test_calls_that_need_no_import_are_found() -> None:
    code = "x = datetime.now(UTC)\nopen('f')\ny.open()\nprint(1)\nPath.home()\nPurePath(1)\n"
    found = [call.rpartition(" ")[2] for call in effects_called(ast.parse(code))]
    assert found == ["datetime.now", "open", "print", "Path.home"]


def test_pure_modules_reach_nothing_that_has_an_effect() -> None:
    graph = grimp.build_graph("podgate", include_external_packages=True, cache_dir=None)
    assert {"asyncio", "socket"} <= graph.modules
    assert list(effects_reached(graph, pure_files())) == []


def test_pure_modules_call_nothing_that_has_an_effect() -> None:
    found = {name(path): calls for path in pure_files().values() if (calls := list(effects_called(tree(path))))}
    assert found == {}


def test_a_circle_is_found() -> None:
    graph = grimp.ImportGraph()
    graph.add_import(importer="podgate.a", imported="podgate.b")
    graph.add_import(importer="podgate.b", imported="podgate.c")
    assert circle(graph) == ""
    graph.add_import(importer="podgate.c", imported="podgate.b")
    assert circle(graph) in {"podgate.b -> podgate.c -> podgate.b", "podgate.c -> podgate.b -> podgate.c"}


def test_imports_make_no_circle() -> None:
    assert circle(grimp.build_graph("podgate", cache_dir=None)) == ""


def test_the_layers_hold() -> None:
    linter = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache"]
    done = subprocess.run(linter, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
