"""The page of exit codes: what each help says is what the page says, and the troubles of the page are met.

Here: every cell of its second table that has a code is walked, with the real command. Not here: what is said beside the
code (tests of each verb).
Invariant: a row or a column that nobody can walk fails here, so the page has none.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from podgate import cli
from podgate.commandline.guidance import GUIDES, OLD_NAMES
from podgate.sources import origin
from tests.support.agent import OF_SHELLS, podgate, running
from tests.support.doctor import OWN
from tests.support.fake_addons import KINDS, manifest
from tests.support.fake_apiserver import FakeApiServer
from tests.support.kubeconfigs import kubeconfig
from tests.support.netns import netns

PAGE: Final = Path(__file__).parents[1] / "docs/guide/exit-codes.md"
NOBODY: Final = ("setpriv", "--bounding-set", "-all", "--inh-caps", "-all")
ASKED: Final = {
    "masquerade explain": ("10.70.0.2",),
    "metadata explain": ("-H", "Metadata-Flavor: Google", "/computeMetadata/v1/instance/zone"),
    "services explain": ("10.96.0.10:53/udp",),
}


def tables() -> Iterator[list[list[str]]]:
    """Give the cells of each table of the page, its head first."""
    for block in re.findall(r"(?:^\|.*\|\n)+", PAGE.read_text(), re.MULTILINE):
        rows = [[cell.strip() for cell in line.strip()[1:-1].split("|")] for line in block.splitlines()]
        yield [rows[0], *rows[2:]]


CODES, TROUBLES = tables()


def names_in(cell: str) -> Iterator[str]:
    """Give the verbs of a cell; FEATURE stands for all."""
    for name in re.findall(r"`([^`]+)`", cell):
        yield from ((name.replace("FEATURE", each) for each in cli.FEATURES) if "FEATURE" in name else (name,))


def test_the_page_has_the_codes_of_each_help() -> None:
    page: dict[str, dict[int, str]] = {}
    for row in CODES[1:]:
        for name in names_in(row[0]):
            page[name] = {code: cell for code, cell in enumerate(row[1:]) if cell}
    helps = {name: dict(guide.codes) for name, guide in {**GUIDES, **OLD_NAMES}.items() if guide.codes}
    assert page == helps


# --- what a trouble is to a verb --------------------------------------------------------------------------------------

Fails = Callable[[FakeApiServer], None]


class Everything(set[tuple[str, str]]):
    """All that may be forbidden."""

    def __contains__(self, _pair: object) -> bool:
        return True


def refuse(server: FakeApiServer) -> None:
    server.tokens = {"another"}


def forbid(server: FakeApiServer) -> None:
    server.forbidden = Everything()


def bad_input(verb: str, folder: Path) -> list[str]:
    """Give the words that lead to input that is wrong."""
    folder.mkdir()
    if verb.startswith("masquerade"):
        (folder / "list").write_text("nonMasqueradeCIDRs: [10.0.0.0/33]\n")
        return ["--config", str(folder / "list")]
    if verb.startswith("metadata"):
        (folder / "rules.json").write_text("{")
        return ["--policy", str(folder / "rules.json")]
    if verb.startswith("addon"):
        (folder / "bad.yaml").write_text("kind: [\n")
        return [str(folder)]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"ports": [{"port": 0}]}}
    (folder / "service.json").write_text(json.dumps(service))
    (folder / "bad.yaml").write_text("kind: [\n")
    return ["--source", str(folder)]


def words_of(row: str, folder: Path) -> list[str]:
    """Give the words of a row, completed by what its verb asks for, without a source."""
    words = [*row.split(), *ASKED.get(row, ())]
    if words[:2] == ["addon", "reconcile"]:
        (folder / "set").mkdir(exist_ok=True)
        (folder / "set" / "a.json").write_text(json.dumps(manifest("ConfigMap", "a")))
        words[2:2] = [str(folder / "set")]
        words += ["--timeout", "1"]
    return words


def with_api(words: list[str], folder: Path, fails: Fails) -> int:
    """Run in this process with the API of a fake server."""

    async def go() -> int:
        async with FakeApiServer(*dict.fromkeys((*KINDS, *OWN))).serving() as server:
            fails(server)
            return await asyncio.to_thread(cli.main, [*words, "--kubeconfig", kubeconfig(folder, server.url)])

    return asyncio.run(go())


def walked(row: str, trouble: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Meet a trouble that needs no kernel, and give the code."""
    monkeypatch.setattr(origin, "LISTING_SECONDS", 20.0 if trouble == "the login may see nothing" else 0.3)
    words = words_of(row, folder)
    match trouble:
        case "bad input" if row.startswith("addon"):
            words[2] = bad_input(row, folder / "bad")[0]
            return with_api(words, folder, lambda _server: None)
        case "bad input":
            return cli.main([*words, *bad_input(row, folder / "bad")])
        case "no API":
            return cli.main([*words, "--kubeconfig", kubeconfig(folder, "http://127.0.0.1:1")])
        case "the API refuses the login":
            return with_api(words, folder, refuse)
        case "the login may see nothing":
            return with_api(words, folder, forbid)
    raise AssertionError(f"nobody can walk {row}: {trouble}")


KERNEL: Final = ("no right to the kernel's rules", "an agent runs here")
CELLS: Final = [
    (row[0].strip("`"), trouble, cell)
    for row in TROUBLES[1:]
    for trouble, cell in zip(TROUBLES[0][1:], row[1:], strict=True)
    if re.match(r"\d", cell)
]


@pytest.mark.parametrize(
    ("row", "trouble", "codes"),
    [each for each in CELLS if each[1] not in KERNEL and "--once" not in each[0].partition("masquerade")[2]],
)
@pytest.mark.usefixtures("capsys")
def test_a_trouble_is_to_a_verb_what_the_page_says(
    row: str, trouble: str, codes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in OF_SHELLS:
        monkeypatch.delenv(name, raising=False)
    assert str(walked(row, trouble, tmp_path, monkeypatch)) in codes.split(" or ")


@pytest.mark.slow
@pytest.mark.kernel
def test_without_rights_and_beside_an_agent_a_verb_ends_as_the_page_says(tmp_path: Path) -> None:
    cells = [each for each in CELLS if each[1] in KERNEL]
    state = ("--state-dir", str(tmp_path / "state"))
    wrong: list[Any] = []

    def see(row: str, trouble: str, codes: str, **how: Any) -> None:
        more = state if row.split()[1] in ("run", "plan", "clean") else ()
        code = podgate(*words_of(row, tmp_path), *more, **how).code
        if str(code) not in codes.split(" or "):
            wrong.append((row, trouble, codes, code))

    with netns() as node:
        for row, trouble, codes in cells:
            if trouble == KERNEL[0]:
                see(row, trouble, codes, namespace=node, under=NOBODY)
        with running(node, tmp_path):
            for row, trouble, codes in cells:
                if trouble == KERNEL[1]:
                    see(row, trouble, codes, namespace=node)
    assert wrong == []
