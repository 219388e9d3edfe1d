"""Process 1 of a lab: reaps what nobody else waits for, forwards SIGTERM, and ends everything by ending.

Here: the namespaces, the daemon as a child, the loop. Not here: anything that could fail later.
Invariant: when this process ends, the kernel ends every process, namespace, link and mount of the lab.

The starter has put it into a fresh PID namespace and passed the lock: it is held for as long as this process lives.
"""

import os
import signal
import sys

from podgate.lab.mounts import make_private
from podgate.lab.places import Places
from podgate.linux.namespaces import (
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWUTS,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    mount,
    open_namespace,
    unshare,
)
from podgate.linux.processes import die_with_parent


def main(arguments: list[str]) -> int:
    """Run the lab: BASE NAME READY LOCK (descriptors), and words.

    ``attached``: it shall die with whoever started it. ``limits``: resources.limits are enforced.
    """
    base, name, ready, lock, *words = arguments
    for descriptor in (ready, lock):
        os.set_inheritable(int(descriptor), False)  # This process and the daemon have them; no container does.
    if "attached" in words:
        die_with_parent()
    machine = open_namespace("net")
    unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWUTS)
    make_private()
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    daemon = os.fork()
    if daemon == 0:
        from podgate.lab.daemon import main as run  # noqa: PLC0415 - process 1 stays small

        os._exit(_flushed(run(Places(base, name), int(ready), machine, limits="limits" in words)))
    os.close(int(ready))
    os.close(machine)
    signal.signal(signal.SIGTERM, lambda number, _frame: os.kill(daemon, number))
    while True:
        ended, status = os.wait()
        if ended == daemon:
            return os.waitstatus_to_exitcode(status) & 0xFF


def _flushed(code: int) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
