"""Plans for addresses, and what the fake makes of them."""

import asyncio
from ipaddress import ip_interface

import pytest

from podgate.joints import ApplyError
from podgate.targets.addresses.diff import diff
from podgate.targets.addresses.fake import FakeAddresses
from podgate.targets.addresses.render import listing, state_json
from podgate.targets.addresses.state import Assigned, Place, State

PLACE = Place("lo", ip_interface("169.254.169.252/32"))
HOST = State(frozenset({Assigned(PLACE, "host")}))
GLOBAL = State(frozenset({Assigned(PLACE, "global")}))


def test_equal_states_are_no_plan() -> None:
    assert not diff(HOST, HOST)
    assert str(diff(HOST, HOST)) == ""


def test_a_plan_shows_itself() -> None:
    assert str(diff(State(), HOST)) == "+ 169.254.169.252/32 on lo, scope host"
    assert str(diff(HOST, State())) == "- 169.254.169.252/32 on lo, scope host"
    assert str(diff(GLOBAL, HOST)).splitlines() == [
        "- 169.254.169.252/32 on lo, scope global",
        "+ 169.254.169.252/32 on lo, scope host",
    ]
    assert list(diff(GLOBAL, HOST).touches()) == [PLACE]
    assert str(diff(GLOBAL, HOST).without([PLACE])) == str(diff(GLOBAL, HOST)).splitlines()[0]


def test_shown() -> None:
    assert listing(HOST) == "169.254.169.252/32 on lo, scope host\n"
    assert state_json(HOST) == [{"device": "lo", "address": "169.254.169.252/32", "scope": "host"}]


@pytest.mark.parametrize("have", [State(), GLOBAL, HOST])
def test_the_fake_gets_from_each_state_to_each(have: State) -> None:
    async def walk() -> None:
        fake = FakeAddresses([PLACE], present=have.assigned)
        for want in (HOST, State(), GLOBAL):
            await fake.apply(fake.diff(await fake.read(), want))
            assert await fake.read() == want

    asyncio.run(walk())


def test_the_fake_refuses_what_the_kernel_refuses() -> None:
    fake = FakeAddresses([PLACE], devices=["eth0"])
    with pytest.raises(ApplyError, match="there is no device lo"):
        asyncio.run(fake.apply(diff(State(), HOST)))
