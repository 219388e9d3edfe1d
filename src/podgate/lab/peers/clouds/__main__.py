"""``python -m podgate.lab.peers.clouds CLOUD``: a fake metadata server as a process.

Here: its command line. Not here: the clouds.
Invariant: it opens what it was told to and nothing else; exit codes: 0 after SIGTERM, 1 when a port is taken, 2 for
wrong arguments.

On stdout, a JSON object per line: first ``{"secrets": {NAME: WORD}, "listening": [[ADDRESS, PORT]]}``, then one for
each request: method, target, headers, body's length.
"""

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Final

from podgate.lab.clouds import ADDRESSES
from podgate.lab.peers.clouds.aws import Aws
from podgate.lab.peers.clouds.azure import Azure
from podgate.lab.peers.clouds.cloud import Asked, Cloud
from podgate.lab.peers.clouds.gce import Gce
from podgate.lab.peers.clouds.openstack import OpenStack
from podgate.lab.peers.clouds.serving import CloudServer

CLOUDS: Final[dict[str, Callable[[], Cloud]]] = {"gce": Gce, "aws": Aws, "azure": Azure, "openstack": OpenStack}


def main(argv: Sequence[str]) -> int:
    """Serve until SIGTERM; give the exit code."""
    parser = argparse.ArgumentParser(prog="python -m podgate.lab.peers.clouds", allow_abbrev=False)
    parser.add_argument("cloud", choices=sorted(CLOUDS))
    parser.add_argument(
        "--listen", action="append", metavar="ADDRESS:PORT", help="instead of the cloud's own addresses"
    )
    asked = parser.parse_args(argv)
    try:
        addresses = [_address(text) for text in asked.listen or ()] or list(ADDRESSES[asked.cloud])
    except ValueError:
        parser.error("--listen: write ADDRESS:PORT, IPv6 in brackets")
    try:
        asyncio.run(_serve(CLOUDS[asked.cloud](), addresses))
    except OSError as error:
        print(f"cannot listen: {error}", file=sys.stderr)
        return 1
    return 0


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


async def _serve(cloud: Cloud, addresses: Sequence[tuple[str, int]]) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with CloudServer(cloud, _note).listening(addresses) as taken:
        print(json.dumps({"secrets": cloud.secrets, "listening": taken}), flush=True)
        await stop.wait()


def _note(asked: Asked) -> None:
    row = {"method": asked.method, "target": asked.target, "headers": asked.headers, "body": len(asked.body)}
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
