"""``./dev cluster up|down|status|build``: a Kubernetes control plane on this machine's loopback, without nodes.

Here: the verbs, and which processes are ours. Not here: certificates and command lines (tests/support/cluster.py),
building (tests/support/controlplane.py), nodes (podgate lab up --kubeconfig).
Invariant: ``down`` ends only processes that ``up`` started: the process id and the time at which it began must both be
those that were noted.
"""

import fcntl
import json
import os
import select
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.cluster import PARTS, ControlPlane
from tests.support.controlplane import PROGRAMS, BuildError, build, folder, missing, version
from tools.asking import Parser

BASE: Final = Path(os.environ.get("PODGATE_CLUSTER_DIR") or "/run/podgate-cluster")
_GRACE_MS: Final = 10_000


def began(pid: int) -> str:
    """Give when a process began, in clock ticks since boot (proc(5)); empty when there is none, or it has ended."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if words[0] in {"Z", "X"} else words[19]


def running() -> dict[str, int]:
    """Give the process ids of the parts that run."""
    try:
        noted: Mapping[str, tuple[int, str]] = json.loads((BASE / "processes.json").read_text())
    except FileNotFoundError:
        return {}
    return {part: pid for part, (pid, start) in noted.items() if start and began(pid) == start}


@contextmanager
def _alone() -> Iterator[None]:
    """Let one ``up`` or ``down`` work at a time."""
    BASE.parent.mkdir(parents=True, exist_ok=True)
    with BASE.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def up() -> int:
    """Start it, or say that it runs; prints the kubeconfig's path."""
    plane = started()
    print(f"Kubernetes {version()} at {plane.server}", file=sys.stderr)
    print(f"nodes for it: podgate lab up --kubeconfig {plane.kubeconfig} DIR", file=sys.stderr)
    print(plane.kubeconfig)
    return 0


def started() -> ControlPlane:
    """Give the control plane, started if it does not run."""
    programs = build()
    with _alone():
        plane = ControlPlane(BASE, programs, outlives=True)
        if len(running()) < len(PARTS):
            end(running())
            try:
                plane.start()
            finally:
                noted = {part: (process.pid, began(process.pid)) for part, process in plane.processes.items()}
                (BASE / "processes.json").write_text(json.dumps(noted))
        for process in plane.processes.values():
            process.returncode = 0  # They outlive this process on purpose.
    return plane


def end(parts: Mapping[str, int]) -> None:
    """End processes, the one that was started last first, and wait for each."""
    for part in reversed(PARTS):
        if part not in parts:
            continue
        with os.fdopen(os.pidfd_open(parts[part])) as process:
            # The descriptor is of the process that has the number now: look once more whether that is ours.
            if running().get(part) != parts[part]:
                continue
            signal.pidfd_send_signal(process.fileno(), signal.SIGTERM)
            waiting = select.poll()
            waiting.register(process.fileno(), select.POLLIN)
            if not waiting.poll(_GRACE_MS):
                signal.pidfd_send_signal(process.fileno(), signal.SIGKILL)
                waiting.poll(_GRACE_MS)


def down() -> int:
    """End it, and remove what it kept."""
    with _alone():
        end(running())
        shutil.rmtree(BASE, ignore_errors=True)
    print("control plane: ended", file=sys.stderr)
    return 0


def status() -> int:
    """Say what runs; exit 0 only when all of it does."""
    alive = running()
    lacking = missing()
    print(f"programs: {'missing: ' + ', '.join(lacking) if lacking else folder()}")
    for part in PARTS:
        print(f"{part}: {'process ' + str(alive[part]) if part in alive else 'does not run'}")
    if len(alive) < len(PARTS):
        print("start it with ./dev cluster up")
        return 1
    plane = ControlPlane(BASE, folder(), outlives=True)
    print(f"kubeconfig: {plane.kubeconfig}")
    print(f"API server: {'ready' if plane.ready() else 'not ready'}")
    return 0 if plane.ready() else 1


def main(arguments: list[str]) -> int:
    """Dispatch; give the exit code."""
    parser = Parser(prog="./dev cluster", description="A Kubernetes control plane on loopback.")
    parser.add_argument("verb", choices=["up", "down", "status", "build"])
    asked = parser.parse_args(arguments)
    try:
        if asked.verb == "build":
            build(tuple(PROGRAMS))
            return 0
        return {"up": up, "down": down, "status": status}[asked.verb]()
    except (BuildError, AssertionError) as error:
        print(f"./dev cluster: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
