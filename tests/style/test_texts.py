"""What no file of the repository may hold, whatever its kind, and what the shared pages must say.

Here: machine paths, line ends, the layers' one wording, the changelog's form. Not here: Python (test_code.py).
Invariant: a rule looks at every file, so that a new folder is not forgotten.
"""

import configparser
import re
import tomllib

from tests.style.reading import ROOT, files, name

_BELOW_ROOT = "|".join(("wo" + "rk/", r"home/\w+/", r"Users/\w", "ro" + "ot/"))
MACHINE_PATHS = re.compile(rf"(?<![\w.~-])/({_BELOW_ROOT})|\.libra" + r"ry/")
BINARY = {".png", ".gif", ".ico", ".gz", ".pcap"}


def texts() -> dict[str, str]:
    return {name(path): path.read_text(encoding="utf-8") for path in files() if path.suffix not in BINARY}


def test_machine_paths_are_recognised() -> None:
    for path in ("work/main", "home/me/x", "root/x"):
        assert all(MACHINE_PATHS.search(text) for text in (f"/{path}", f"x=/{path}", f"'/{path}'"))
    for path in ("docs/work", "/var/lib/podgate", "/workdir", "/home"):
        assert not MACHINE_PATHS.search(path)


def test_no_file_names_a_path_of_one_machine() -> None:
    assert [path for path, text in texts().items() if MACHINE_PATHS.search(text)] == []


def test_files_end_with_one_newline_and_use_no_carriage_returns() -> None:
    exempt = re.compile(r"^(tests/.*/(cases|files)/|src/.*/py\.typed$)")
    bad = [
        path
        for path, text in texts().items()
        if not exempt.match(path) and text and ("\r" in text or not text.endswith("\n") or text.endswith("\n\n"))
    ]
    assert bad == []


def test_the_layers_are_named_in_one_wording() -> None:
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    layers = contracts["importlinter:contract:layers"]["name"].removeprefix("Layers: ")
    for page in ("docs/architecture.md", "CONTRIBUTING.md"):
        assert layers in (ROOT / page).read_text().replace("`", ""), page


def test_the_changelog_has_a_section_for_the_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    heading = rf"^## \[{re.escape(version)}\] - (unreleased|\d{{4}}-\d\d-\d\d)$"
    assert re.search(heading, (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_decisions_are_numbered_without_gaps_and_have_their_parts() -> None:
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert [page.name[:5] for page in pages] == [f"{number:04}-" for number in range(1, len(pages) + 1)]
    assert pages
    for page in pages:
        headings = re.findall(r"^## (.*)$", page.read_text(), re.MULTILINE)
        assert headings == ["Context", "Decision", "Consequences"], page.name


def test_links_between_pages_lead_somewhere() -> None:
    dead = [
        f"{name(path)}: {link}"
        for path in files()
        if path.suffix == ".md"
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text())
        if not link.startswith(("http://", "https://")) and not (path.parent / link).exists()
    ]
    assert dead == []


def mapped_paths(page: str) -> list[str]:
    """Give the paths of the first indented tree in a page: names by indentation, several files of one line apart."""
    (block,) = re.findall(r"^```\n(src/.*?)^```$", page, re.MULTILINE | re.DOTALL)
    found: list[str] = []
    parents: list[tuple[int, str]] = []
    for line in block.splitlines():
        depth = len(line) - len(line.lstrip())
        while parents and parents[-1][0] >= depth:
            parents.pop()
        above = parents[-1][1] if parents else ""
        names = [above + word for word in line.split("  ")[depth // 2 :][0].split()]
        found += names
        if names[-1].endswith("/"):
            parents.append((depth, names[-1]))
    return found


def test_a_tree_is_read_by_its_indentation() -> None:
    page = "```\nsrc/p/   root\n  a.py b.py  two\n  c/      folder\n    d.py\ntests/  other\n```\n"
    assert mapped_paths(page) == ["src/p/", "src/p/a.py", "src/p/b.py", "src/p/c/", "src/p/c/d.py", "tests/"]


def test_the_architectures_map_is_the_tree() -> None:
    paths = mapped_paths((ROOT / "docs" / "architecture.md").read_text())
    assert [path for path in paths if not (ROOT / path).exists()] == []
    rooms = {path.name for path in (ROOT / "src" / "podgate").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert {path.split("/")[2] for path in paths if path.startswith("src/podgate/") and path.count("/") > 2} >= rooms
