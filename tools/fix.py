"""``./dev fix``: what can be put right by machine.

Here: the formatter and the linter's safe fixes. Not here: checks (tools/check.py).
Invariant: only safe fixes.
"""

import subprocess
import sys
from pathlib import Path

from tools.stages import ROOT

if __name__ == "__main__":
    ruff = Path(sys.executable).parent / "ruff"
    subprocess.run([ruff, "check", "--fix", "--quiet", "."], cwd=ROOT, check=False)
    sys.exit(subprocess.run([ruff, "format", "--quiet", "."], cwd=ROOT, check=False).returncode)
