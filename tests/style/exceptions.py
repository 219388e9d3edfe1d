"""What the house rules let through, each line with its reason.

Here: the lists. Not here: the rules (the tests beside this file).
Invariant: lists only shrink: an entry that is no longer needed fails the tests.
"""

from typing import Final

LONG_FILES: Final[dict[str, str]] = {}
"""Files of 400 lines and more."""

LONG_FUNCTIONS: Final[dict[str, str]] = {}
"""Functions of more than 60 lines, as ``path:name``."""

CATCH_ALL: Final[dict[str, str]] = {
    "tests/support/netns.py": "carries whatever a thread raised over to the test's thread, and raises it there",
}
"""Files that catch Exception or BaseException and do not simply raise it again."""

UNTESTED: Final[dict[str, str]] = {
    "src/podgate/model/files.py": "values only; read and watched in tests/sources",
    "src/podgate/features/metadata/server/proxy_side.py": "a protocol; mypy holds client.py and proxy.py to it",
    "src/podgate/lab/init.py": "process 1 of a lab: started, killed and orphaned in tests/lab/test_lab.py",
    "src/podgate/lab/kubeaccess.py": "a lab joins a real cluster: tests/cluster/test_joined_lab.py",
    "src/podgate/lab/kubejoin.py": "a lab joins a real cluster: tests/cluster/test_joined_lab.py",
    "src/podgate/lab/kubelogs.py": "a real API server reads logs: tests/cluster/test_joined_lab.py",
    "src/podgate/lab/kubemember.py": "a lab joins a real cluster: tests/cluster/test_joined_lab.py",
    "src/podgate/lab/kubenodes.py": "leases and tokens of a real cluster: tests/cluster/test_joined_lab.py",
    "src/podgate/lab/kuberelay.py": "a Pod reaches a real API server: tests/cluster/test_joined_lab.py",
    "src/podgate/lab/kubestore.py": "writes to a real API server: tests/cluster/test_joined_lab.py",
    "src/podgate/lab/kubeverbs.py": "every verb, on a real cluster: tests/cluster/test_joined_lab.py",
    "src/podgate/lab/stores.py": "a protocol; both stores have tests of their own",
    "src/podgate/lab/terminal.py": "needs a command on the other side: tests/lab/test_lab.py",
    "src/podgate/lab/workload.py": "the life of real containers: tests/lab/test_lab_containers.py",
}
"""Source files without a test file of their own name."""
