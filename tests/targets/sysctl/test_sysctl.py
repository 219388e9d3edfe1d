"""Parameters of the kernel: the plan as a table, and the same histories in memory and in files."""

import asyncio
from pathlib import Path

import pytest

from podgate.targets.sysctl.apply import SysctlTarget
from podgate.targets.sysctl.diff import diff
from podgate.targets.sysctl.fake import FakeSysctl
from podgate.targets.sysctl.render import listing
from podgate.targets.sysctl.state import State

MAX, TIMEOUT = "net/netfilter/nf_conntrack_max", "net/netfilter/nf_conntrack_udp_timeout"

PLANS = {
    "nothing wanted": ({MAX: 1}, {}, {}),
    "as it is": ({MAX: 5}, {MAX: 5}, {}),
    "less than at least": ({MAX: 4}, {MAX: 5}, {MAX: 5}),
    "more than at least": ({MAX: 6}, {MAX: 5}, {}),
    "more than exactly": ({TIMEOUT: 6}, {TIMEOUT: 5}, {TIMEOUT: 5}),
    "missing": ({}, {TIMEOUT: 5}, {TIMEOUT: 5}),
}


@pytest.mark.parametrize(("have", "want", "to_set"), PLANS.values(), ids=PLANS)
def test_plans(have: dict[str, int], want: dict[str, int], to_set: dict[str, int]) -> None:
    assert dict(diff(State(have), State(want, frozenset({MAX}))).to_set) == to_set


def test_a_plan_and_a_state_show_themselves() -> None:
    want = State({MAX: 5, TIMEOUT: 30}, frozenset({MAX}))
    assert str(diff(State({MAX: 4}), want)) == f"~ {MAX} = 5, was 4\n~ {TIMEOUT} = 30, which this kernel lacks"
    assert listing(want) == f"{MAX} = 5  # at least\n{TIMEOUT} = 30\n"


def in_files(root: Path, values: dict[str, int]) -> SysctlTarget:
    for name, value in values.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{value}\n")
    return SysctlTarget((MAX, TIMEOUT), root)


@pytest.mark.parametrize("kind", ["files", "fake"])
def test_what_can_be_set_is_set_and_the_rest_is_refused_with_what_to_do(kind: str, tmp_path: Path) -> None:
    target = in_files(tmp_path, {MAX: 4}) if kind == "files" else FakeSysctl({MAX: 4})

    async def story() -> tuple[dict[object, str], State]:
        plan = target.diff(await target.read(), State({MAX: 5, TIMEOUT: 30}))
        return dict(await target.apply(plan)), await target.read()

    refused, after = asyncio.run(story())
    assert after.values == {MAX: 5}
    assert list(refused) == [TIMEOUT]
    assert "load the module" in refused[TIMEOUT]


def test_a_parameter_that_is_read_only_says_where_to_set_it() -> None:
    target = FakeSysctl({MAX: 4}, readonly=[MAX])
    refused = asyncio.run(target.apply(diff(State({MAX: 4}), State({MAX: 5}))))
    assert "privileged init container" in refused[MAX]
