"""KubeSource against an API server over real sockets, on good days: what it lists, follows, and leaves alone."""

import asyncio

import pytest

from podgate.kubeapi.access import Access
from podgate.kubeapi.connection import Connection
from podgate.kubeapi.requests import PAGE
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.config import CONFIG_MAP, NAMESPACE
from podgate.model.kinds.nodes import NODE
from podgate.model.kinds.pods import POD
from podgate.model.snapshot import Absent, Kind, Listed, Watch
from podgate.sources.kube.source import KubeSource
from tests.support.asynchronous import in_loop
from tests.support.fake_apiserver import FakeApiServer
from tests.support.fake_objects import Obj, Resource
from tests.support.kube_source import running
from tests.support.poll import poll_async
from tests.support.virtual_time import run_virtual


def config_map(name: str, namespace: str = "default", **data: str) -> Obj:
    return {"metadata": {"name": name, "namespace": namespace, "labels": {"app": name}}, "data": data}


@pytest.mark.parametrize("streaming", ["yes", "no progress", "unknown"])
@in_loop
async def test_objects_are_listed_and_followed(streaming: str) -> None:
    async with FakeApiServer().serving() as server:
        server.streaming = streaming
        server.objects.put("configmaps", config_map("one", a="1"))
        async with running(server.url, Watch(CONFIG_MAP), Watch(NODE)) as source:
            await source.until(CONFIG_MAP, {"one"})
            assert source.names(NODE) == set()
            server.objects.put("configmaps", config_map("two"))
            await source.until(CONFIG_MAP, {"one", "two"})
            server.objects.put("configmaps", config_map("one", a="2"))
            await poll_async(lambda: source.get(CONFIG_MAP, "one").data == {"a": "2"})
            server.objects.remove("configmaps", "one", "default")
            await source.until(CONFIG_MAP, {"two"})
            assert source.reported == []


@in_loop
async def test_a_long_list_comes_in_pages() -> None:
    async with FakeApiServer().serving() as server:
        server.streaming = "no progress"
        names = {f"c{number}" for number in range(PAGE * 2 + 1)}
        for name in names:
            server.objects.put("configmaps", config_map(name))
        async with running(server.url, Watch(CONFIG_MAP)) as source:
            await source.until(CONFIG_MAP, names)
            assert sum("continue" in query for _, _, query in server.requests) == 2


@in_loop
async def test_selectors_narrow_what_is_watched() -> None:
    async with FakeApiServer().serving() as server:
        for name, namespace in (("a", "default"), ("b", "default"), ("a", "other")):
            server.objects.put("configmaps", config_map(name, namespace))
        for name, node in (("here", "n1"), ("there", "n2")):
            server.objects.put("pods", {"metadata": {"name": name}, "spec": {"nodeName": node}})
        watches = (Watch(CONFIG_MAP, "default", "app=a"), Watch(POD, "", "", "spec.nodeName=n1"))
        async with running(server.url, *watches) as source:
            await source.until(POD, {"here"})
            assert [str(ref) for ref in source.newest.objects(CONFIG_MAP)] == ["ConfigMap/default/a"]
            server.objects.put("pods", {"metadata": {"name": "there"}, "spec": {"nodeName": "n1"}})
            await source.until(POD, {"here", "there"})
            server.objects.put("pods", {"metadata": {"name": "here"}, "spec": {"nodeName": "n3"}})
            await source.until(POD, {"there"})


@in_loop
async def test_two_watches_of_a_kind_give_one_entry() -> None:
    async with FakeApiServer().serving() as server:
        for name in ("a", "b", "c"):
            server.objects.put("configmaps", config_map(name))
        async with running(
            server.url, Watch(CONFIG_MAP, "", "app in (a,b)"), Watch(CONFIG_MAP, "", "app in (b,c)")
        ) as source:
            await source.until(CONFIG_MAP, {"a", "b", "c"})
            server.objects.put("configmaps", {"metadata": {"name": "b", "labels": {"app": "c"}}})
            server.objects.remove("configmaps", "a", "default")
            await source.until(CONFIG_MAP, {"b", "c"})
            assert source.get(CONFIG_MAP, "b").metadata.labels == {"app": "c"}
            server.objects.remove("configmaps", "b", "default")
            await source.until(CONFIG_MAP, {"c"})


