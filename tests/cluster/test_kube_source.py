"""The source of objects against the real kube-apiserver: what the fake one in tests/sources/kube stands for."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from podgate.kubeapi.access import Access
from podgate.kubeapi.credentials import load_kubeconfig
from podgate.model.kinds.config import CONFIG_MAP
from podgate.model.kinds.nodes import NODE
from podgate.model.snapshot import Kind, Watch
from tests.support import api_days as days
from tests.support.api_days import DAYS, LABEL, ApiServer, config_map, lists, watched
from tests.support.asynchronous import in_loop
from tests.support.chaos_proxy import ChaosProxy, Fault
from tests.support.cluster import ControlPlane
from tests.support.etcd import keep, restore
from tests.support.kube_source import running
from tests.support.poll import poll_async
from tests.support.real_api import RealApi

GADGET = Kind("podgate.test", "v1", "Gadget", "gadgets", True, CONFIG_MAP.decodes_to)
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "gadgets.podgate.test"},
    "spec": {
        "group": "podgate.test",
        "scope": "Namespaced",
        "names": {"plural": "gadgets", "kind": "Gadget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


@pytest.fixture
def api(plane: ControlPlane) -> RealApi:
    return RealApi(plane)


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
async def test_a_day(api: RealApi, scenario: Callable[[ApiServer, Fault], Awaitable[None]], fault: Fault) -> None:
    await scenario(api, fault)


@pytest.mark.parametrize(
    "scenario",
    [days.a_server_that_is_gone_changes_nothing_and_costs_no_new_list, days.a_watch_that_falls_silent_is_noticed],
)
@in_loop
async def test_a_bad_day(api: RealApi, scenario: Callable[[ApiServer], Awaitable[None]]) -> None:
    await scenario(api)


@in_loop
async def test_lists_are_streamed_and_come_in_pages_where_that_is_refused(api: RealApi) -> None:
    names = {f"c{number}" for number in range(12)}
    for name in names:
        api.put("configmaps", config_map(name))
    async with ChaosProxy(api.url, api.upstream).serving() as proxy:
        async with running(proxy.url, Watch(CONFIG_MAP, "default", LABEL)) as source:
            await source.until(CONFIG_MAP, names)
        assert [("sendInitialEvents" in line, "limit" in line) for line in proxy.lines] == [(True, False)]
        message = "the storage feature RequestWatchProgress is disabled"
        proxy.strike(Fault(status=500, reason="InternalError", message=message))
        async with running(proxy.url, Watch(CONFIG_MAP, "default", LABEL)) as source:
            await source.until(CONFIG_MAP, names)
        assert any("limit=500" in line for line in proxy.lines)


@in_loop
async def test_a_client_certificate_and_selectors(api: RealApi) -> None:
    access = load_kubeconfig(str(api.plane.kubeconfig))
    for name in ("a", "b"):
        api.put("configmaps", config_map(name))
    watch = Watch(CONFIG_MAP, "default", LABEL, "metadata.name=b")
    async with running(access.server, watch, access=access) as source:
        await source.until(CONFIG_MAP, {"b"})


@in_loop
async def test_a_killed_api_server_changes_nothing_and_is_found_again(api: RealApi) -> None:
    async with watched(api) as (_, source):
        await source.until(CONFIG_MAP, {"a", "b"})
        kept, shown = source.get(CONFIG_MAP, "b"), len(source.snapshots)
        api.plane.stop_part("kube-apiserver", signal.SIGKILL)
        try:
            await poll_async(lambda: "cannot watch ConfigMap" in source.trouble)
            assert len(source.snapshots) == shown
        finally:
            api.plane.start_part("kube-apiserver")
        api.put("configmaps", config_map("c"))
        await source.until(CONFIG_MAP, {"a", "b", "c"})
        assert source.get(CONFIG_MAP, "b") is kept


@in_loop
async def test_a_version_that_is_forgotten_means_one_new_list(api: RealApi) -> None:
    async with watched(api) as (proxy, source):
        await source.until(CONFIG_MAP, {"a", "b"})
        proxy.down = True
        proxy.cut_all()
        api.remove("configmaps", "a")
        # A server that starts remembers nothing from before.
        api.plane.stop_part("kube-apiserver")
        api.plane.start_part("kube-apiserver")
        api.put("configmaps", config_map("c"))
        proxy.down = False
        await source.until(CONFIG_MAP, {"b", "c"})
        assert lists(proxy) <= 2


@in_loop
async def test_a_kind_that_is_installed_later_is_found_and_one_that_goes_is_absent(api: RealApi) -> None:
    api.remove("customresourcedefinitions", "gadgets.podgate.test")
    access = load_kubeconfig(str(api.plane.kubeconfig))
    async with running(access.server, Watch(GADGET), Watch(NODE), access=access) as source:
        await source.until(GADGET, "not installed")
        api.put("customresourcedefinitions", CRD)
        await poll_async(lambda: source.names(GADGET) == set())
        gadget = {"apiVersion": "podgate.test/v1", "kind": "Gadget", "metadata": {"name": "g"}, "data": {"a": "b"}}
        api.put("gadgets", gadget)
        await source.until(GADGET, {"g"})
        api.put("gadgets", {**gadget, "data": {"a": 7}, "metadata": {"name": "bad"}})
        await poll_async(lambda: source.newest.faults)
        assert source.newest.faults[0].field == "data"
        api.remove("customresourcedefinitions", "gadgets.podgate.test")
        await poll_async(lambda: source.names(GADGET) == "not installed")


@in_loop
async def test_what_is_forbidden_is_absent_until_a_role_allows_it(api: RealApi) -> None:
    api.remove("clusterrolebindings", "podgate-test")
    api.put("clusterroles", {"metadata": {"name": "podgate-test"}, "rules": [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}]})  # fmt: skip
    access: Access = load_kubeconfig(str(api.plane.login("podgate-nobody")))
    async with running(access.server, Watch(CONFIG_MAP, "default", LABEL), access=access) as source:
        await source.until(CONFIG_MAP, "forbidden")
        assert "403 Forbidden" in source.trouble
        api.put("configmaps", config_map("a"))
        api.put("clusterrolebindings", {
            "metadata": {"name": "podgate-test"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "podgate-test"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "podgate-nobody"}],
        })  # fmt: skip
        await poll_async(lambda: source.names(CONFIG_MAP) == {"a"})


@pytest.mark.timeout(400)  # the control plane is started three times
@in_loop
async def test_a_store_that_was_restored_to_an_older_state_is_listed_again(api: RealApi, tmp_path: Path) -> None:
    async with watched(api) as (proxy, source):
        await source.until(CONFIG_MAP, {"a", "b"})
        keep(api.plane, tmp_path / "etcd")
        await written(api, "c", 40)
        await source.until(CONFIG_MAP, {"a", "b", "c"})
        await asyncio.to_thread(restore, api.plane, tmp_path / "etcd")
        await source.until(CONFIG_MAP, {"a", "b"})
        await written(api, "c", 40)
        await source.until(CONFIG_MAP, {"a", "b", "c"})
        proxy.down = True
        proxy.cut_all()
        restore(api.plane, tmp_path / "etcd")
        # When the watch is let in, the version is as high as before, and the object that it heard of is not there.
        await written(api, "d", 60)
        proxy.down = False
        await source.until(CONFIG_MAP, {"a", "b", "d"})


async def written(api: RealApi, name: str, times: int) -> None:
    """Change an object so often."""
    for number in range(times):
        await asyncio.to_thread(api.put, "configmaps", config_map(name, k=str(number)))
