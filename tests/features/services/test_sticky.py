"""What is said of clients that find no room in the map that remembers them; server/test_forgotten.py fills it."""

from podgate.features.services.health import Taken
from podgate.features.services.sticky import Plan, Unremembered, why
from podgate.model.frozen import ObjectRef
from podgate.model.table import Table

FOUR, SIX = Unremembered("ip"), Unremembered("ip6")


def test_a_plan_shows_its_families_and_each_may_be_refused() -> None:
    plan = Plan((FOUR, SIX))
    assert (
        str(plan) == plan.brief() == "remember new IPv4 clients with affinity\nremember new IPv6 clients with affinity"
    )
    assert plan.without(plan.touches()) == Plan()
    assert plan.without([FOUR]) == Plan((SIX,))
    assert not Plan()


def test_it_is_the_nodes_problem() -> None:
    problem = Taken("node-1", Table())(SIX, why(SIX))
    assert problem is not None
    assert (problem.ref, problem.severity) == (ObjectRef("Node", "node-1"), "warning")
    assert problem.reason == "ClientsNotRemembered"
    assert problem.message.startswith("there is room for 1,048,576 IPv6 clients of all Services")
