"""Origin: where a node's Kubernetes objects come from, and the source that follows.

Here: the order of what is asked (a flag, the environment, the Pod's account), and one source for each answer.
Not here: manifests (manifests.py), the API (kube/).
Invariant: the code of the API, and the libraries that it needs, are loaded where objects come from an API, and nowhere
else.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from podgate.joints import Source, SourceError
from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.snapshot import Absent, Snapshot, Watch
from podgate.observe.requests import OnRequest, uncounted
from podgate.sources.constant import Constant
from podgate.sources.earlier import EarlierTexts
from podgate.sources.manifests import ManifestSource, SnapshotReader

if TYPE_CHECKING:
    from podgate.kubeapi.access import Access

SOURCE_VARIABLE: Final = "PODGATE_SOURCE"
KUBECONFIG_VARIABLE: Final = "KUBECONFIG"
LISTING_SECONDS: Final = 30.0
"""How long a verb that only looks waits for an API."""
ANSWERING_SECONDS: Final = 5.0
"""How long it tries to reach one where nobody answers: a server that restarts may be back by then."""

_PAUSE: Final = 0.25
_NO_LOGIN: Final = 401
_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount/token"

Report = Callable[[str, str], None]


class Manifests(Frozen, frozen=True):
    """A folder or file of manifests."""

    path: str

    def __str__(self) -> str:
        """Show the path."""
        return self.path


class Api(Frozen, frozen=True):
    """A Kubernetes API: that of a kubeconfig, or the one that a Pod runs in (an empty path)."""

    kubeconfig: str = ""
    context: str = ""

    def __str__(self) -> str:
        """Show the kubeconfig with its context, or that it is the Pod's own cluster."""
        return f"{self.kubeconfig}{' ' + self.context if self.context else ''}" if self.kubeconfig else "in-cluster"


class Nowhere(Frozen, frozen=True):
    """No source: every kind is absent."""

    def __str__(self) -> str:
        """Show ``none``."""
        return "none"


Origin = Manifests | Api | Nowhere


def origin(source: str | None, kubeconfig: str | None, context: str | None, environ: Mapping[str, str]) -> Origin:
    """Give the first that applies: ``--source``, ``--kubeconfig``, ``$PODGATE_SOURCE``, a Pod's own account, none."""
    if source:
        return Manifests(source)
    if kubeconfig:
        return Api(kubeconfig, context or "")
    if path := environ.get(SOURCE_VARIABLE):
        return Manifests(path)
    if environ.get("KUBERNETES_SERVICE_HOST") and os.path.exists(_ACCOUNT):
        return Api()
    return Nowhere()


def looked_at(source: str | None, kubeconfig: str | None, context: str | None, environ: Mapping[str, str]) -> Origin:
    """Give the first that applies to a verb that only looks: as ``origin``, with $KUBECONFIG before a Pod's account.

    An agent does not look there: on a node it would be whatever root's shell happens to name. Raises SourceError.
    """
    named = source or kubeconfig or environ.get(SOURCE_VARIABLE)
    if not named and (file := kubeconfig_in(environ)):
        return Api(file, context or "")
    return origin(source, kubeconfig, context, environ)


def kubeconfig_in(environ: Mapping[str, str]) -> str | None:
    """Give the file that $KUBECONFIG names; None where it names none. Raises SourceError where it names several."""
    named = environ.get(KUBECONFIG_VARIABLE) or None
    if named and ":" in named:
        raise SourceError(f"$KUBECONFIG names several files, which are not merged: give --kubeconfig FILE: {named}")
    return named


def unasked(found: Origin, source: str | None, kubeconfig: str | None) -> str:
    """Say in a line which API objects come from that no option names; empty where one does, and where there is none.

    $PODGATE_SOURCE is podgate's own, so whoever set it knows; $KUBECONFIG is set for other programs.
    """
    if source or kubeconfig or not isinstance(found, Api):
        return ""
    if found.kubeconfig:
        return f"objects come from ${KUBECONFIG_VARIABLE}: {found}"
    return "objects come from the API of this Pod's cluster, by its own account"


class ObjectSource(Frozen, frozen=True):
    """A source of objects, how to tell it which single objects are wanted, and whether we lead.

    ``reader`` knows where objects stand that come from files.
    """

    source: Source[Snapshot]
    want: Callable[[frozenset[ObjectRef]], None]
    lead: Callable[[bool], None]
    reader: SnapshotReader | None = None