@in_loop
async def test_what_did_not_change_stays_the_same_value() -> None:
    async with FakeApiServer().serving() as server:
        server.objects.put("configmaps", config_map("one"))
        server.objects.put("nodes", {"metadata": {"name": "n1"}, "spec": {"podCIDR": "10.0.0.0/24"}})
        async with running(server.url, Watch(CONFIG_MAP), Watch(NODE)) as source:
            await source.until(NODE, {"n1"})
            node, nodes, one = source.get(NODE, "n1"), source.newest.objects(NODE), source.get(CONFIG_MAP, "one")
            count = len(source.snapshots)
            # A node's status changes all the time; nothing of it is read.
            server.objects.put(
                "nodes", {"metadata": {"name": "n1"}, "spec": {"podCIDR": "10.0.0.0/24"}, "status": {"x": 1}}
            )
            server.objects.put("configmaps", config_map("two"))
            await source.until(CONFIG_MAP, {"one", "two"})
            assert source.get(NODE, "n1") is node
            assert source.newest.objects(NODE) is nodes
            assert source.get(CONFIG_MAP, "one") is one
            assert len(source.snapshots) == count + 1


GADGET = Kind("example.com", "v1", "Gadget", "gadgets", True, CONFIG_MAP.decodes_to)


@in_loop
async def test_a_kind_that_is_not_installed_blocks_nobody_and_is_found_later() -> None:
    async with FakeApiServer().serving() as server:
        server.objects.put("configmaps", config_map("one"))
        async with running(server.url, Watch(CONFIG_MAP), Watch(GADGET)) as source:
            await source.until(CONFIG_MAP, {"one"})
            assert source.newest.kinds["Gadget"] == Absent("not installed")
            await poll_async(
                lambda: "cannot watch Gadget: not installed (404 NotFound" in source.troubles["watch Gadget"]
            )
            server.objects.install(Resource("example.com", "v1", "Gadget", "gadgets", True))
            server.objects.put("gadgets", {"metadata": {"name": "g"}})
            await source.until(GADGET, {"g"})
            assert source.troubles["watch Gadget"] == ""
            server.objects.uninstall("gadgets")
            await source.until(GADGET, "not installed")


@in_loop
async def test_a_kind_that_is_forbidden_is_absent_until_it_is_allowed() -> None:
    async with FakeApiServer().serving() as server:
        server.forbidden = {("watch", "nodes"), ("list", "nodes")}
        server.objects.put("nodes", {"metadata": {"name": "n1"}})
        async with running(server.url, Watch(CONFIG_MAP), Watch(NODE)) as source:
            await source.until(NODE, "forbidden")
            assert isinstance(source.newest.kinds["ConfigMap"], Listed)
            server.forbidden = set()
            await source.until(NODE, {"n1"})


@in_loop
async def test_an_object_that_does_not_decode_is_a_problem_and_stays_what_it_was() -> None:
    async with FakeApiServer().serving() as server:
        server.objects.put("configmaps", config_map("one", a="1"))
        async with running(server.url, Watch(CONFIG_MAP)) as source:
            await source.until(CONFIG_MAP, {"one"})
            server.objects.put("configmaps", {"metadata": {"name": "one"}, "data": {"a": 7}})
            server.objects.put("configmaps", {"metadata": {"name": "two"}, "data": []})
            await poll_async(lambda: len(source.newest.faults) == 2)
            assert source.get(CONFIG_MAP, "one").data == {"a": "1"}
            assert [(str(fault.ref), fault.field) for fault in source.newest.faults] == [
                ("ConfigMap/default/one", "data"),
                ("ConfigMap/default/two", "data"),
            ]
            server.objects.put("configmaps", {"metadata": {"name": "one"}, "data": None})
            await poll_async(lambda: source.get(CONFIG_MAP, "one").data == {})
            assert [fault.ref.name for fault in source.newest.faults] == ["two"]


