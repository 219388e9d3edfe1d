"""Telling against an API server over real HTTP that refuses, is deaf, or has not all kinds: the rules come first."""

import contextlib
import io
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from podgate.engine.status import Status
from podgate.joints import Compiled, Inputs, Step
from podgate.kubeapi.access import Access
from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.kinds.config import Namespace
from podgate.model.kinds.nodes import NODE
from podgate.model.kinds.reports import FEATURE_LABEL
from podgate.model.problems import Problem, problems_by_object
from podgate.model.snapshot import Kind, Watch
from podgate.observe.logs import Log
from podgate.targets.kubernetes.reports import Condition
from tests.support.asynchronous import in_loop
from tests.support.chaos_proxy import ChaosProxy, Fault
from tests.support.fake_apiserver import RESOURCES, FakeApiServer
from tests.support.fake_objects import Resource
from tests.support.fake_target import FakeTarget
from tests.support.poll import poll_async
from tests.support.telling_agent import telling_agent

COLORS = Resource("example.com", "v1", "Color", "colors", False)
COLOR: Kind[Namespace] = Kind("example.com", "v1", "Color", "colors", False, Namespace)
REPORTS = Resource("podgate.dev", "v1alpha1", "NodeReport", "nodereports", False)
STEPS = ("kubernetes/node", "kubernetes/status")


class States(Frozen, frozen=True):
    names: tuple[str, ...]


class ColorTelling:
    kind: Kind[Any] = COLOR

    def conditions(self, compiled: Compiled[Any], inputs: Inputs) -> Mapping[ObjectRef, tuple[Condition, ...]]:
        return {ref: (Condition("Accepted", True, "Valid"),) for ref in inputs.objects.objects(COLOR)}

    def instead(self, compiled: Compiled[Any], inputs: Inputs) -> Mapping[ObjectRef, str]:
        return {}


class Color:
    """A feature that writes the names of colors, and finds red ones ugly."""

    name = "color"
    tells = ColorTelling()

    def watches(self, settings: None, node_name: str) -> tuple[Watch, ...]:
        return (Watch(NODE), Watch(COLOR))

    def compiler(self, settings: None) -> Callable[[Inputs], Compiled[States]]:
        def compile_(inputs: Inputs) -> Compiled[States]:
            refs = sorted(inputs.objects.objects(COLOR))
            ugly = [Problem(ref, "error", "Ugly", "", "choose another") for ref in refs if ref.name.startswith("red")]
            return Compiled(States(tuple(ref.name for ref in refs)), problems_by_object(ugly))

        return compile_


class Running(NamedTuple):
    server: FakeApiServer
    rules: FakeTarget
    status: Status
    out: io.StringIO

    def complaints(self) -> list[tuple[str, str]]:
        """Give step and text of each line that is worse than news, but for those about what users wrote."""
        lines = [json.loads(line) for line in self.out.getvalue().splitlines()]
        bad = [line for line in lines if line["level"] != "info" and "step" in line]
        return [(line["step"], line.get("error") or line["message"]) for line in bad]

    def color(self, name: str) -> None:
        self.server.put("colors", {"metadata": {"name": name}})

    async def holds(self, *names: str) -> None:
        """Wait until the rules are about these colors."""
        await poll_async(lambda: self.rules.state == dict.fromkeys(names, "yes"))

    def status_of(self, name: str) -> Any:
        return self.server.objects.of("colors").objects["", name].get("status", {})


@asynccontextmanager
async def running(server: FakeApiServer, url: str = "") -> AsyncIterator[Running]:
    server.put("nodes", {"metadata": {"name": "n1"}})
    rules, out = FakeTarget(), io.StringIO()
    own: Step[States, Any, Any] = Step("rules", rules, lambda states: dict.fromkeys(states.names, "yes"), {})
    access = Access(url or server.url, namespace="kube-system")
    log = Log(out, "json", lambda: 0.0)
    async with telling_agent(Color(), None, access, "n1", log, own=(own,)) as status:
        yield Running(server, rules, status, out)


@in_loop
async def test_what_is_written_is_told() -> None:
    async with FakeApiServer(*RESOURCES, COLORS, REPORTS).serving() as server, running(server) as agent:
        agent.color("blue")
        agent.color("red")
        await poll_async(lambda: agent.status_of("blue").get("nodes", {}).get("summary") == "1/1")
        (report,) = server.objects.of("nodereports").objects.values()
        assert [entry["name"] for entry in report["applied"]] == ["blue", "red"]
        await poll_async(lambda: [each["reason"] for each in server.objects.of("events").objects.values()] == ["Ugly"])
        assert agent.complaints() == []
        server.remove("colors", "blue")
        await poll_async(lambda: len(server.objects.of("nodereports").objects["", "color.n1"]["applied"]) == 1)


@in_loop
async def test_an_api_that_allows_nothing_is_told_of_once_and_asked_no_more() -> None:
    async with FakeApiServer(*RESOURCES, COLORS, REPORTS).serving() as server:
        server.forbidden = {(verb, plural) for verb in ("get", "list", "create", "patch") for plural in FORBIDDEN}
        async with running(server) as agent:
            await poll_async(lambda: {step for step, _ in agent.complaints()} == set(STEPS))
            for number in range(20):
                agent.color(f"blue-{number}")
                await agent.holds(*(f"blue-{each}" for each in range(number + 1)))
            assert agent.status.unready() == ()
            assert all("403 Forbidden" in text for _, text in agent.complaints())
            assert len(agent.complaints()) == 2
            asked = [path for _, path, _ in server.requests if path.split("/")[-1] in (*FORBIDDEN, "podgate-color")]
            assert len(asked) == 2, asked


