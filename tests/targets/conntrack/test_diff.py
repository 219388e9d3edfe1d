"""A plan names what must not be there, and nothing once it is gone."""

from ipaddress import ip_address

from podgate.targets.conntrack.diff import Plan, diff
from podgate.targets.conntrack.state import Barred, Flow, State

CLIENT, SERVER, OTHER = map(ip_address, ("10.0.0.1", "10.0.0.2", "10.0.0.3"))


def flow(port: int) -> Flow:
    return Flow(CLIENT, SERVER, SERVER, CLIENT, "tcp", port, 80)


WANT = State(barred=(Barred(OTHER, frozenset({80})), Barred(SERVER, frozenset({80}))))


def test_a_plan_is_in_order_and_prints_itself() -> None:
    plan = diff(State(frozenset({flow(3), flow(2)})), WANT)
    assert str(plan) == "- connection tcp 10.0.0.1:2 > 10.0.0.2:80\n- connection tcp 10.0.0.1:3 > 10.0.0.2:80"
    assert plan.touches() == ()


def test_nothing_to_cut_is_no_plan() -> None:
    assert not diff(State(), WANT)
    assert not diff(WANT, WANT)
    assert not diff(State(frozenset({flow(2)})), State())
    assert not Plan()
