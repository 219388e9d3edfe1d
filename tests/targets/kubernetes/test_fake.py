"""The API in memory refuses what the real one refuses, and ends where a plan says."""

import pytest

from podgate.model.frozen import ObjectRef
from podgate.targets.kubernetes.fake import FakeKubernetes
from podgate.targets.kubernetes.state import EMPTY, Notice, Part, Subject, labels_of, own_object, state_of, status_of
from tests.support.asynchronous import in_loop

MAP, OWN = ObjectRef("ConfigMap", "a", "ns"), ObjectRef("ConfigMap", "own", "ns")
NOTICE = (Notice(MAP, "Odd", "it is odd"), Subject())
WANT = state_of([status_of(MAP, {"a": 1}), own_object(OWN, {}, "podgate")], [NOTICE])


@in_loop
async def test_it_ends_where_the_plan_says() -> None:
    fake = FakeKubernetes([MAP])
    assert await fake.apply(fake.diff(await fake.read(), WANT)) == {}
    assert (await fake.read()).parts == WANT.parts
    assert fake.told == [NOTICE]
    assert await fake.apply(fake.diff(await fake.read(), EMPTY)) == {}
    assert await fake.read() == EMPTY


@pytest.mark.parametrize("part", [status_of(MAP, {"a": 1}), labels_of(MAP, {"a": "b"})])
@in_loop
async def test_it_refuses_objects_that_are_not_there(part: tuple[Part, object]) -> None:
    fake = FakeKubernetes()
    assert list(await fake.apply(fake.diff(EMPTY, state_of([part])))) == [part[0]]  # type: ignore[list-item]


@in_loop
async def test_it_refuses_what_others_own_unless_it_is_forced() -> None:
    fake = FakeKubernetes([MAP])
    fake.owned.add(Part(MAP))
    assert await fake.apply(fake.diff(EMPTY, state_of([labels_of(MAP, {"a": "b"})])))
    assert not await fake.apply(fake.diff(EMPTY, state_of([labels_of(MAP, {"a": "b"}, force=True)])))
