"""A lab for tests: started from manifests, asked by its own command line, gone whatever happens.

Here: starting, asking, ending. Not here: what a test wants to see.
Invariant: the lab dies with the thread that started it (PR_SET_PDEATHSIG), so a killed test run leaves nothing running.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.poll import poll

CLI = (sys.executable, "-m", "podgate.lab.cli")
PATIENCE = ("--timeout", "120")
"""What a lab may take on a busy machine to become ready."""


class TestLab:
    """A lab that runs.

    Attributes:
        name: as ``--name`` takes it.
        base: what ``PODGATE_LAB_DIR`` says.
    """

    __test__ = False

    def __init__(self, name: str, base: Path, process: "subprocess.Popen[str]") -> None:
        self.name = name
        self.base = base
        self.process = process

    @property
    def state(self) -> Path:
        return self.base / self.name

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PODGATE_LAB_DIR": str(self.base)}

    def run(self, verb: str, *words: str, text: str = "", check: bool = True) -> "subprocess.CompletedProcess[str]":
        """Run a verb of the lab's command line."""
        done = subprocess.run(
            [*CLI, verb, "--name", self.name, *words],
            input=text,
            capture_output=True,
            text=True,
            env=self.environment,
            timeout=150,
            check=False,
        )
        if check and done.returncode != 0:
            raise AssertionError(
                f"lab {verb} {' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
            )
        return done

    def execute(self, target: str, *words: str, check: bool = True) -> str:
        """Run a command in a container or on a node, and give its output."""
        return self.run("exec", target, "--", *words, check=check).stdout

    def shell(self, target: str, script: str, *, check: bool = True) -> str:
        """Run a line of shell in a container or on a node, and give its output."""
        return self.execute(target, "sh", "-c", script, check=check)

    def source_seen(self, target: str, url: str) -> str:
        """Ask an echo server from a container or a node, and give the address that it saw."""
        said: dict[str, str] = json.loads(self.execute(target, "curl", "-sm30", url))
        return said["source"]

    def metadata(self, target: str, url: str) -> str:
        """Ask GCE's metadata server from a container, and give its answer, or ``failed N`` with curl's exit code."""
        return self.shell(target, f"curl -sm30 -H 'Metadata-Flavor: Google' '{url}' || echo failed $?")

    def apply(self, *manifests: str, wait: bool = True) -> str:
        """Apply manifests given as text."""
        with tempfile.TemporaryDirectory() as folder:
            for number, text in enumerate(manifests):
                Path(folder, f"{number:03}.yaml").write_text(text)
            return self.run("apply", "-f", folder, *(["--wait", *PATIENCE] if wait else [])).stdout

    def get(self, kind: str, name: str, namespace: str = "default") -> dict[str, Any]:
        """Give an object."""
        found: dict[str, Any] = json.loads(self.run("get", kind, name, "-n", namespace, "-o", "json").stdout)
        return found

    def list(self, kind: str) -> list[dict[str, Any]]:
        """Give all objects of a kind."""
        found: list[dict[str, Any]] = json.loads(self.run("get", kind, "-o", "json").stdout)["items"]
        return found

    def status(self) -> dict[str, Any]:
        """Give what ``lab status`` says."""
        found: dict[str, Any] = json.loads(self.run("status", "--output", "json").stdout)
        return found

    def logs(self, target: str, *words: str) -> str:
        """Give a container's output."""
        return self.run("logs", target, *words).stdout


@contextmanager
def lab(
    *manifests: str | Path,
    name: str = "test",
    base: Path | None = None,
    kubeconfig: Path | None = None,
    limits: bool = False,
    under: Sequence[str] = (),
) -> Iterator[TestLab]:
    """Start a lab from manifests (text, or a path of a file or folder), and end it.

    It is ready when the body begins. With ``kubeconfig`` it joins a cluster; with ``limits`` it has cgroups; ``under``
    are the words of a program that starts it.
    """
    root = base or Path(tempfile.mkdtemp(prefix="pg-lab-"))
    folder = Path(tempfile.mkdtemp(prefix="pg-manifests-"))
    process: subprocess.Popen[str] | None = None
    try:
        paths = [*_written(manifests, folder)]
        more = [*(["--kubeconfig", str(kubeconfig)] if kubeconfig else []), *(["--limits"] if limits else [])]
        errors = folder / "stderr"
        with errors.open("w") as stream:
            process = subprocess.Popen(
                [
                    "setpriv",
                    "--pdeathsig",
                    "KILL",
                    *under,
                    *CLI,
                    "up",
                    "--foreground",
                    *PATIENCE,
                    "--name",
                    name,
                    *more,
                    *paths,
                ],
                env={**os.environ, "PODGATE_LAB_DIR": str(root)},
                stdout=stream,
                stderr=stream,
                text=True,
            )
        poll(lambda: f"lab {name}: ready" in errors.read_text() or process.poll() is not None, timeout=150)
        if process.poll() is not None or "not ready after" in errors.read_text():
            raise AssertionError(f"the lab did not become ready:\n{errors.read_text()}")
        yield TestLab(name, root, process)
    finally:
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(folder, ignore_errors=True)
        if base is None:
            shutil.rmtree(root, ignore_errors=True)


def _written(manifests: Sequence[str | Path], folder: Path) -> Iterator[str]:
    for number, manifest in enumerate(manifests):
        if isinstance(manifest, Path):
            yield str(manifest)
        else:
            path = folder / f"{number:03}.yaml"
            path.write_text(manifest)
            yield str(path)


NODE = """\
apiVersion: v1
kind: Node
metadata: {name: node-1, annotations: {lab.podgate.dev/prefix-length: "20"}}
spec: {podCIDRs: [10.16.1.0/24]}
status: {addresses: [{type: InternalIP, address: 10.140.15.217}]}
"""
"""A node, for tests that need any."""
