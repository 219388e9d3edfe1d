"""What the untainting agent asks for, that it needs an API, and that it tries again what is still to be done."""

import asyncio
import io
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from podgate.engine.reconcile import Board, StepTask
from podgate.engine.status import Status
from podgate.features.metadata.untaint.compile import States
from podgate.features.metadata.untaint.feature import FEATURE, RESYNC
from podgate.features.metadata.untaint.settings import UntaintSettings
from podgate.joints import Compiled, Key, SourceError
from podgate.observe.logs import Log
from podgate.targets.kubernetes.taints import Plan, Tainted, Taints
from podgate.targets.kubernetes.untainting import TaintsTarget
from tests.support.fake_target import Heard
from tests.support.virtual_time import in_virtual_time, now


def test_it_watches_all_nodes_and_the_proxies_alone() -> None:
    assert [
        (each.kind.plural, each.namespace, each.label_selector) for each in FEATURE.watches(UntaintSettings(), None)
    ] == [
        ("nodes", "", ""),
        ("pods", "kube-system", "k8s-app=metadata-proxy"),
    ]
    assert FEATURE.files(UntaintSettings()) == ()


def test_without_an_api_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODGATE_SOURCE", "/objects")
    with pytest.raises(SourceError, match="in an API only"):
        FEATURE.steps(UntaintSettings())


def test_it_counts_and_serves_the_usual_pages() -> None:
    settings = UntaintSettings()
    assert [sample.value for sample in FEATURE.samples(States(Taints(), 3))] == [3]
    assert FEATURE.recover({}) == {}
    assert FEATURE.pages(settings, Status("x", (), Log(io.StringIO()))) == {}
    assert FEATURE.instance(settings) == "metadata_untaint"


class Freeing(TaintsTarget):
    """Frees in memory, and remembers when."""

    def __init__(self) -> None:
        self.freed: list[tuple[float, str]] = []

    async def apply(self, plan: Plan) -> Mapping[Key, str]:
        self.freed += [(now(), each.node) for each in plan.nodes]
        return {}


@in_virtual_time
async def test_a_taint_that_is_there_again_within_one_event_is_taken_away_again(tmp_path: Path) -> None:
    config = {"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}]}
    config |= {"contexts": [{"name": "c", "context": {"cluster": "c"}}], "current-context": "c"}  # type: ignore[dict-item]
    (tmp_path / "config").write_bytes(msgspec.json.encode(config))
    (step,) = FEATURE.steps(UntaintSettings(kubeconfig=str(tmp_path / "config")))
    target, tainted = Freeing(), States(Taints(frozenset({Tainted("a", "uid", "key", (0,))})), 1)
    board: Board[States] = Board((msgspec.structs.replace(step, target=target),))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(StepTask(board.steps[0], board, Heard(), lambda: 0.0).run())
        began = now()
        for compiled in (tainted, tainted):
            board.publish(Compiled(compiled))
            await asyncio.sleep(1)
        await asyncio.sleep(RESYNC)
        board.publish(Compiled(States(Taints())))
        await asyncio.sleep(10 * RESYNC)
        task.cancel()
    assert [node for _, node in target.freed] == ["a", "a"]
    assert target.freed[1][0] - began <= RESYNC + 1
