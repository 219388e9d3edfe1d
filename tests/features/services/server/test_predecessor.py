"""kube-proxy's tables: left alone while it may be at work, gone once it is not."""

import pytest

from podgate.features.services.server.predecessor import (
    DEVICE_STAYS,
    IGNORED,
    NOTHING_LEFT,
    Left,
    Plan,
    PredecessorTarget,
)
from tests.support.netns import netns

LEFT = """
table ip kube-proxy {
    chain c { counter; }
    map m { type ipv4_addr : verdict; elements = { 10.0.0.1 : goto c }; }
}
table ip6 kube-proxy { chain c { counter; }; }
"""
OTHERS = "table ip other { chain c { counter; }; }"


async def stopped() -> str:
    return ""


async def working() -> str:
    return "it is at work"


@pytest.mark.parametrize(
    ("have", "want", "plan"),
    [
        (Left(("ip", "ip6")), NOTHING_LEFT, Plan(("ip", "ip6"))),
        (Left(), NOTHING_LEFT, Plan()),
        (Left(("ip",), 7), IGNORED, Plan()),
        (Left(("ip",), 7), DEVICE_STAYS, Plan(("ip",))),
        (Left((), 7), DEVICE_STAYS, Plan()),
        (Left(("ip",), 7), NOTHING_LEFT, Plan(("ip",), 7)),
        (Left((), 0, "it is at work"), DEVICE_STAYS, Plan((), 0, "it is at work")),
        (Left((), 0, "it is at work"), IGNORED, Plan()),
    ],
)
def test_plans(have: Left, want: Left, plan: Plan) -> None:
    found = PredecessorTarget(stopped).diff(have, want)
    assert (found, bool(found)) == (plan, plan != Plan())


@pytest.mark.kernel
def test_its_tables_go_once_it_has_stopped_and_others_stay() -> None:
    async def take_over(target: PredecessorTarget) -> tuple[str, dict[object, str], Left]:
        plan = target.diff(await target.read(), NOTHING_LEFT)
        refused = await target.apply(plan)
        return str(plan), dict(refused), await target.read()

    with netns() as namespace:
        namespace.run("nft", "-f", "-", text=LEFT + OTHERS)
        _, refused, left = namespace.run_async(lambda: take_over(PredecessorTarget(working)))
        assert refused == {"kube-proxy": "its tables stay beside ours: it is at work; stop it, and they go"}
        assert left == Left(("ip", "ip6"))
        plan, refused, left = namespace.run_async(lambda: take_over(PredecessorTarget(stopped)))
        assert plan == "- table ip kube-proxy: left by kube-proxy\n- table ip6 kube-proxy: left by kube-proxy"
        assert (refused, left) == ({}, NOTHING_LEFT)
        assert namespace.run("nft", "list", "tables") == "table ip other\n"


@pytest.mark.kernel
def test_the_device_of_mode_ipvs_goes_where_all_is_to_go() -> None:
    with netns() as namespace:
        target = PredecessorTarget(stopped)
        # Not every kernel has dummy devices; it is known by its name.
        namespace.run("ip", "link", "add", "kube-ipvs0", "type", "bridge")
        left = namespace.run_async(target.read)
        assert (left.families, bool(left.device)) == ((), True)
        plan = target.diff(left, NOTHING_LEFT)
        assert "- device kube-ipvs0" in str(plan)
        assert namespace.run_async(lambda: target.apply(plan)) == {}
        assert namespace.run_async(target.read) == NOTHING_LEFT


@pytest.mark.kernel
def test_a_kube_proxy_that_writes_the_same_chains_is_told_of() -> None:
    with netns() as namespace:
        target = PredecessorTarget(working, shares=True)
        plan = target.diff(namespace.run_async(target.read), DEVICE_STAYS)
        assert str(plan) == "! kube-proxy writes the same chains of iptables as podgate: it is at work"
        told = "it writes the same chains of iptables as podgate: it is at work; stop one of them"
        assert namespace.run_async(lambda: target.apply(plan)) == {"kube-proxy": told}
        assert plan.without([*plan.touches()]) == Plan()
        assert namespace.run_async(PredecessorTarget(stopped, shares=True).read) == NOTHING_LEFT


@pytest.mark.kernel
def test_tables_that_come_back_by_themselves_stay_until_somebody_is_seen_to_stop() -> None:
    seen = ["", "", "it is at work", ""]

    async def whatever_is_seen() -> str:
        return seen.pop(0)

    with netns() as namespace:
        target = PredecessorTarget(whatever_is_seen)
        said = []
        while seen:
            namespace.run("nft", "-f", "-", text=LEFT)
            said.append(dict(namespace.run_async(lambda: target.apply(Plan(("ip", "ip6"))))).get("kube-proxy", "gone"))
        assert said[0] == said[3] == "gone"
        assert "they came back after they had been removed" in said[1]
        assert "it is at work" in said[2]
