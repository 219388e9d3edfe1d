"""Programs: the version in what they say, and everything that is no answer.

Here: scripts that answer as the real programs do. Not here: when they are asked (tests/sources/test_machine.py).
Invariant: no answer of a program raises.
"""

from pathlib import Path

import pytest

from podgate.linux.tools import tool_version


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        ("echo 'nftables v1.0.6 (Lester Gooch #5)'", "1.0.6"),
        ("echo 'iptables v1.8.9 (nf_tables)'", "1.8.9"),
        ("echo 'conntrack v1.4.7 (conntrack-tools)'", "1.4.7"),
        ("echo 'no number'", None),
        ("echo v1.2.3; exit 1", None),
        ("printf '\\377 v1.2\\n'", "1.2"),
    ],
)
def test_versions(tmp_path: Path, answer: str, version: str | None) -> None:
    script = tmp_path / "tool"
    script.write_text(f"#!/bin/sh\n{answer}\n")
    script.chmod(0o755)
    assert tool_version(str(script)) == version


def test_a_file_that_is_no_program_has_no_version(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\necho v1.2.3\n")
    assert tool_version(str(tmp_path / "tool")) is None


def test_a_program_that_is_not_there_has_no_version() -> None:
    assert tool_version("no-such-program") is None
    assert tool_version("nul\0") is None
