"""``./dev fuzz NAME [EXAMPLES]``: property tests with many random examples, until one fails or they are through.

    ./dev fuzz services-peer [SECONDS] [--seed N]

searches beside the real kube-proxy instead, for as long as it is told.

Here: which tests belong to a name, and which search comes after them. Not here: the properties themselves; they are
the ones that ``./dev test`` runs with few and always the same examples.
Invariant: a failing example is printed so that it can become a case.
"""

import os
import subprocess
import sys

from tools.stages import ROOT, python

NAMES = {
    "documents": ("tests/model/test_documents.py", "tests/model/test_fieldpath.py"),
    "engine": ("tests/engine", "tests/model/test_table.py"),
    "lab": ("tests/lab/controllers", "tests/lab/test_validity.py"),
    "masquerade": ("tests/features/masquerade",),
    "metadata": tuple(f"tests/features/metadata/test_{name}.py" for name in ("globs", "head", "oracle", "target")),
    "nftables": ("tests/targets/nftables",),
    "pages": ("tests/observe",),
    "services": ("tests/features/services", "tests/targets/iptables", "tests/linux/test_nftables_elements.py"),
    "sources": ("tests/sources",),
}

SEARCHES = {"metadata": ("tests.fuzz.metadata_filter", 50)}
"""Name to a program that searches by itself, guided by what it reaches, and the inputs it tries per example."""

PEERS = {"services-peer": "tests.fuzz.services_peer"}
"""Name to a program that compares with another one while both run; it reads its own arguments."""


def main(arguments: list[str]) -> int:
    """Search; give the exit code of what failed, or 0."""
    if arguments and arguments[0] in PEERS:
        return subprocess.run(python("-m", PEERS[arguments[0]], *arguments[1:]), cwd=ROOT, check=False).returncode
    if not arguments or arguments[0] not in NAMES:
        names = f"NAME one of: {', '.join(NAMES)}; ./dev fuzz {' | '.join(PEERS)} [SECONDS] [--seed N]"
        print(f"usage: ./dev fuzz NAME [EXAMPLES], {names}", file=sys.stderr)
        return 2
    examples = arguments[1] if len(arguments) > 1 else "20000"
    environment = {**os.environ, "PODGATE_TEST_PROFILE": "fuzz", "PODGATE_FUZZ_EXAMPLES": examples}
    command = python("-m", "pytest", "-n", "2", "--timeout", "0", "-m", "not lab", *NAMES[arguments[0]])
    code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    if code == 0 and arguments[0] in SEARCHES:
        program, inputs = SEARCHES[arguments[0]]
        command = python("-m", program, str(int(examples) * inputs))
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
