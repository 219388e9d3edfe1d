"""One agent as a process: the signals that end it, those who ask for its claim, and what of its memory stays.

Here: the frame around the host. Not here: what runs in it (host.py), the claim itself (single.py).
Invariant: SIGTERM and SIGINT stop in order; neither is ever an exception amid work.
"""

import asyncio
import gc
import signal
import socket
from collections.abc import Mapping
from typing import Any

from podgate.engine.host import Host
from podgate.observe.accepting import Accepting, Shortage
from podgate.observe.answers import Page
from podgate.observe.listen import Listen


async def serve(
    host: Host[Any],
    claim: socket.socket,
    listen: Mapping[Listen, Mapping[str, Page]],
    garbage: tuple[int, int, int],
    *,
    starting: float = 0.0,
    once: bool = False,
) -> int:
    """Run a host until a signal, or with ``once`` until all is written; give the exit code.

    Args:
        host: what runs.
        claim: as ``only_one`` gives it.
        listen: the pages that are served, by address and path.
        garbage: when the garbage collector looks (``gc.set_threshold``).
        starting: seconds in which it does not: what a start loads stays, and has no cycles.
        once: whether to end when all is written.
    """
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    # Who asks is told by the kernel alone; the queue would be full one day.
    Accepting(claim, lambda: None, Shortage(lambda _why: None))
    if starting:
        gc.disable()
        loop.call_later(starting, _collect, garbage)
    else:
        _collect(garbage)
    return await host.run(stop, once=once, listen=listen)


def _collect(garbage: tuple[int, int, int]) -> None:
    """Look for garbage from now on; what is there by now stays, and need not be walked again and again."""
    gc.freeze()
    gc.set_threshold(*garbage)
    gc.enable()
