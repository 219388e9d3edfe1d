"""Each family is a step of its own: one that fails blocks neither the other nor the news that it failed.

The program nft is one that refuses every text about IPv6, as a kernel without IPv6 tables does.
"""

import os
import shutil
from pathlib import Path

import pytest

from tests.support.agent import DEFAULTS, TABLE, elements, podgate, running, started
from tests.support.netns import NetNamespace
from tests.support.poll import poll

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

IPV6 = ("--enable-ipv6",)


@pytest.fixture
def without_ipv6(tmp_path: Path) -> dict[str, str]:
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "nft"
    program.write_text(
        "#!/bin/sh\n"
        'text=$(cat)\ncase "$text" in *"table ip6"*) echo "Error: Could not process rule: Not supported" >&2; exit 1;; '
        f'esac\nprintf "%s\\n" "$text" | exec {shutil.which("nft")} "$@"\n'
    )
    program.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def tables(node: NetNamespace) -> set[str]:
    return {line.removeprefix("table ") for line in node.run("nft", "list", "tables").splitlines()}


def test_a_family_that_fails_blocks_nothing_and_is_told(
    node: NetNamespace, tmp_path: Path, without_ipv6: dict[str, str]
) -> None:
    with started(node, tmp_path, *IPV6, environ=without_ipv6) as agent:
        poll(lambda: elements(node) == DEFAULTS)
        poll(lambda: agent.get("/readyz")[0] == 503)
        poll(lambda: "nftables/ip6" in agent.get("/readyz")[1])
        poll(lambda: "Not supported" in agent.get("/healthz")[1])
        assert tables(node) == {f"ip {TABLE}"}
        assert agent.stop() == 0


def test_written_once_with_a_family_that_fails_is_exit_1(
    node: NetNamespace, tmp_path: Path, without_ipv6: dict[str, str]
) -> None:
    ended = podgate(
        *("masquerade", "run", "--once", *IPV6, "--state-dir", tmp_path / "state", "--node-name", "node-1"),
        namespace=node,
        environ=without_ipv6,
    )
    assert ended.code == 1
    assert elements(node) == DEFAULTS


def test_ipv6_that_is_switched_off_again_is_taken_away_and_clean_takes_both(node: NetNamespace, tmp_path: Path) -> None:
    both = {f"ip {TABLE}", f"ip6 {TABLE}"}
    with running(node, tmp_path, *IPV6):
        assert tables(node) == both
    assert tables(node) == both
    with running(node, tmp_path):
        assert tables(node) == {f"ip {TABLE}"}
    with running(node, tmp_path, *IPV6):
        assert tables(node) == both
    state = ("--state-dir", tmp_path / "state")
    assert podgate("masquerade", "clean", *state, namespace=node).code == 0
    assert tables(node) == set()
    assert podgate("masquerade", "clean", *state, namespace=node).code == 0
