"""``./dev soak`` of masquerade and services for a few seconds: the events happen, and what must hold does."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.figures.configuration import mark, text_of
from tests.style.reading import ROOT
from tests.support.netns import netns
from tests.support.poll import poll
from tests.support.service_flows import flow_lab
from tests.support.volume import MountedFile
from tools import soak_services
from tools.soak_masquerade import Node, World
from tools.soak_services_sources import FolderObjects
from tools.soaking import DidNotHoldError

pytestmark = [pytest.mark.kernel, pytest.mark.slow]


def test_a_short_soak_holds_and_shows_its_progress() -> None:
    command = [sys.executable, "-m", "tools.soak", "masquerade", "0.15", "--seed", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no difference" in done.stdout
    assert done.stdout.endswith("everything held\n")


def test_a_kernel_that_stays_wrong_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A soak that cannot fail would be no test: here the file is edited behind the back of what must hold."""
    volume = MountedFile(tmp_path / "volume", text_of([mark(0)]))
    with netns() as first, netns() as second:
        nodes = (Node("steady", first, volume, tmp_path), Node("mortal", second, volume, tmp_path))
        try:
            for node in nodes:
                node.agent.until_ready()
            world = World(tmp_path, nodes, volume, random.Random(1))
            world.check()
            volume.swap(text_of([mark(99)]))
            monkeypatch.setattr("tools.soak_masquerade.PATIENCE", 1.0)
            with pytest.raises(DidNotHoldError, match=r"(?s)steady: still different.*20\.0\.198\.0/24"):
                world.check()
        finally:
            for node in nodes:
                node.close()


def test_a_short_soak_of_services_holds(tmp_path: Path) -> None:
    """Without an API server, which takes longer to start than this takes."""
    assert soak_services.run(tmp_path, 4.0, random.Random(1), None) == []


def test_clients_that_fail_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.soak_services.PATIENCE", 1.0)
    objects = FolderObjects(tmp_path / "objects", soak_services.SERVED, random.Random(1))
    with flow_lab() as lab:
        node = soak_services.Node("one", "nftables", lab, objects, tmp_path)
        try:
            node.agent.until_ready()
            poll(node.clients.all_answered)
            node.agent.end()
            with pytest.raises(DidNotHoldError, match=r"one: not answered again.*10\.96\.1\.1:80/tcp: refused"):
                node.damage(("nft", "flush ruleset"))
        finally:
            node.close()
