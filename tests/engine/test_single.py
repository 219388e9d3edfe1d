"""The claim of one agent per feature and network namespace, held and freed by real processes."""

import os
import subprocess
import sys

import pytest

from podgate.engine.single import AlreadyRunningError, only_one

HOLD = """
import sys
from podgate.engine.single import only_one
with only_one(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


SQUAT = """
import socket, sys
with socket.socket(socket.AF_UNIX) as claim:
    claim.bind("\\0podgate-" + sys.argv[1])
    claim.listen()
    print("held", flush=True)
    sys.stdin.read()
"""


def anybodys_python() -> str:
    """Give an interpreter that other users can run: the virtual environment's may lie in a private home."""
    return next(path for path in ("/usr/bin/python3", sys.executable) if os.access(path, os.X_OK))


def test_a_second_claim_is_refused_and_names_the_holder() -> None:
    feature = f"test-{os.getpid()}"
    refused = pytest.raises(AlreadyRunningError, match=rf"podgate {feature} .*process {os.getpid()}")
    with only_one(feature), refused, only_one(feature):
        pytest.fail("claimed twice")


@pytest.mark.kernel
def test_a_claim_that_somebody_without_rights_took_stops_nobody() -> None:
    feature = f"test-squatted-{os.getpid()}"
    command = ["setpriv", "--reuid", "65534", "--clear-groups", anybodys_python(), "-c", SQUAT, feature]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as squatter:
        assert squatter.stdout is not None
        assert squatter.stdout.readline() == "held\n"
        with only_one(feature):
            pass
        squatter.kill()


def test_a_claim_ends_with_its_block_and_others_are_free() -> None:
    feature = f"test-{os.getpid()}"
    with only_one(feature), only_one(feature + "-other"):
        pass
    with only_one(feature):
        pass


def test_a_claim_ends_with_its_process_even_when_it_is_killed() -> None:
    feature = f"test-killed-{os.getpid()}"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, feature], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(AlreadyRunningError, match=f"process {holder.pid}"), only_one(feature):
            pass
        holder.kill()
        holder.wait()
        with only_one(feature):
            pass
