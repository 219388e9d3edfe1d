"""The command line closes what it opens, so that whoever calls it in a process of their own keeps nothing open."""

import gc
from pathlib import Path

import pytest

from tests.support.netns import netns
from tests.test_cli import run


@pytest.mark.kernel
@pytest.mark.parametrize("verb", ["plan", "clean"])
def test_what_a_verb_opens_towards_the_kernel_it_closes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, verb: str
) -> None:
    (tmp_path / "node.yaml").write_text("apiVersion: v1\nkind: Node\nmetadata:\n  name: node-1\n")
    source = ("--source", str(tmp_path), "--node-name", "node-1") if verb == "plan" else ()

    def opened() -> set[str]:
        """Give what is open, and was not before."""
        gc.collect()
        gc.disable()  # which would close what nobody can reach any more
        try:
            before = {each.name for each in Path("/proc/self/fd").iterdir()}
            assert run(capsys, "services", verb, *source)[0] == (1 if verb == "plan" else 0)
            return {each.name for each in Path("/proc/self/fd").iterdir()} - before
        finally:
            gc.enable()

    with netns() as namespace:
        assert namespace.call(opened) == set()