FORBIDDEN = ("nodereports", "leases", "events")


@in_loop
async def test_an_api_that_takes_writes_and_never_answers_holds_up_no_rules() -> None:
    async with (
        FakeApiServer(*RESOURCES, COLORS, REPORTS).serving() as server,
        ChaosProxy(server.url).serving() as proxy,
    ):
        proxy.strike(Fault(delay=3600, times=1000, asked=is_about_telling))
        async with running(server, proxy.url) as agent:
            for number in range(5):
                agent.color(f"blue-{number}")
                await agent.holds(*(f"blue-{each}" for each in range(number + 1)))
            assert agent.status.unready() == ()
            assert server.objects.of("nodereports").objects == {}


def is_about_telling(line: str) -> bool:
    return not line.startswith("GET") or "/leases/" in line or "nodereports?fieldSelector" in line


@in_loop
async def test_without_the_kind_of_reports_a_status_says_what_it_can() -> None:
    async with FakeApiServer(*RESOURCES, COLORS).serving() as server, running(server) as agent:
        agent.color("blue")
        await poll_async(lambda: agent.status_of("blue"))
        assert [each["type"] for each in agent.status_of("blue")["conditions"]] == ["Accepted"]
        assert agent.status.unready() == ()


@in_loop
async def test_two_agents_make_one_status_and_one_event_and_the_second_takes_over() -> None:
    async with FakeApiServer(*RESOURCES, COLORS, REPORTS).serving() as server:
        server.put("nodes", {"metadata": {"name": "n2"}})
        access, out = Access(server.url, namespace="kube-system"), io.StringIO()
        async with telling_agent(Color(), None, access, "n2", Log(out, "json", lambda: 0.0)):
            async with running(server) as agent:
                agent.color("red")
                await poll_async(lambda: agent.status_of("red").get("nodes", {}).get("summary") == "2/2")
                await poll_async(lambda: len(server.objects.of("events").objects) == 1)
            agent.color("red-two")
            # The report of the one that was stopped stays, as its rules do, and is behind now.
            await poll_async(lambda: agent.status_of("red-two").get("nodes", {}).get("summary") == "1/2")
            assert len(server.objects.of("events").objects) == 2


@in_loop
async def test_an_edit_costs_one_report_a_node_and_a_few_writes_of_the_object_itself() -> None:
    """However many nodes there are: no two write the same object, and the leader alone hears of reports."""
    nodes = [f"n{number}" for number in range(20)]
    async with FakeApiServer(*RESOURCES, COLORS, REPORTS).serving() as server, contextlib.AsyncExitStack() as agents:
        for name in nodes:
            server.put("nodes", {"metadata": {"name": name}})
            access, log = Access(server.url, namespace="kube-system"), Log(io.StringIO(), "json", lambda: 0.0)
            await agents.enter_async_context(telling_agent(Color(), None, access, name, log))

        async def counted(name: str) -> Counter[str]:
            """Count the requests that one more color costs, by what they are for."""
            before = len(server.requests)
            server.put("colors", {"metadata": {"name": name}})
            await poll_async(lambda: summary(server, name) == "20/20")
            return Counter(
                f"{method} {path.rpartition('/v1alpha1/')[2]}" for method, path, _ in server.requests[before:]
            )

        await counted("first")
        asked = await counted("second")
        assert {asked[f"PATCH nodereports/color.{name}"] for name in nodes} == {1}
        assert 1 <= asked["PATCH /apis/example.com/v1/colors/second/status"] < 8
        assert asked["GET nodereports"] == 0
        watching = {path for _, path, query in server.requests if query.get("labelSelector")}
        assert watching == {"/apis/podgate.dev/v1alpha1/nodereports"}
        assert sum("labelSelector" in query for _, _, query in server.requests) == 1


@pytest.mark.slow
@pytest.mark.parametrize("streaming", ["yes", "unknown"], ids=["a stream", "pages"])
@in_loop
async def test_ten_thousand_reports_that_no_agent_made_count_for_nothing(streaming: str) -> None:
    async with FakeApiServer(*RESOURCES, COLORS, REPORTS).serving() as server:
        server.streaming = streaming
        server.put("nodes", {"metadata": {"name": "n2"}})
        made_up(server, 10_000)
        async with running(server) as agent:
            agent.color("blue")
            await poll_async(lambda: summary(server, "blue") == "1/1")
            made_up(server, 10_100)
            agent.color("green")
            await poll_async(lambda: summary(server, "green") == "1/1")
            said = [line for line in agent.out.getvalue().splitlines() if "NodeReport/" in line]
            assert 0 < len(said) < 100, said
            assert agent.status.unready() == ()


def made_up(server: FakeApiServer, count: int) -> None:
    """Make reports as one node's token can, where no admission policy keeps it to its own."""
    applied = [{"kind": "Color", "name": name, "generation": 1} for name in ("blue", "green")]
    for number in range(count):
        feature, node, name = (
            ("color", f"nobody-{number}", ""),
            ("color", "n2", f"color.n2.{number}"),
            (f"color{number}", "n2", ""),
        )[number % 3]
        metadata = {"name": name or f"{feature}.{node}", "labels": {FEATURE_LABEL: "color"}}
        server.put("nodereports", {"metadata": metadata, "feature": feature, "node": node, "applied": applied})


def summary(server: FakeApiServer, color: str) -> str:
    status = server.objects.of("colors").objects["", color].get("status", {})
    found: str = status.get("nodes", {}).get("summary", "")
    return found
