"""KubeSource on bad days, over real sockets: cuts, silence, refusals, a server that is gone, what has expired.

What is asked of each day: what the snapshot holds is never wrong, only old, and afterwards it is right again.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from podgate.kubeapi.access import Access, InFile, Login
from podgate.model.kinds.config import CONFIG_MAP
from podgate.model.kinds.nodes import NODE
from podgate.model.snapshot import Watch
from tests.support import api_days as days
from tests.support.api_days import DAYS, ApiServer, asks_version, changes, config_map, lists, watched
from tests.support.asynchronous import in_loop
from tests.support.chaos_proxy import ChaosProxy, Fault
from tests.support.fake_apiserver import FakeApiServer
from tests.support.kube_source import Running, running
from tests.support.poll import poll_async

pytestmark = pytest.mark.slow


@asynccontextmanager
async def fake(
    *faults: Fault, silence: float = 90.0, bookmarks: float = 60.0
) -> AsyncIterator[tuple[FakeApiServer, ChaosProxy, Running]]:
    async with FakeApiServer().serving() as server:
        server.bookmark_every = bookmarks
        async with watched(server, *faults, silence=silence) as (proxy, source):
            yield server, proxy, source


@pytest.mark.parametrize("fault", DAYS.values(), ids=DAYS.keys())
@pytest.mark.parametrize(
    "scenario",
    [
        days.the_first_list_comes_through,
        days.a_watch_goes_on_where_it_was,
        days.a_watch_goes_on_although_the_question_before_it_fails,
    ],
)
@in_loop
async def test_a_day(scenario: Callable[[ApiServer, Fault], Awaitable[None]], fault: Fault) -> None:
    async with FakeApiServer().serving() as server:
        await scenario(server, fault)


@pytest.mark.parametrize(
    "scenario",
    [days.a_server_that_is_gone_changes_nothing_and_costs_no_new_list, days.a_watch_that_falls_silent_is_noticed],
)
@in_loop
async def test_a_bad_day(scenario: Callable[[ApiServer], Awaitable[None]]) -> None:
    async with FakeApiServer().serving() as server:
        await scenario(server)


@in_loop
async def test_a_compacted_history_means_a_new_list_and_keeps_what_is_equal() -> None:
    async with fake() as (server, proxy, source):
        await source.until(CONFIG_MAP, {"a", "b"})
        kept = source.get(CONFIG_MAP, "b")
        proxy.down = True
        proxy.cut_all()
        server.objects.remove("configmaps", "a", "default")
        server.objects.put("configmaps", config_map("c"))
        server.objects.compact()
        proxy.down = False
        await source.until(CONFIG_MAP, {"b", "c"})
        assert source.get(CONFIG_MAP, "b") is kept
        assert lists(proxy) == 2


@in_loop
async def test_bookmarks_keep_a_quiet_watch_from_expiring() -> None:
    async with fake(bookmarks=0.03) as (server, proxy, source):
        await source.until(CONFIG_MAP, {"a", "b"})
        for number in range(5):
            server.objects.put("nodes", {"metadata": {"name": f"n{number}"}})
        newest = str(server.objects.version)
        await poll_async(lambda: source.source.watchings[0].resource_version == newest)
        server.objects.compact()
        proxy.cut_all()
        server.objects.put("configmaps", config_map("c"))
        await source.until(CONFIG_MAP, {"a", "b", "c"})
        assert lists(proxy) == 1


@in_loop
async def test_a_server_that_sends_bookmarks_is_not_taken_for_silent() -> None:
    async with fake(silence=2.0, bookmarks=0.05) as (server, proxy, source):
        await source.until(CONFIG_MAP, {"a", "b"})
        seen = len(proxy.lines)
        await asyncio.sleep(2.5)
        server.objects.put("configmaps", config_map("c"))
        await source.until(CONFIG_MAP, {"a", "b", "c"})
        assert len(proxy.lines) == seen


@pytest.mark.parametrize("writes", [0, 1, 40], ids=["quiet", "behind the watch", "ahead of it again"])
@in_loop
async def test_a_store_that_was_restored_to_an_older_state_is_listed_again(writes: int) -> None:
    async with fake() as (server, proxy, source):
        await source.until(CONFIG_MAP, {"a", "b"})
        kept, stayed = server.objects.kept(), source.get(CONFIG_MAP, "b")
        server.objects.remove("configmaps", "a", "default")
        for number in range(5):
            server.objects.put("configmaps", config_map(f"late-{number}"))
        await source.until(CONFIG_MAP, {"b", *(f"late-{number}" for number in range(5))})
        proxy.cut_all()  # as a restore does, which ends the API server
        server.objects.restore(kept)
        server.objects.put("configmaps", config_map("c"))
        for number in range(writes):
            server.objects.put("nodes", {"metadata": {"name": f"n{number}"}})
        await source.until(CONFIG_MAP, {"a", "b", "c"})
        assert source.get(CONFIG_MAP, "b") is stayed
        assert all(len(snapshot.objects(CONFIG_MAP)) >= 2 for snapshot in source.snapshots)
        await poll_async(lambda: source.trouble == "")
        assert lists(proxy) == 2


@in_loop
async def test_a_store_that_is_restored_under_an_open_watch_is_listed_again_once_it_falls_silent() -> None:
    async with fake(silence=0.2, bookmarks=0.05) as (server, _, source):
        await source.until(CONFIG_MAP, {"a", "b"})
        kept = server.objects.kept()
        server.objects.remove("configmaps", "a", "default")
        await source.until(CONFIG_MAP, {"b"})
        server.objects.restore(kept)
        await source.until(CONFIG_MAP, {"a", "b"})


@in_loop
async def test_each_watch_but_the_first_costs_one_small_question_more() -> None:
    async with fake() as (server, proxy, source):
        expected = {"a", "b"}
        await source.until(CONFIG_MAP, expected)
        for name in ("c", "d", "e"):
            proxy.cut_all()
            server.objects.put("configmaps", config_map(name))
            expected = {*expected, name}
            await source.until(CONFIG_MAP, expected)
        assert [(asks_version(line), changes(line)) for line in proxy.lines[1:]] == [(True, False), (False, True)] * 3
        assert "fieldSelector=metadata.name" in proxy.lines[-2]


@in_loop
async def test_a_server_that_asks_to_wait_is_left_alone() -> None:
    fault = Fault(status=429, reason="TooManyRequests", retry_after=1)
    async with fake(fault) as (_, proxy, source):
        await poll_async(lambda: proxy.pending == 0)
        await asyncio.sleep(0.5)
        assert len(proxy.lines) == 1
        await source.until(CONFIG_MAP, {"a", "b"})


@in_loop
async def test_a_list_that_expires_between_its_pages_is_asked_for_in_one_piece() -> None:
    async with FakeApiServer().serving() as server, ChaosProxy(server.url).serving() as proxy:
        server.streaming = "no progress"
        names = {f"c{number}" for number in range(501)}
        for name in names:
            server.objects.put("configmaps", config_map(name))
        proxy.strike(Fault(status=410, reason="Expired", asked=lambda line: "continue=" in line))
        async with running(proxy.url, Watch(CONFIG_MAP)) as source:
            await source.until(CONFIG_MAP, names)
            assert [line for line in proxy.lines if "limit=" not in line and not changes(line) and "watch" not in line]


@in_loop
async def test_one_kind_in_trouble_does_not_hold_up_another() -> None:
    async with FakeApiServer().serving() as server, ChaosProxy(server.url).serving() as proxy:
        server.objects.put("nodes", {"metadata": {"name": "n1"}})
        async with running(proxy.url, Watch(CONFIG_MAP), Watch(NODE)) as source:
            await source.until(NODE, {"n1"})
            proxy.strike(Fault(status=500, times=10_000, asked=lambda line: "configmaps" in line))
            proxy.cut_all()
            server.objects.put("nodes", {"metadata": {"name": "n2"}})
            await source.until(NODE, {"n1", "n2"})
            await poll_async(lambda: "500" in source.troubles["watch ConfigMap"])


@in_loop
async def test_a_token_that_expired_is_read_again(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    async with FakeApiServer().serving() as server, ChaosProxy(server.url).serving() as proxy:
        server.tokens = {"first"}
        server.objects.put("configmaps", config_map("a"))
        access = Access(proxy.url, login=Login(token=InFile(str(token))))
        async with running(proxy.url, Watch(CONFIG_MAP), access=access) as source:
            await source.until(CONFIG_MAP, {"a"})
            server.tokens = {"second"}
            proxy.cut_all()
            await poll_async(lambda: "401" in source.troubles.get("watch ConfigMap", ""))
            assert source.names(CONFIG_MAP) == {"a"}
            token.write_text("second\n")
            server.objects.put("configmaps", config_map("b"))
            await source.until(CONFIG_MAP, {"a", "b"})
            assert lists(proxy) == 1
            assert all("first" not in trouble for trouble in source.reported)


@in_loop
async def test_a_reader_that_asks_for_it_hears_since_when_a_kind_cannot_be_followed() -> None:
    async with FakeApiServer().serving() as server, ChaosProxy(server.url).serving() as proxy:
        server.objects.put("configmaps", config_map("a"))
        async with running(proxy.url, Watch(CONFIG_MAP, dated=True), Watch(NODE)) as source:
            await source.until(CONFIG_MAP, {"a"})
            proxy.cut_all()
            await poll_async(lambda: sum("watch" in line for line in proxy.lines) >= 3)
            assert source.newest.unheard == {}  # the next request mended it

            proxy.down = True
            proxy.cut_all()
            await poll_async(lambda: set(source.newest.unheard) == {"ConfigMap"})
            first = source.newest.unheard["ConfigMap"]
            await poll_async(lambda: source.source.snapshot().unheard["ConfigMap"] > first)
            assert source.names(CONFIG_MAP) == {"a"}

            # A quiet watch that is let in again is followed again, long before the first bookmark.
            proxy.down = False
            await poll_async(lambda: source.newest.unheard == {})