@in_loop
async def test_single_objects_are_fetched_by_name_and_only_these() -> None:
    async with FakeApiServer().serving() as server:
        for name in ("a", "b", "c"):
            server.objects.put("configmaps", config_map(name))
        async with running(server.url, Watch(NAMESPACE), Watch(CONFIG_MAP, by_name=True)) as source:
            await source.until(CONFIG_MAP, set())
            wanted = frozenset({config_ref("a"), config_ref("nobody")})
            source.source.want(wanted)
            await source.until(CONFIG_MAP, {"a"})
            await poll_async(lambda: not source.newest.pending)
            server.objects.put("configmaps", config_map("nobody"))
            await source.until(CONFIG_MAP, {"a", "nobody"})
            source.source.want(frozenset({config_ref("b")}))
            await source.until(CONFIG_MAP, {"b"})
            await poll_async(lambda: server.streams == 2)
            paths = {query.get("fieldSelector") for _, path, query in server.requests if path.endswith("configmaps")}
            assert paths == {"metadata.name=a", "metadata.name=nobody", "metadata.name=b"}


@in_loop
async def test_many_wanted_objects_share_a_stream_per_namespace() -> None:
    async with FakeApiServer().serving() as server:
        for number in range(60):
            server.objects.put("configmaps", config_map(f"c{number}"))
        async with running(server.url, Watch(CONFIG_MAP, by_name=True)) as source:
            few = frozenset(config_ref(f"c{number}") for number in range(3))
            source.source.want(few)
            await source.until(CONFIG_MAP, {"c0", "c1", "c2"})
            seen = len(source.snapshots)
            source.source.want(frozenset(config_ref(f"c{number}") for number in range(51)))
            await source.until(CONFIG_MAP, {f"c{number}" for number in range(51)})
            # While the new stream lists, what the old ones gave still counts.
            assert all(snapshot.objects(CONFIG_MAP).keys() >= few for snapshot in source.snapshots[seen:])
            await poll_async(lambda: server.streams == 1)


@in_loop
async def test_what_a_leader_needs_is_watched_while_we_lead_and_read_afresh_each_time() -> None:
    async with FakeApiServer().serving() as server:
        server.objects.put("nodes", {"metadata": {"name": "n1"}})
        server.objects.put("configmaps", config_map("one"))
        async with running(server.url, Watch(NODE), Watch(CONFIG_MAP, by_leader=True)) as source:
            await source.until(NODE, {"n1"})
            await source.until(CONFIG_MAP, "not leading")
            assert server.streams == 1
            source.source.lead(True)
            await source.until(CONFIG_MAP, {"one"})
            source.source.lead(False)
            await source.until(CONFIG_MAP, "not leading")
            await poll_async(lambda: server.streams == 1)
            server.objects.remove("configmaps", "one", "default")
            server.objects.put("configmaps", config_map("two"))
            seen = len(source.snapshots)
            source.source.lead(True)
            await source.until(CONFIG_MAP, {"two"})
            assert "one" not in {ref.name for each in source.snapshots[seen:] for ref in each.objects(CONFIG_MAP)}


@in_loop
async def test_what_a_leader_needs_and_may_not_see_is_forbidden() -> None:
    async with FakeApiServer().serving() as server:
        server.forbidden = {("watch", "configmaps"), ("list", "configmaps")}
        async with running(server.url, Watch(NODE), Watch(CONFIG_MAP, by_leader=True)) as source:
            source.source.lead(True)
            await source.until(CONFIG_MAP, "forbidden")
            source.source.lead(False)
            await source.until(CONFIG_MAP, "not leading")
            await poll_async(lambda: source.trouble == "")


def config_ref(name: str) -> ObjectRef:
    return ObjectRef("ConfigMap", name, "default")


def test_of_several_watches_of_a_kind_the_one_that_failed_first_says_since_when() -> None:
    async def failing() -> None:
        watches = tuple(Watch(POD, f"team-{number}", dated=True) for number in range(8))
        source = KubeSource(Connection(Access("http://127.0.0.1:1")), watches)
        for watching in source.watchings:
            watching.listed, watching.trouble = True, "away"
            source._date(watching, works=False)
            await asyncio.sleep(10.0)
        assert source.snapshot().unheard == {POD.kind: 80.0}

    run_virtual(failing())
