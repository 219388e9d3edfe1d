"""Runs the commands that README and docs show, page by page, and compares what they print.

Here: which pages, and where their commands run. Not here: reading pages (tests/support/console.py), `./dev demo`
(tests/lab/test_demo.py).
Invariant: nothing that a page starts outlives its test, and nothing reaches the machine's own network namespace.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.support.console import commands

pytestmark = pytest.mark.kernel  # each command runs in a network namespace of its own

ROOT: Final = Path(__file__).resolve().parent.parent.parent
ON_A_CLUSTER: Final = ("install.md",)
"""Pages whose commands need an API: tests/cluster/test_install_guide.py."""

PAGES: Final = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if page.name not in ON_A_CLUSTER and commands(page)
]
MEANT_TO_FAIL: Final = (
    "tests/docs/bad-config",
    *(f"{name} {verb}" for name in ("masquerade", "services") for verb in ("check", "plan")),
)
"""What is in a command whose exit code says something; all others must give 0."""


def test_a_set_of_addons_is_never_shown_without_a_mode() -> None:
    """Manifests of deploy/ have a label or not; what has none is left alone without ``--mode``."""
    told = [text for page in (ROOT / "docs").rglob("*.md") for text in _reconciles(page)]
    assert len(told) > 5
    assert [text for text in told if "--mode " not in text and "--allow-empty" not in text] == []


def _reconciles(page: Path) -> list[str]:
    return [command.text for command in commands(page) if "podgate addon reconcile" in command.text]


def shown(page: Path) -> object:
    """Give a page as a parameter; only README is looked at after every edit."""
    name = str(page.relative_to(ROOT))
    return pytest.param(name, marks=() if name == "README.md" else pytest.mark.slow)


@pytest.mark.parametrize("page", [*map(shown, PAGES)])
def test_shown_commands_print_what_the_page_says(page: str, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin:/sbin",
        "TMPDIR": str(tmp_path),
        "PODGATE_LAB_DIR": str(tmp_path / "labs"),
    }

    def run(text: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["unshare", "--net", "bash", "-c", text],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=280,
            check=False,
        )

    try:
        for command in commands(ROOT / page):
            done = run(command.text.removeprefix(".venv/bin/"))
            place = f"{page}:{command.line}: {command.text}"
            assert command.shown_by(done.stdout), f"{place}\nprints\n{done.stdout}"
            assert done.returncode == 0 or any(part in command.text for part in MEANT_TO_FAIL), (
                f"{place}\n{done.stdout}"
            )
    finally:
        for lock in (tmp_path / "labs").glob("*.lock"):
            run(f"podgate lab down --name {lock.stem}")


def test_pages_show_commands() -> None:
    assert {page.name for page in PAGES} >= {"README.md", "masquerade.md", "services.md", "lab.md"}
