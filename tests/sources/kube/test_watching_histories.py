"""One list and watch as a state machine, in histories: a server whose objects change, and that does one thing after
another to its watcher.

What always holds: the objects shown are those of one moment of the server's history, never half a list; nothing that
the server or the network does raises; and once the server answers again, the newest moment is shown.
"""

import itertools
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podgate.kubeapi.answers import Refusal
from podgate.kubeapi.frames import Batch, Bookmark, Gone, ListPage, Put
from podgate.kubeapi.requests import Request
from podgate.model.kinds.config import ConfigMap
from podgate.sources.kube.standing import Standing
from podgate.sources.kube.watching import Watching
from tests.support.watchings import EXPIRED, FORBIDDEN, NO_STREAM, end, fresh, put, ref


class Server:
    """What a server holds, and each moment of it."""

    def __init__(self) -> None:
        self.moments: list[dict[str, str]] = []
        self.restore()

    def restore(self) -> None:
        """Have what was there in the beginning, and know nothing of what came then."""
        self.version = self.oldest = 10
        self.objects: dict[str, str] = {"a": "0"}
        self.versions = {"a": 10}
        self.history: list[tuple[int, Put[ConfigMap] | Gone]] = []
        self.moments.append(dict(self.objects))

    def write(self, name: str, value: str | None) -> None:
        self.version += 1
        self.versions[name] = self.version
        if value is None:
            self.objects.pop(name, None)
            self.history.append((self.version, Gone(ref(name))))
        else:
            self.objects[name] = value
            self.history.append((self.version, put(name, value)))
        self.moments.append(dict(self.objects))

    def everything(self) -> tuple[Put[ConfigMap], ...]:
        return tuple(put(name, value) for name, value in self.objects.items())

    def standing(self, query: Mapping[str, str]) -> Standing:
        name = query["fieldSelector"].removeprefix("metadata.name=")
        return Standing(str(self.version), {name: str(self.versions[name])} if name in self.objects else {})


def serve(server: Server, watching: Watching, request: Request) -> None:
    query = request.parameters()
    if "fieldSelector" in query:
        watching.stands(server.standing(query))
    elif "sendInitialEvents" in query:
        everything = server.everything()
        watching.batch(Batch(everything[:1], str(server.version)))
        watching.batch(end(str(server.version), *everything[1:]))
    elif "watch" in query:
        since = int(query["resourceVersion"])
        if since < server.oldest:
            watching.batch(Batch((EXPIRED,)))
        else:
            for version, event in server.history:
                if version > since:
                    watching.batch(Batch((event,), str(version), str(version)))
            if server.version >= since:  # as kube-apiserver, which tells a watch that is ahead of it nothing
                watching.batch(Batch((Bookmark(),), str(server.version)))
            watching.ended()
    else:
        watching.page(ListPage(server.everything(), str(server.version)))


def half(server: Server, watching: Watching, request: Request) -> None:
    query = request.parameters()
    if "fieldSelector" in query:
        pass
    elif "sendInitialEvents" in query:
        watching.batch(Batch(server.everything()[:1], str(server.version)))
    elif "watch" in query and int(query["resourceVersion"]) >= server.oldest:
        new = [each for each in server.history if each[0] > int(query["resourceVersion"])]
        for version, event in new[: len(new) // 2]:
            watching.batch(Batch((event,), str(version), str(version)))
    elif "watch" not in query:
        watching.page(ListPage(server.everything()[:1], str(server.version), "more"))
        watching.request(0)
    watching.lost("cut")


Deed = Callable[[Server, Watching, Request], object]
DEEDS: dict[str, Deed] = {
    "works": serve,
    "half": half,
    "410": lambda _server, watching, _request: watching.refused(EXPIRED),
    "410 frame": lambda _server, watching, request: _frame(watching, request, EXPIRED),
    "500": lambda _server, watching, _request: watching.refused(Refusal(500)),
    "500 frame": lambda _server, watching, request: _frame(watching, request, NO_STREAM),
    "429": lambda _server, watching, _request: watching.refused(Refusal(429, retry_after=1)),
    "403": lambda _server, watching, _request: watching.refused(FORBIDDEN),
    "end": lambda _server, watching, request: _end(watching, request),
    "lost": lambda _server, watching, _request: watching.lost("gone"),
    "bookmark": lambda server, watching, request: _bookmark(server, watching, request),  # noqa: PLW0108 - it is below
}


def _frame(watching: Watching, request: Request, no: Refusal) -> None:
    if "watch" in request.parameters():
        watching.batch(Batch((no,)))
    else:
        watching.refused(no)


def _end(watching: Watching, request: Request) -> None:
    if "watch" in request.parameters():
        watching.ended()
    else:
        watching.lost("half a page")


def _bookmark(server: Server, watching: Watching, request: Request) -> None:
    """Tell the newest version, after all that leads there."""
    if {"resourceVersion", "fieldSelector"} & request.parameters().keys():
        serve(server, watching, request)
    else:
        watching.lost("gone")


def live(deeds: list[str], writes: list[tuple[str, str | None] | None]) -> None:
    server, watching = Server(), fresh()
    for deed, write in itertools.zip_longest(deeds, writes):
        if write == ("compact", None):
            server.oldest = server.version
        elif write == ("restore", None):
            server.restore()
        elif write is not None:
            server.write(*write)
        if deed is not None:
            assert watching.pause(0.5) >= 0
            DEEDS[deed](server, watching, watching.request(0.5))
        shown = {found.name: obj.data["v"] for found, obj in watching.objects.items()}
        if watching.listed:
            assert shown in server.moments
        else:
            assert shown == {}
    for _ in range(6):
        serve(server, watching, watching.request(0.5))
    assert {found.name: obj.data["v"] for found, obj in watching.objects.items()} == server.objects
    assert (watching.listed, watching.trouble) == (True, "")


@pytest.mark.parametrize("first", DEEDS)
def test_every_order_of_three_bad_things_ends_well(first: str) -> None:
    for second, third in itertools.product(DEEDS, DEEDS):
        live([first, second, third], [("b", "1"), ("a", None), ("b", "2")])
        live(["works", first, second, third], [None, ("b", "1"), ("compact", None), ("a", "3")])


@pytest.mark.parametrize("first", DEEDS)
def test_a_restored_store_is_noticed_whatever_happens_beside(first: str) -> None:
    lost: list[tuple[str, str | None] | None] = [None, ("b", "1"), ("a", None), ("restore", None)]
    for second, third in itertools.product(DEEDS, DEEDS):
        live(["works", "works", "works", first, second, third], [*lost, ("c", "1")])
        # As many changes as were lost: its version alone gives nothing away.
        live(["works", "works", "works", first, second, third], [*lost, ("c", "1"), ("c", "2"), ("c", "3")])


WRITES = st.one_of(
    st.none(),
    st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.sampled_from("123"))),
    st.just(("compact", None)),
)


@settings(deadline=None)
@given(st.lists(st.sampled_from(sorted(DEEDS)), max_size=20), st.lists(WRITES, max_size=20))
def test_any_history_ends_well(deeds: list[str], writes: list[tuple[str, str | None] | None]) -> None:
    live(deeds, writes)
