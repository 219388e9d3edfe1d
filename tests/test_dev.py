"""``./dev`` sets up what is missing, and loses nothing that worked.

Here: its virtual environment. Not here: the verbs, which are tools/.
Invariant: it runs in a copy of a checkout, with nothing from a registry.
"""

import os
import runpy
import shutil
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

DEV = Path(__file__).parents[1] / "dev"
PROJECT = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
BACKEND = """\
from pathlib import Path
from zipfile import ZipFile

def build_editable(folder, *_):
    name = "podgate-0-py3-none-any.whl"
    with ZipFile(Path(folder) / name, "w") as wheel:
        wheel.writestr("podgate.py", "")
        wheel.writestr("podgate-0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: podgate\\nVersion: 0\\n")
        wheel.writestr("podgate-0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("podgate-0.dist-info/RECORD", "")
    return name
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Give a checkout whose environment was made from other requirements."""
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "dev.txt").write_text("")
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "backend.py").write_text(BACKEND)
    shutil.copy(DEV, tmp_path)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / ".venv"], check=True)
    (tmp_path / ".venv" / "old").touch()
    return tmp_path


def setup(checkout: Path) -> int:
    """Run ``./dev setup`` as somebody who activated the environment."""
    path = f"{checkout / '.venv' / 'bin'}:{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path, "PIP_NO_INDEX": "1"}
    return subprocess.run([checkout / "dev", "setup"], env=environ, capture_output=True, check=False).returncode


def imports_podgate(checkout: Path) -> bool:
    command = [str(checkout / ".venv" / "bin" / "python"), "-c", "import podgate"]
    return subprocess.run(command, cwd="/", capture_output=True, check=False).returncode == 0


@pytest.mark.slow
def test_the_environment_that_it_runs_in_is_made_anew(checkout: Path) -> None:
    assert setup(checkout) == 0
    assert imports_podgate(checkout)
    assert not (checkout / ".venv" / "old").exists()
    assert not (checkout / ".venv.old").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["dev", "dmo"], 'did you mean "demo"?'),
        (["dev", "clutser", "up"], 'did you mean "cluster"?'),
        (["-m", "tools.demo", "metdata"], 'did you mean "metadata"?'),
        (["-m", "tools.cluster", "dwon"], 'did you mean "down"?'),
    ],
)
def test_a_mistyped_word_gets_a_hint(words: list[str], said: str) -> None:
    done = subprocess.run([sys.executable, *words], cwd=DEV.parent, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr.splitlines()[0]
    assert len(done.stderr.splitlines()) == 2


def test_alone_it_shows_its_help() -> None:
    done = subprocess.run([sys.executable, DEV], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "")
    assert "a live walk-through" in done.stdout


def replacing(folder: Path) -> AbstractContextManager[None]:
    """Give the part of ``./dev`` that replaces a folder, without running any verb."""
    made: AbstractContextManager[None] = runpy.run_path(str(DEV), run_name="dev")["replacing"](folder)
    return made


def test_the_old_environment_comes_back_when_no_new_one_can_be_made(tmp_path: Path) -> None:
    folder = tmp_path / ".venv"
    (folder / "old").mkdir(parents=True)

    def fail() -> None:
        with replacing(folder):
            assert not folder.exists()
            (folder / "new").mkdir(parents=True)
            sys.exit(1)  # as when pip fails

    with pytest.raises(SystemExit):
        fail()
    assert [path.name for path in folder.iterdir()] == ["old"]
    assert [path.name for path in tmp_path.iterdir()] == [".venv"]


def test_what_was_half_made_when_it_was_killed_is_never_taken_for_the_old_one(tmp_path: Path) -> None:
    folder = tmp_path / ".venv"
    (tmp_path / ".venv.old" / "old").mkdir(parents=True)
    (folder / "half").mkdir(parents=True)
    with pytest.raises(KeyboardInterrupt), replacing(folder):
        raise KeyboardInterrupt
    assert [path.name for path in folder.iterdir()] == ["old"]
