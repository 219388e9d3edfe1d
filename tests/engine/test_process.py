"""The process around a host: signals stop it in order."""

import asyncio
import gc
import io
import os
import signal
from collections.abc import Iterator

import pytest

from podgate.engine.host import Host, Sources, Work
from podgate.engine.kept import Unkept
from podgate.engine.process import serve
from podgate.engine.single import AlreadyRunningError, only_one
from podgate.engine.status import Status
from podgate.joints import Compiled
from podgate.model.machine import Machine
from podgate.model.snapshot import Snapshot
from podgate.observe.logs import Log
from podgate.sources.constant import Constant

THRESHOLDS = (5000, 20, 100)


@pytest.fixture(autouse=True)
def _garbage_as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)
    gc.enable()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_in_order_and_is_no_failure(number: signal.Signals) -> None:
    async def stopped() -> int:
        with only_one(f"engine-process-{os.getpid()}") as claim:
            serving = asyncio.create_task(serve(idle(), claim, {}, THRESHOLDS))  # noqa: TID251 - awaited here
            await asyncio.sleep(0)
            os.kill(os.getpid(), number)
            return await serving

    assert asyncio.run(stopped()) == 0
    assert gc.get_threshold() == THRESHOLDS


@pytest.mark.parametrize("starting", [0.001, 600.0])
def test_garbage_is_looked_for_once_the_start_is_over(starting: float) -> None:
    async def served() -> None:
        with only_one(f"engine-process-{os.getpid()}") as claim:
            serving = asyncio.create_task(  # noqa: TID251 - awaited here
                serve(idle(), claim, {}, THRESHOLDS, starting=starting)
            )
            await asyncio.sleep(0)
            assert not gc.isenabled()
            while starting < 1 and not gc.isenabled():
                await asyncio.sleep(0.001)
            os.kill(os.getpid(), signal.SIGTERM)
            await serving

    gc.unfreeze()
    asyncio.run(served())
    assert gc.isenabled() == (starting < 1)
    assert bool(gc.get_freeze_count()) == (starting < 1)


def test_the_holder_of_a_claim_is_named_however_often_it_was_asked_before() -> None:
    feature = f"engine-process-{os.getpid()}"

    async def asked() -> None:
        with only_one(feature) as claim:
            serving = asyncio.create_task(serve(idle(), claim, {}, THRESHOLDS))  # noqa: TID251 - awaited here
            for _ in range(300):
                with pytest.raises(AlreadyRunningError, match=rf"process {os.getpid()}"), only_one(feature):
                    pass
                await asyncio.sleep(0)
            os.kill(os.getpid(), signal.SIGTERM)
            assert await serving == 0

    asyncio.run(asked())


def idle() -> Host[None]:
    """Give a host with nothing to write."""
    work: Work[None] = Work(
        compiler=lambda _inputs: Compiled(None),
        steps=(),
        samples=lambda _states: (),
        recover=lambda _read_back: {},
        describe=lambda problem, _inputs: problem.message,
    )
    sources = Sources(Constant(Snapshot()), Constant({}), Constant(Machine()))
    return Host(work, sources, Unkept(), Status("idle", [], Log(io.StringIO())))
