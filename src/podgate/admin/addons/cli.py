"""The command line of ``podgate addon``.

Here: arguments, reading the folder, the connection, the end by a signal. Not here: what is done (keeping.py).
Invariant: exit 0 the cluster is as the folder says, 1 it is not, 2 wrong use, 3 the API did not let us in; with
``--dry-run`` 0 no difference, 1 some, 2 it cannot be told.
"""

import argparse
import asyncio
import re
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from podgate.admin.addons.cluster import Cluster
from podgate.admin.addons.folder import MODE_LABEL, MODES, Folder, understood
from podgate.admin.addons.keeping import Keeper, for_ever, once, preview
from podgate.admin.reaching import NOT_IN_TIME, add_api, connection_to, let_in
from podgate.commandline.usage import Parser, UsageError
from podgate.joints import Answered
from podgate.kubeapi.connection import Connection
from podgate.kubeapi.discovery import VERSION
from podgate.observe.logs import stderr_log
from podgate.sources.manifests import load_manifests

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_PAUSE: Final = 2.0

_RECONCILE: Final = f"""\
Keeps the add-ons in a cluster as the manifests in a folder say, as Kubernetes' addon manager does. The label
{MODE_LABEL} decides: Reconcile objects are made, corrected, and removed when they left the folder;
EnsureExists objects are made where they are missing, and otherwise left alone."""


def main(words: Sequence[str], environ: Mapping[str, str], tell: Callable[[str], None]) -> Answered:
    """Do the verb. Raises UsageError, SourceError."""
    asked = _parser().parse_args(list(words))
    path = Path(asked.folder).resolve()
    if not path.is_dir():
        raise UsageError(f"podgate addon reconcile: {asked.folder}: there is no such folder")
    name = asked.name or re.sub("[^a-z0-9.-]+", "-", path.name.lower()).strip("-.") or "addons"
    if not _NAME.fullmatch(name):
        raise UsageError(f"podgate addon reconcile: --name {name!r}: write small letters, digits, '-' and '.'")
    for flag, seconds in (("--interval", asked.interval), ("--timeout", asked.timeout)):
        if not seconds >= 1:
            raise UsageError(f"podgate addon reconcile: {flag} {seconds:g}: at least 1 second")
    if asked.wait and not asked.once:
        raise UsageError("podgate addon reconcile: --wait: it waits for the end, so give --once too")
    if asked.once and asked.dry_run:
        raise UsageError("podgate addon reconcile: --dry-run and --once: the one does nothing, the other all: give one")
    connection = connection_to(asked, environ, lambda said: tell(f"podgate addon reconcile: {said}"))
    return asyncio.run(_run(asked, name, connection, environ, tell))


async def _run(
    asked: argparse.Namespace,
    name: str,
    connection: Connection,
    environ: Mapping[str, str],
    tell: Callable[[str], None],
) -> Answered:
    def read(before: Folder) -> Folder:
        return understood(load_manifests(asked.folder), before, asked.mode, may_be_empty=asked.allow_empty)

    for each in read(Folder()).unlabelled:
        tell(f"{each}: left alone; --mode gives a mode to such objects")
    cluster = Cluster(connection.send, name, connection.access.namespace)
    keeper = Keeper(read, cluster, stderr_log(environ).bind(addons=name), adopt=asked.adopt)
    async with connection:
        if asked.once or asked.dry_run:
            wrong = await let_in(connection.send, VERSION, tell, asked.timeout, _PAUSE)
            if wrong:
                text = f"the API did not let us in within {asked.timeout:g} s: {wrong}"
                return Answered(text, {"errors": [text]}, NOT_IN_TIME)
            return await (preview(keeper) if asked.dry_run else once(keeper, asked.timeout, wait=asked.wait))
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        await for_ever(keeper, asked.interval, stop)
    return Answered("stopped; the add-ons stay as they are", {"stopped": True})


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="podgate addon", description="Add-ons of a cluster, from manifests.", allow_abbrev=False, guided="addon"
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True, parser_class=Parser)
    verb = verbs.add_parser(
        "reconcile",
        help="keep a cluster's add-ons as the manifests of a folder say",
        description=_RECONCILE,
        allow_abbrev=False,
        guided="addon reconcile",
    )
    verb.add_argument("folder", metavar="DIR", help="manifests: .yaml, .yml, .json, .jsonl, also in folders inside")
    add_api(verb)
    told = "the name of this set of add-ons: only what it made is removed (default: the folder's name)"
    verb.add_argument("--name", metavar="NAME", default="", help=told)
    verb.add_argument("--once", action="store_true", help="end when all is done, or after --timeout")
    verb.add_argument("--wait", action="store_true", help="with --once: also wait until every workload is ready")
    verb.add_argument("--dry-run", action="store_true", help="print what would be done: exit 0 nothing, 1 something")
    verb.add_argument("--interval", type=float, default=60.0, metavar="S", help="seconds between passes (default: 60)")
    told = "with --once and --dry-run: seconds to wait for the API, and for the end (default: 120)"
    verb.add_argument("--timeout", type=float, default=120.0, metavar="S", help=told)
    verb.add_argument("--mode", choices=MODES, help="the mode of objects without the label (default: left alone)")
    told = "also remove labelled objects that are in no set, as another addon manager left them"
    verb.add_argument("--adopt", action="store_true", help=told)
    verb.add_argument(
        "--allow-empty", action="store_true", help="an empty folder means: remove all that is of this set"
    )
    verb.add_argument("--output", choices=("text", "json"), default="text", help="for people or for programs")
    return parser
