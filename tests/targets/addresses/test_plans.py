"""Plans for addresses; what the kernel makes of them is in test_kernel.py."""

from ipaddress import ip_interface

from podgate.targets.addresses.diff import diff
from podgate.targets.addresses.render import listing, state_json
from podgate.targets.addresses.state import Assigned, DeviceAddress, State

PLACE = DeviceAddress("lo", ip_interface("169.254.169.252/32"))
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
