"""Reaching: the API that an administrator's verb works with.

Here: its two options, the connection, one whole list, waiting until the API lets us in. Not here: what is asked and
what answers mean.
Invariant: nothing is kept between two calls: a verb that asks again sees what is there now.
"""

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec

from podgate.commandline.options import kube_mistakes
from podgate.joints import SourceError
from podgate.kubeapi.answers import Refusal
from podgate.kubeapi.connection import AccessError, Answer, Connection, Limits, UnreachableError
from podgate.kubeapi.requests import Request, list_page, page_of
from podgate.model.kinds.meta import ApiStruct
from podgate.model.snapshot import Watch
from podgate.sources.origin import KUBECONFIG_VARIABLE, SOURCE_VARIABLE, Api, access_of, kubeconfig_in, origin

Ask = Callable[[Request], Awaitable[Answer]]
"""Sends one request. Raises UnreachableError, AccessError."""

NOT_IN_TIME: Final = 3
"""The exit code when the API did not let us in before the time was over."""

NO_API: Final = "no API is known here: give --kubeconfig FILE, set $KUBECONFIG, or run this in a Pod with an account"


def add_api(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which API."""
    told = "the kubeconfig of the API; without it $KUBECONFIG, or inside a Pod its own account"
    parser.add_argument("--kubeconfig", metavar="FILE", help=told)
    parser.add_argument("--context", metavar="NAME", help="the context in the kubeconfig; without it the current one")


def connection_to(asked: argparse.Namespace, environ: Mapping[str, str], tell: Callable[[str], None]) -> Connection:
    """Give a connection, which is not open yet. Raises SourceError where none is configured, or it cannot be used.

    ``tell`` is told which API it is, where no flag says so.
    """
    kubeconfig = kubeconfig_of(asked, environ)
    # A folder of manifests is no API, so $PODGATE_SOURCE does not count here.
    found = origin(None, kubeconfig, asked.context, {k: v for k, v in environ.items() if k != SOURCE_VARIABLE})
    if not isinstance(found, Api):
        raise SourceError(NO_API)
    if asked.kubeconfig is None:
        named = f"that of ${KUBECONFIG_VARIABLE}: {found}"
        tell(f"the API is {named if kubeconfig else 'that of the cluster of this Pod'}")
    return Connection(access_of(found, environ), Limits(answer=30.0))


def kubeconfig_of(asked: argparse.Namespace, environ: Mapping[str, str]) -> str | None:
    """Give the kubeconfig: the flag's, or that of $KUBECONFIG, as kubectl reads it. Raises SourceError."""
    named = asked.kubeconfig if asked.kubeconfig is not None else kubeconfig_in(environ)
    mistakes = "\n".join(kube_mistakes(named, asked.context))
    if mistakes:
        raise SourceError(mistakes)
    return named


class _Metadata(ApiStruct, frozen=True, rename="camel"):
    continue_: str = msgspec.field(default="", name="continue")


class _List(ApiStruct, frozen=True, rename="camel"):
    metadata: _Metadata = _Metadata()
    items: tuple[msgspec.Raw, ...] | None = ()


_list: Final = msgspec.json.Decoder(_List)


async def listed(ask: Ask, watch: Watch) -> list[bytes] | Refusal:
    """Give all objects that a watch selects, each as JSON; or why not. Raises UnreachableError."""
    found: list[bytes] = []
    refused = await each_of(ask, watch, found.append)
    return found if refused is None else refused


async def each_of(ask: Ask, watch: Watch, take: Callable[[bytes], None]) -> Refusal | None:
    """Hand over all objects that a watch selects, of which one page is held; or give why not. Raises UnreachableError.

    Args:
        ask: sends.
        watch: which objects.
        take: gets each one as JSON.
    """
    token = ""
    while True:
        request = list_page(watch, token, page_of(watch.kind))
        answer = await ask(request)
        if answer.refused is not None:
            return answer.refused
        try:
            page = _list.decode(answer.body)
        except msgspec.DecodeError as error:
            raise UnreachableError(f"{request.what}: the answer is no list: {error}") from error
        for item in page.items or ():
            take(bytes(item))
        token = page.metadata.continue_
        if not token:
            return None


async def let_in(ask: Ask, request: Request, tell: Callable[[str], None], seconds: float, pause: float) -> str:
    """Send until the API grants it; give an empty text, or what was wrong last when the time is over.

    A server that starts refuses connections first, and everybody a little later, so any refusal is waited for.

    Args:
        ask: sends.
        request: what must be granted.
        tell: told what is wrong, once for each thing.
        seconds: how long; 0 for ever.
        pause: between two tries.
    """
    loop = asyncio.get_running_loop()
    ends = loop.time() + seconds if seconds else float("inf")
    told = ""
    while True:
        try:
            refused = (await ask(request)).refused
            wrong = f"{request.what}: {refused}" if refused else ""
        except (UnreachableError, AccessError) as error:
            wrong = str(error)
        if not wrong or loop.time() + pause > ends:
            return wrong
        if wrong != told:
            tell(f"waiting for the API: {wrong}")
            told = wrong
        await asyncio.sleep(pause)
