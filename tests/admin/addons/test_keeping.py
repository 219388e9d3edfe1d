"""Add-ons in a fake API server, in virtual time: one pass after the other, on good days and bad ones."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from podgate.admin.addons.cluster import Cluster
from podgate.admin.addons.folder import Folder, understood
from podgate.admin.addons.keeping import SETTLE, SOON, Keeper, for_ever, once, preview
from podgate.kubeapi.access import Access
from podgate.kubeapi.answers import Refusal
from podgate.kubeapi.connection import Answer, Connection, UnreachableError
from podgate.kubeapi.requests import Request
from podgate.model.files import FileContent, Present
from podgate.observe.logs import Log
from tests.support.fake_addons import KINDS, daemons, manifest
from tests.support.fake_apiserver import FakeApiServer
from tests.support.fake_objects import Resource
from tests.support.virtual_time import in_virtual_time_over_sockets, now


class Lab:
    """A folder, a fake API server, and a keeper between them."""

    def __init__(self, fake: FakeApiServer, connection: Connection, name: str = "set") -> None:
        self.fake = fake
        self.files: dict[str, FileContent] = {}
        self.bad: Refusal | UnreachableError | None = None
        self.written: list[str] = []
        self._connection = connection
        self._log = io.StringIO()
        self.reads = 0
        self.adopting = Keeper(self.read, Cluster(self.ask, name, "default"), Log(self._log), adopt=True)
        self.keeper = Keeper(self.read, Cluster(self.ask, name, "default"), Log(self._log))

    async def ask(self, request: Request) -> Answer:
        if isinstance(self.bad, UnreachableError):
            raise self.bad
        if self.bad:
            return Answer(refused=self.bad)
        if request.method != "GET" and ("dryRun", "All") not in request.query:
            self.written.append(request.what)
        return await self._connection.send(request)

    def read(self, before: Folder) -> Folder:
        self.reads += 1
        return understood(self.files, before)

    def folder(self, *objects: dict[str, Any]) -> None:
        self.files = {f"{obj['metadata']['name']}.json": Present(json.dumps(obj).encode()) for obj in objects}

    async def bring(self) -> list[str]:
        """Make one pass; give what it wrote."""
        self.written.clear()
        await self.keeper.bring()
        return list(self.written)

    def said(self, message: str) -> list[dict[str, Any]]:
        """Give the records of one message."""
        records = (json.loads(line) for line in self._log.getvalue().splitlines())
        return [record for record in records if record["message"] == message]

    def lines(self) -> list[str]:
        return [json.loads(line)["message"] for line in self._log.getvalue().splitlines()]

    def get(self, plural: str, name: str) -> dict[str, Any] | None:
        return self.fake.objects.of(plural).objects.get(("kube-system", name))

    def set_status(self, name: str, **status: int) -> None:
        obj = self.get("daemonsets", name)
        assert obj is not None
        self.fake.put("daemonsets", {**obj, "status": {"observedGeneration": 1, **status}})

    def ready(self, name: str) -> None:
        self.set_status(name, desiredNumberScheduled=1, updatedNumberScheduled=1, numberAvailable=1)


@asynccontextmanager
async def lab(name: str = "set") -> AsyncIterator[Lab]:
    async with FakeApiServer(*KINDS).serving() as fake, Connection(Access(fake.url)) as connection:
        yield Lab(fake, connection, name)


@in_virtual_time_over_sockets
async def test_what_is_missing_is_made_and_the_second_pass_does_nothing() -> None:
    async with lab() as it:
        it.folder(manifest("ConfigMap", "a", data={"x": "1"}), daemons("v0.1"))
        assert await it.bring() == ["apply ConfigMap/kube-system/a", "apply DaemonSet/kube-system/proxy-v0.1"]
        assert await it.bring() == []
        assert it.lines() == ["created", "created"]


@in_virtual_time_over_sockets
async def test_drift_is_corrected_and_others_fields_stay() -> None:
    async with lab() as it:
        it.folder(manifest("ConfigMap", "a", data={"x": "1"}))
        await it.bring()
        have = it.get("configmaps", "a")
        assert have is not None
        it.fake.put("configmaps", {**have, "data": {"x": "2", "y": "3"}})
        assert await it.bring() == ["apply ConfigMap/kube-system/a"]
        assert (it.get("configmaps", "a") or {})["data"] == {"x": "1", "y": "3"}
        it.folder(manifest("ConfigMap", "a", data={"z": "1"}))
        await it.bring()
        assert (it.get("configmaps", "a") or {})["data"] == {"y": "3", "z": "1"}


@in_virtual_time_over_sockets
async def test_what_is_made_once_is_its_users_afterwards() -> None:
    async with lab() as it:
        it.folder(manifest("ConfigMap", "a", "EnsureExists", data={"x": "1"}))
        assert await it.bring() == ["create ConfigMap/kube-system/a"]
        it.fake.put("configmaps", {**(it.get("configmaps", "a") or {}), "data": {"x": "2"}})
        assert await it.bring() == []
        it.folder(manifest("ConfigMap", "b"))
        assert await it.bring() == ["apply ConfigMap/kube-system/b"]
        assert it.get("configmaps", "a") is not None
        it.fake.remove("configmaps", "b", "kube-system")
        it.folder(manifest("ConfigMap", "a", "EnsureExists"))
        it.fake.remove("configmaps", "a", "kube-system")
        assert await it.bring() == ["create ConfigMap/kube-system/a"]


@in_virtual_time_over_sockets
async def test_what_left_the_folder_is_removed_but_only_of_this_set() -> None:
    async with lab() as it, lab("other") as other:
        other.fake = it.fake
        other._connection = it._connection
        it.fake.put("configmaps", manifest("ConfigMap", "foreign"))
        other.folder(manifest("ConfigMap", "others"))
        await other.bring()
        it.folder(manifest("ConfigMap", "a"), manifest("ConfigMap", "b"))
        await it.bring()
        it.folder(manifest("ConfigMap", "a"))
        assert await it.bring() == ["delete ConfigMap/kube-system/b"]
        assert await it.bring() == []
        await it.adopting.bring()
        assert {name for _, name in it.fake.objects.of("configmaps").objects} == {"a", "others"}


@in_virtual_time_over_sockets
async def test_a_bad_manifest_removes_nothing_and_the_last_good_one_is_kept() -> None:
    async with lab() as it:
        it.folder(manifest("ConfigMap", "a"), manifest("ConfigMap", "b"), manifest("ConfigMap", "c"))
        await it.bring()
        it.files = {**it.files, "a.json": Present(b"{")}
        del it.files["b.json"]
        it.fake.remove("configmaps", "a", "kube-system")
        assert await it.bring() == ["apply ConfigMap/kube-system/a"]
        assert it.get("configmaps", "b") is not None
        # A new process does not know what the bad file asked for, and removes nothing either.
        fresh = Keeper(it.read, Cluster(it.ask, "set", "default"), Log(io.StringIO()))
        passed = await fresh.bring()
        assert (passed.done, it.get("configmaps", "a") is not None) == (False, True)
        it.folder(manifest("ConfigMap", "a"))
        await it.bring()
        assert (it.get("configmaps", "b"), it.get("configmaps", "c")) == (None, None)


@in_virtual_time_over_sockets
async def test_a_folder_that_is_being_written_is_given_a_moment() -> None:
    async with lab() as it:
        it.folder(manifest("ConfigMap", "a"), manifest("ConfigMap", "b"))
        await it.bring()
        whole, it.files = it.files, {"b.json": it.files["b.json"], "a.json": Present(b"")}

        def read(before: Folder) -> Folder:
            folder = it.read(before)
            it.files = whole  # it is written right after it was looked at
            return folder

        began = now()
        await Keeper(read, Cluster(it.ask, "set", "default"), Log(io.StringIO())).bring()
        assert now() - began == SETTLE
        assert it.get("configmaps", "a") is not None


@in_virtual_time_over_sockets
async def test_a_new_version_takes_the_place_of_the_old_one_once_it_is_ready() -> None:
    async with lab() as it:
        it.folder(daemons("v0.1"), manifest("ServiceAccount", "proxy"))
        await it.bring()
        it.ready("proxy-v0.1")
        it.folder(daemons("v0.2"))
        assert await it.bring() == ["apply DaemonSet/kube-system/proxy-v0.2"]
        assert await it.bring() == []
        it.set_status("proxy-v0.2", desiredNumberScheduled=1, updatedNumberScheduled=1)
        assert await it.bring() == []
        assert "hold DaemonSet/kube-system/proxy-v0.1: it goes when" in "\n".join(it.lines())
        it.ready("proxy-v0.2")
        assert await it.bring() == [
            "delete DaemonSet/kube-system/proxy-v0.1",
            "delete ServiceAccount/kube-system/proxy",
        ]
        assert await it.bring() == []


@in_virtual_time_over_sockets
async def test_two_on_the_hosts_network_do_not_wait_for_each_other_for_ever() -> None:
    async with lab() as it:
        it.folder(daemons("v0.1", host=True))
        await it.bring()
        it.ready("proxy-v0.1")
        it.folder(daemons("v0.2", host=True))
        await it.bring()
        it.set_status("proxy-v0.2", desiredNumberScheduled=1, updatedNumberScheduled=1)
        pod = manifest("Pod", "new", "", spec={"containers": [{"name": "a"}]})
        pod["metadata"]["labels"] = {"k8s-app": "proxy", "version": "v0.2"}
        it.fake.put("pods", {**pod, "status": {"containerStatuses": [{"name": "a", "state": {"waiting": {}}}]}})
        assert await it.bring() == []  # its image may not be there
        it.fake.put("pods", {**pod, "status": {"containerStatuses": [{"name": "a", "restartCount": 1}]}})
        assert await it.bring() == ["delete DaemonSet/kube-system/proxy-v0.1"]


@in_virtual_time_over_sockets
async def test_a_kind_that_the_api_lacks_stops_no_other_and_is_made_when_it_comes() -> None:
    async with lab() as it:
        gadget = {"apiVersion": "podgate.test/v1", "kind": "Gadget", "metadata": manifest("", "g")["metadata"]}
        typo = {**manifest("ConfigMap", "t"), "kind": "ConfigMpa"}
        it.folder(manifest("ConfigMap", "a"))
        await it.bring()
        it.folder(gadget, typo, manifest("ConfigMap", "b"))
        assert await it.bring() == ["apply ConfigMap/kube-system/b"]
        assert it.get("configmaps", "a") is not None  # the folder is not whole
        said = "\n".join(it.lines())
        assert "podgate.test/v1: the API does not have it yet" in said
        assert 't.json:1: the API has no ConfigMpa in v1 (did you mean "ConfigMap"?)' in said
        it.fake.objects.install(Resource("podgate.test", "v1", "Gadget", "gadgets", True))
        it.folder(gadget)
        assert await it.bring() == ["apply Gadget/kube-system/g", "delete ConfigMap/kube-system/b",
                                    "delete ConfigMap/kube-system/a"]  # fmt: skip


@in_virtual_time_over_sockets
async def test_a_kind_that_may_not_be_seen_removes_nothing_of_any() -> None:
    async with lab() as it:
        it.folder(manifest("ConfigMap", "a"), manifest("ConfigMap", "b"))
        await it.bring()
        it.fake.forbidden = {("list", "secrets")}
        it.folder(manifest("ConfigMap", "a"))
        assert await it.bring() == []
        assert "Secret: what left the folder cannot be seen: 403 Forbidden" in "\n".join(it.lines())


@in_virtual_time_over_sockets
async def test_a_refused_object_is_named_and_the_rest_is_done() -> None:
    async with lab() as it:
        it.fake.forbidden = {("patch", "configmaps")}
        it.folder(manifest("ConfigMap", "a"), daemons("v0.1"))
        answered = await once(it.keeper, 10)
        assert answered.code == 1
        assert "refused ConfigMap/kube-system/a: 403 Forbidden" in answered.text
        assert it.get("daemonsets", "proxy-v0.1") is not None
        assert sum("refused" in line for line in it.lines()) == 1


@in_virtual_time_over_sockets
async def test_once_ends_when_all_is_done_or_the_time_is_over() -> None:
    async with lab() as it:
        it.folder(manifest("ConfigMap", "a"))
        answered = await once(it.keeper, 60)
        assert (answered.code, answered.data["done"], answered.text) == (0, True, "done")
        it.folder(daemons("v0.1"))
        await once(it.keeper, 60)
        it.folder(daemons("v0.2"))
        began = now()
        answered = await once(it.keeper, 60)
        assert (answered.code, 60 - SOON <= now() - began <= 60) == (1, True)
        assert "hold DaemonSet/kube-system/proxy-v0.1" in answered.text


@in_virtual_time_over_sockets
async def test_workloads_are_waited_for_when_that_is_asked_for() -> None:
    async with lab() as it:
        it.folder(daemons("v0.1"))
        answered = await once(it.keeper, 60)
        assert (answered.code, answered.data["unready"]) == (0, ("DaemonSet/kube-system/proxy-v0.1",))
        answered = await once(it.keeper, 10, wait=True)
        assert (answered.code, "not ready: DaemonSet/kube-system/proxy-v0.1" in answered.text) == (1, True)
        asyncio.get_running_loop().call_later(5, it.ready, "proxy-v0.1")
        assert (await once(it.keeper, 60, wait=True)).code == 0


@in_virtual_time_over_sockets
async def test_whoever_waits_is_told_what_for_when_it_changes_and_now_and_then() -> None:
    async with lab() as it:
        it.folder(daemons("v0.1"))
        loop, name = asyncio.get_running_loop(), "DaemonSet/kube-system/proxy-v0.1"

        def available(number: int) -> None:
            it.set_status("proxy-v0.1", desiredNumberScheduled=2, updatedNumberScheduled=2, numberAvailable=number)

        loop.call_later(5, available, 0)
        loop.call_later(9, available, 1)
        loop.call_later(40, available, 2)
        assert (await once(it.keeper, 60, wait=True)).code == 0
        told = [(each["object"], each["ready"]) for each in it.said("waiting")]
        assert told == [(name, "nobody has counted its Pods yet"), (name, "0 of 2 Pods"), (name, "1 of 2 Pods")]
        again = it.said("still waiting")
        assert [each["objects"] for each in again] == [[f"{name}: 1 of 2 Pods"]] * 2
        assert [each["seconds_left"] for each in again] == [40, 30]


@in_virtual_time_over_sockets
async def test_what_has_to_stay_for_now_is_waited_for_by_name() -> None:
    async with lab() as it:
        it.folder(daemons("v0.1"))
        await it.bring()
        it.ready("proxy-v0.1")
        it.folder(daemons("v0.2"))
        answered = await once(it.keeper, 30)
        assert (answered.code, "not ready: DaemonSet/kube-system/proxy-v0.2: nobody has" in answered.text) == (1, True)
        first, second = it.said("still waiting")[0]["objects"]
        assert first.startswith("DaemonSet/kube-system/proxy-v0.2: ")
        assert second.startswith("DaemonSet/kube-system/proxy-v0.1: it goes when DaemonSet/kube-system/proxy-v0.2 is")


@in_virtual_time_over_sockets
async def test_a_plan_shows_itself_and_changes_nothing() -> None:
    async with lab() as it:
        it.folder(manifest("ConfigMap", "a"))
        answered = await preview(it.keeper)
        assert (answered.code, answered.text, it.written) == (1, "create ConfigMap/kube-system/a", [])
        await it.bring()
        assert (await preview(it.keeper)).text == "no difference"
        it.bad = UnreachableError("down")
        assert (await preview(it.keeper)).code == 2


@in_virtual_time_over_sockets
async def test_an_api_that_fails_is_asked_again_and_told_of_once() -> None:
    async with lab() as it:
        it.folder(manifest("ConfigMap", "a"))
        it.bad = Refusal(503, "ServiceUnavailable", "starting")
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.call_later(20, setattr, it, "bad", None)
        loop.call_later(200, stop.set)
        await for_ever(it.keeper, 60, stop)
        assert it.get("configmaps", "a") is not None
        assert it.lines()[1:] == ["created", "ended"]
        assert "503 ServiceUnavailable" in it.lines()[0]
        # Every 2 s while the API is down, one that does it, one that sees it done, and one a minute from then on.
        assert it.reads == 10 + 1 + 1 + 2


@in_virtual_time_over_sockets
async def test_troubles_that_end_together_are_told_in_their_order() -> None:
    async with lab() as it:
        names = [f"file-{number:02}.json" for number in range(12)]
        it.files = {name: Present(b"{") for name in names}
        await it.bring()
        it.folder(manifest("ConfigMap", "a"))
        await it.bring()
        assert [record["trouble"].partition(":")[0] for record in it.said("ended")] == names
