"""etcd forgets its history while objects change: whoever watches goes on, and misses nothing."""

import asyncio

from podgate.model.frozen import ObjectRef
from podgate.model.kinds.config import CONFIG_MAP
from tests.support.api_days import changes, config_map, lists, watched
from tests.support.asynchronous import in_loop
from tests.support.chaos_proxy import ChaosProxy
from tests.support.cluster import ControlPlane
from tests.support.etcd import compact
from tests.support.kube_source import Running
from tests.support.poll import poll_async
from tests.support.real_api import RealApi

ROUNDS, OBJECTS = 6, 12


def written(api: RealApi, count: int) -> None:
    """Change every object, make one, and remove the one before."""
    for number in range(OBJECTS):
        api.put("configmaps", config_map(f"c{number}", count=str(count)))
    api.put("configmaps", config_map(f"one-{count}", count=str(count)))
    api.remove("configmaps", f"one-{count - 1}")


def names(count: int) -> set[str]:
    return {"a", "b", f"one-{count}", *(f"c{number}" for number in range(OBJECTS))}


def counts(source: Running) -> list[list[int]]:
    """Give what each object said, in the order of the snapshots."""
    refs = [ObjectRef(CONFIG_MAP.kind, f"c{number}", "default") for number in range(OBJECTS)]
    tables = [snapshot.objects(CONFIG_MAP) for snapshot in source.snapshots]
    return [[int(table[ref].data["count"]) for table in tables if ref in table] for ref in refs]


async def all_is_known(source: Running, count: int) -> None:
    await source.until(CONFIG_MAP, names(count))
    await poll_async(lambda: all(each[-1] == count for each in counts(source)))
    assert all(each == sorted(each) for each in counts(source)), "what was newer did not become older again"


async def under_load(api: RealApi, proxy: ChaosProxy, first: int, *, cut: bool = False) -> int:
    """Write and compact at once, some times over; ``cut``: the watch breaks after each compaction. Gives the count."""
    for count in range(first, first + ROUNDS):
        await asyncio.gather(asyncio.to_thread(written, api, count), asyncio.to_thread(compact, api.plane))
        if cut:
            await asyncio.to_thread(compact, api.plane)
            proxy.cut_all()
    return first + ROUNDS - 1


@in_loop
async def test_a_compaction_under_load_costs_neither_a_change_nor_a_list(plane: ControlPlane) -> None:
    api = RealApi(plane)
    async with watched(api) as (proxy, source):
        await source.until(CONFIG_MAP, {"a", "b"})
        await all_is_known(source, await under_load(api, proxy, 1))
        assert lists(proxy) == 1
        # The versions that it goes on from are gone from etcd, and still in the API server's memory.
        await all_is_known(source, await under_load(api, proxy, ROUNDS + 1, cut=True))
        assert lists(proxy) == 1
        assert any(changes(line) for line in proxy.lines)


@in_loop
async def test_what_was_missed_and_is_forgotten_everywhere_is_listed_anew(plane: ControlPlane) -> None:
    api = RealApi(plane)
    async with watched(api) as (proxy, source):
        await source.until(CONFIG_MAP, {"a", "b"})
        await all_is_known(source, await under_load(api, proxy, 1))
        kept = source.get(CONFIG_MAP, "a")
        proxy.down = True
        proxy.cut_all()
        count = await under_load(api, proxy, ROUNDS + 1)
        # Its memory was all that still knew the versions in between.
        plane.stop_part("kube-apiserver")
        plane.start_part("kube-apiserver")
        proxy.down = False
        await all_is_known(source, count)
        assert source.get(CONFIG_MAP, "a") is kept
        assert lists(proxy) <= 3