def follow(
    found: Origin,
    watches: tuple[Watch, ...],
    environ: Mapping[str, str],
    report: Report,
    told: OnRequest = uncounted,
    *,
    state_dir: str = "",
) -> ObjectSource:
    """Give the source of an origin; ``report`` is told of watches that fail, ``told`` of requests to an API.

    ``state_dir`` is where is kept what files said last.

    Raises:
        SourceError: the options are of no use.
    """
    match found:
        case Manifests(path):
            # A folder is at hand: all that it holds is given, wanted or not.
            manifests = ManifestSource(path, watches, state_dir)
            return ObjectSource(manifests, _all_the_same, _all_the_same, manifests.reader)
        case Api():
            from podgate.kubeapi.connection import Connection  # noqa: PLC0415 - see the invariant
            from podgate.sources.kube.source import KubeSource  # noqa: PLC0415

            kube = KubeSource(Connection(access_of(found, environ), told=told), watches, report=report)
            return ObjectSource(kube, kube.want, kube.lead)
        case _:
            return ObjectSource(Constant(without_source(watches)), _all_the_same, _all_the_same)


class Loaded(NamedTuple):
    """Objects as they were once. ``reader`` knows where they stand that come from files."""

    snapshot: Snapshot
    reader: SnapshotReader | None = None


def load(found: Origin, watches: tuple[Watch, ...], environ: Mapping[str, str], state_dir: str = "") -> Loaded:
    """Give the objects once, for verbs that do not wait; ``state_dir`` is as in ``follow``. Raises SourceError."""
    match found:
        case Manifests(path):
            reader = SnapshotReader(path, watches, EarlierTexts(state_dir, writes=False))
            return Loaded(reader.load(), reader)
        case Api():
            return Loaded(asyncio.run(_listed(found, watches, environ)))
        case _:
            return Loaded(without_source(watches))


def without_source(watches: tuple[Watch, ...]) -> Snapshot:
    """Give the snapshot of a node that has no source."""
    return Snapshot({watch.kind.kind: Absent("no source") for watch in watches})


async def _listed(found: Api, watches: tuple[Watch, ...], environ: Mapping[str, str]) -> Snapshot:
    await _reached(found, access_of(found, environ))
    troubles: dict[str, str] = {}
    following = follow(found, watches, environ, troubles.__setitem__)
    try:
        async with asyncio.timeout(LISTING_SECONDS):
            async for snapshot in following.source.values():
                return snapshot
    except TimeoutError as error:
        said = next((trouble for trouble in troubles.values() if trouble), "it does not answer")
        raise SourceError(f"{found}: no objects in {LISTING_SECONDS:.0f} s: {said}") from error
    raise RuntimeError("the source of objects ended by itself")


async def _reached(found: Api, access: "Access") -> None:
    """Return when the server answers and knows our login. Raises SourceError."""
    from podgate.kubeapi.access import AccessError  # noqa: PLC0415 - see the invariant
    from podgate.kubeapi.connection import Connection, UnreachableError  # noqa: PLC0415
    from podgate.kubeapi.discovery import VERSION  # noqa: PLC0415

    clock = asyncio.get_running_loop().time
    until = clock() + min(ANSWERING_SECONDS, LISTING_SECONDS)
    async with Connection(access) as connection:
        while True:
            try:
                refused = (await connection.send(VERSION)).refused
            except UnreachableError as error:
                why = f"{error}: check the server's address, and the network to it"
            except AccessError as error:
                raise SourceError(str(error)) from error
            else:
                if refused is None or refused.code != _NO_LOGIN:
                    return
                why = f"{access.server} refuses the login: {refused}: check its token or certificate"
            if clock() >= until:
                raise SourceError(f"{found}: {why}")
            await asyncio.sleep(_PAUSE)


def access_of(found: Api, environ: Mapping[str, str]) -> "Access":
    """Read how the API is reached. Raises SourceError where that cannot be used."""
    from podgate.kubeapi.access import AccessError  # noqa: PLC0415 - see the invariant
    from podgate.kubeapi.credentials import in_cluster, load_kubeconfig  # noqa: PLC0415

    try:
        access = load_kubeconfig(found.kubeconfig, found.context) if found.kubeconfig else in_cluster(environ)
    except AccessError as error:
        raise SourceError(str(error)) from error
    if access is None:
        raise SourceError("the Pod's account has gone: mount it, or give --kubeconfig or --source")
    return access


def _all_the_same(_told: object) -> None:
    """Do nothing about what is told."""
