"""Programs of this machine: which version of one is there.

Here: asking a program once. Not here: running it for work.
Invariant: a program that is missing, does not answer or answers something else has no version; nothing raises.
"""

import re
import subprocess
from typing import Final

_SECONDS: Final = 5.0
"""How long a program may take to say its version."""
_VERSION: Final = re.compile(r"\bv?(\d+(?:\.\d+)+[a-z]?)\b")


def tool_version(name: str) -> str | None:
    """Run ``NAME --version`` and give the version in its answer, as ``1.0.6``; None if there is no such program."""
    try:
        done = subprocess.run(
            [name, "--version"], stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return None
    found = _VERSION.search(done.stdout.decode(errors="replace")) if done.returncode == 0 else None
    return found[1] if found else None
