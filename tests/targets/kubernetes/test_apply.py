"""The target against an API server over real HTTP: applying, reading back, conflicts, refusals, failures."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from podgate.joints import ApplyError, Turned
from podgate.kubeapi.access import Access
from podgate.kubeapi.connection import Connection
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.config import CONFIG_MAP
from podgate.model.kinds.nodes import NODE
from podgate.model.snapshot import Kind, Watch
from podgate.targets.kubernetes.apply import FORBIDDEN_PAUSE, KubernetesTarget
from podgate.targets.kubernetes.leading import Leadership
from podgate.targets.kubernetes.leases import Terms
from podgate.targets.kubernetes.pacing import BURST
from podgate.targets.kubernetes.state import (
    EMPTY,
    STANDBY,
    Notice,
    Part,
    State,
    Subject,
    labels_of,
    own_object,
    state_of,
    status_of,
)
from tests.support.asynchronous import in_loop
from tests.support.chaos_proxy import ChaosProxy, Fault
from tests.support.fake_apiserver import FakeApiServer
from tests.support.poll import poll_async

MAP, NODE_1, OWN = (
    ObjectRef("ConfigMap", "a", "default"),
    ObjectRef("Node", "n1"),
    ObjectRef("ConfigMap", "own", "default"),
)
NOT_INSTALLED = Kind("example.com", "v1", "Gadget", "gadgets", True, CONFIG_MAP.decodes_to)
WANT = state_of(
    [
        status_of(MAP, {"conditions": [{"type": "Ready", "status": "True"}], "count": 3}),
        labels_of(NODE_1, {"podgate.io/agent": "ready"}),
        own_object(OWN, {"data": {"x": "y"}}, "podgate"),
    ]
)


def target_for(url: str, leadership: Leadership | None = None) -> KubernetesTarget:
    written = (Watch(CONFIG_MAP), Watch(NODE), Watch(NOT_INSTALLED))
    return KubernetesTarget(Connection(Access(url)), written, "podgate", "pod-1", leadership)


@asynccontextmanager
async def cluster() -> AsyncIterator[tuple[FakeApiServer, KubernetesTarget]]:
    async with FakeApiServer().serving() as server:
        metadata = {"name": "a", "labels": {"theirs": "1"}}
        server.objects.put("configmaps", {"metadata": metadata, "data": {"k": "v"}, "status": {"theirs": 1}})
        server.objects.put("nodes", {"metadata": {"name": "n1", "labels": {"kubernetes.io/os": "linux"}}})
        yield server, target_for(server.url)


def obj(server: FakeApiServer, plural: str, name: str, namespace: str = "default") -> dict[str, Any]:
    return server.objects.of(plural).objects[namespace, name]


def plain(condition: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in condition.items() if name != "lastTransitionTime"}


async def bring(target: KubernetesTarget, want: State) -> dict[Any, str]:
    return dict(await target.apply(target.diff(await target.read(), want)))


@in_loop
async def test_what_was_applied_is_read_back_in_a_process_without_memory() -> None:
    async with cluster() as (server, target):
        assert await target.read() == EMPTY
        assert await bring(target, WANT) == {}
        assert not target.diff(await target_for(server.url).read(), WANT)
        assert obj(server, "configmaps", "a")["status"]["count"] == 3
        assert obj(server, "nodes", "n1", "")["metadata"]["labels"]["podgate.io/agent"] == "ready"
        assert obj(server, "configmaps", "own")["data"] == {"x": "y"}


@in_loop
async def test_others_fields_are_left_alone_and_clean_removes_ours() -> None:
    async with cluster() as (server, target):
        await bring(target, WANT)
        assert obj(server, "configmaps", "a")["status"]["theirs"] == 1
        assert await bring(target, EMPTY) == {}
        assert obj(server, "configmaps", "a")["status"] == {"theirs": 1}
        assert obj(server, "configmaps", "a")["metadata"]["labels"] == {"theirs": "1"}
        assert obj(server, "nodes", "n1", "")["metadata"]["labels"] == {"kubernetes.io/os": "linux"}
        assert ("default", "own") not in server.objects.of("configmaps").objects
        assert await target.read() == EMPTY
        assert await bring(target, EMPTY) == {}


@in_loop
async def test_drift_is_put_right() -> None:
    async with cluster() as (server, target):
        await bring(target, WANT)
        server.objects.put("configmaps", {"metadata": {"name": "own"}, "data": {"x": "changed"}})
        server.objects.put("nodes", {"metadata": {"name": "n1"}})
        plan = target.diff(await target.read(), WANT)
        assert str(plan) == "apply ConfigMap/default/own\napply Node/n1"
        assert await target.apply(plan) == {}
        assert obj(server, "configmaps", "own")["data"] == {"x": "y"}
        assert not target.diff(await target.read(), WANT)


@in_loop
async def test_a_label_that_somebody_else_owns_is_refused_with_the_owner() -> None:
    async with cluster() as (server, target):
        part = labels_of(NODE_1, {"kubernetes.io/os": "plan9"})
        refused = await bring(target, state_of([part]))
        assert refused == {
            Part(
                NODE_1
            ): 'others own these fields: .metadata.labels.kubernetes.io/os (conflict with "test"): leave them'
            " to one of us"
        }
        assert obj(server, "nodes", "n1", "")["metadata"]["labels"] == {"kubernetes.io/os": "linux"}
        forced = labels_of(NODE_1, {"kubernetes.io/os": "plan9"}, force=True)
        assert await bring(target, state_of([forced])) == {}
        assert obj(server, "nodes", "n1", "")["metadata"]["labels"] == {"kubernetes.io/os": "plan9"}


@in_loop
async def test_an_object_that_is_not_there_is_refused_and_never_made() -> None:
    async with cluster() as (server, target):
        gone, nobody = ObjectRef("ConfigMap", "gone", "default"), ObjectRef("Node", "nobody")
        want = state_of([status_of(gone, {"a": 1}), labels_of(nobody, {"a": "b"}), *WANT.parts.items()])
        refused = await bring(target, want)
        assert {str(part): why.split(":")[0] for part, why in refused.items()} == {
            "status of ConfigMap/default/gone": "404 NotFound",
            "Node/nobody": "404 NotFound",
        }
        assert ("", "nobody") not in server.objects.of("nodes").objects
        # The others were written all the same.
        assert obj(server, "configmaps", "own")


@in_loop
async def test_what_is_forbidden_is_refused_by_part() -> None:
    async with cluster() as (server, target):
        server.forbidden = {("patch", "nodes")}
        refused = await bring(target, WANT)
        assert [str(part) for part in refused] == ["Node/n1"]
        assert refused[Part(NODE_1)].startswith("403 Forbidden")


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault(status=500, times=9), "ApiFailed"),
        (Fault(status=429, times=9), "ApiFailed"),
        (Fault(after=10, times=9), "Unreachable"),
        (Fault(status=401, times=99), "ApiFailed"),
    ],
)
@in_loop
async def test_an_api_that_fails_is_no_refusal(fault: Fault, reason: str) -> None:
    async with cluster() as (server, _), ChaosProxy(server.url).serving() as proxy:
        target = target_for(proxy.url)
        plan = target.diff(await target.read(), WANT)
        proxy.strike(fault)
        with pytest.raises(ApplyError) as caught:
            await target.apply(plan)
        assert caught.value.reason == reason
        proxy.strike()
        await poll_async(lambda: True)


@in_loop
async def test_reading_says_what_failed() -> None:
    async with cluster() as (server, target):
        server.forbidden = {("list", "nodes")}
        with pytest.raises(ApplyError, match="list Node: 403 Forbidden") as caught:
            await target.read()
        # A node among thousands does not ask again and again for what it may not.
        assert caught.value.wait == FORBIDDEN_PAUSE


@in_loop
async def test_what_is_read_can_be_narrowed_to_one_object() -> None:
    async with cluster() as (server, target):
        others = own_object(ObjectRef("ConfigMap", "others", "default"), {}, "podgate")
        await bring(target, state_of([*WANT.parts.items(), others]))
        one = Watch(CONFIG_MAP, "default", field_selector="metadata.name=own")
        narrow = KubernetesTarget(Connection(Access(server.url)), [one], "podgate", "pod-1")
        assert [str(part) for part in (await narrow.read()).parts] == ["ConfigMap/default/own"]


@in_loop
async def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    async with cluster() as (server, target):

        async def written(target: KubernetesTarget, status: str, message: str) -> dict[str, Any]:
            condition = {"type": "Ready", "status": status, "message": message}
            assert await bring(target, state_of([status_of(MAP, {"conditions": [condition]})])) == {}
            found: dict[str, Any] = obj(server, "configmaps", "a")["status"]["conditions"][0]
            return found

        first = await written(target, "True", "fine")
        assert re.fullmatch(r"....-..-..T..:..:..Z", first["lastTransitionTime"])
        old = {**first, "lastTransitionTime": "2026-01-01T00:00:00Z"}
        server.objects.of("configmaps").objects["default", "a"]["status"]["conditions"] = [old]
        later = target_for(server.url)
        assert not later.diff(await later.read(), state_of([status_of(MAP, {"conditions": [plain(old)]})]))
        assert (await written(later, "True", "still fine"))["lastTransitionTime"] == "2026-01-01T00:00:00Z"
        assert (await written(later, "False", "no longer"))["lastTransitionTime"] > "2026-01-01T00:00:00Z"


@in_loop
async def test_an_event_is_sent_once_even_after_a_restart() -> None:
    async with cluster() as (server, target):
        want = state_of([], [(Notice(MAP, "Refused", "it is wrong"), Subject("v1", "u"))])
        for each in (target, target_for(server.url)):
            assert await bring(each, want) == {}
        (event,) = server.objects.of("events").objects.values()
        assert (event["reason"], event["note"], event["metadata"]["namespace"]) == ("Refused", "it is wrong", "default")


@in_loop
async def test_a_flood_of_events_is_cut_off() -> None:
    async with cluster() as (server, target):
        notices = [(Notice(MAP, "Refused", f"number {number}"), Subject()) for number in range(BURST + 5)]
        refused = await bring(target, state_of([], notices))
        assert len(server.objects.of("events").objects) == BURST
        assert list(refused.values()) == ["5 Events are too many at once: for now they are in the log alone"]


@in_loop
async def test_what_was_told_before_leaves_room_for_what_was_not() -> None:
    async with cluster() as (server, target):

        def told(count: int) -> State:
            return state_of([], [(Notice(MAP, "Refused", f"number {number:02}"), Subject()) for number in range(count)])

        assert await bring(target, told(BURST - 1)) == {}
        assert await bring(target, told(BURST)) == {}
        assert len(server.objects.of("events").objects) == BURST


QUICK = Terms(duration=1, deadline=0.6, retry=0.05, forbidden=0.1)


def candidate(url: str, identity: str) -> tuple[Leadership, KubernetesTarget]:
    leadership = Leadership(Connection(Access(url)), "kube-system", "podgate", identity, "podgate", QUICK)
    return leadership, target_for(url, leadership)


@asynccontextmanager
async def taking_part(target: KubernetesTarget) -> AsyncIterator[list[str]]:
    said: list[str] = []

    async def listen() -> None:
        async for signal in target.signals():
            assert isinstance(signal, Turned)
            said.append(signal.what)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(listen())
        try:
            yield said
        finally:
            task.cancel()


@in_loop
async def test_of_a_server_that_does_not_answer_the_trouble_says_so() -> None:
    async with FakeApiServer().serving() as server, ChaosProxy(server.url).serving() as proxy:
        proxy.strike(Fault(delay=30))
        leadership, _ = candidate(proxy.url, "one")
        async with aclosing(leadership.run()) as turns:  # type: ignore[type-var]
            assert await anext(turns) is False
        assert leadership.trouble == "Lease/kube-system/podgate: no answer in 0.3 s"


@in_loop
async def test_one_of_two_leads_and_the_other_takes_over() -> None:
    async with cluster() as (server, _):
        (one, target_1), (two, target_2) = candidate(server.url, "one"), candidate(server.url, "two")
        assert await target_1.read() == STANDBY
        assert await target_1.apply(target_1.diff(EMPTY, WANT)) == {}
        assert ("default", "own") not in server.objects.of("configmaps").objects
        async with taking_part(target_2) as said_2:
            async with taking_part(target_1) as said_1:
                await poll_async(lambda: one.leads() or two.leads())
                leader, other = (target_1, target_2) if one.leads() else (target_2, target_1)
                assert await bring(leader, WANT) == {}
                assert await other.read() == STANDBY
                assert await bring(other, EMPTY) == {}
                assert obj(server, "configmaps", "own")
                await poll_async(lambda: said_1 + said_2 == ["we lead now"])
            if leader is target_1:
                assert not one.leads()
                await poll_async(two.leads)
                assert not target_2.diff(await target_2.read(), WANT)


@in_loop
async def test_a_leader_that_cannot_renew_stops_writing_in_the_middle_of_it() -> None:
    async with cluster() as (server, _), ChaosProxy(server.url).serving() as proxy:
        leadership, target = candidate(proxy.url, "one")
        async with taking_part(target) as said:
            await poll_async(leadership.leads)
            plan = target.diff(await target.read(), WANT)
            # Writes take for ever, and the lease cannot be renewed.
            proxy.strike(Fault(delay=30, times=1000))
            started = asyncio.get_running_loop().time()
            with pytest.raises(ApplyError) as caught:
                await target.apply(plan)
            assert caught.value.reason == "LostLease"
            assert asyncio.get_running_loop().time() - started < 2 * QUICK.deadline
            await poll_async(lambda: not leadership.leads() and leadership.trouble)
            assert said[0] == "we lead now"
            with pytest.raises(ApplyError) as caught:
                await target.read()
            assert caught.value.reason == "LeaseFailed"


@in_loop
async def test_a_lease_that_may_not_be_used_is_a_failure_until_it_may() -> None:
    async with cluster() as (server, _):
        server.forbidden = {("create", "leases")}
        leadership, target = candidate(server.url, "one")
        async with taking_part(target) as said:
            await poll_async(lambda: said)
            assert said[0].startswith("Lease/kube-system/podgate cannot be written: 403 Forbidden")
            with pytest.raises(ApplyError, match="cannot be written"):
                await target.read()
            server.forbidden = set()
            await poll_async(leadership.leads)
            assert await target.read() == EMPTY


@in_loop
async def test_who_stops_gives_the_lease_back_so_that_it_is_free_at_once() -> None:
    async with cluster() as (server, _):
        (one, target_1), (two, target_2) = candidate(server.url, "one"), candidate(server.url, "two")
        async with taking_part(target_1):
            await poll_async(one.leads)
        assert not one.leads()
        lease = obj(server, "leases", "podgate", "kube-system")
        assert lease["spec"]["holderIdentity"] == ""
        async with taking_part(target_2):
            await poll_async(two.leads)
            assert json.dumps(obj(server, "leases", "podgate", "kube-system")["spec"]).count("two") == 1
