"""The iptables target against the real kernel: both programs, both families, in network namespaces of their own."""

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from podgate.joints import ApplyError
from podgate.linux.namespaces import inside_network
from podgate.model.machine import Family
from podgate.targets.iptables.apply import IptablesTarget
from podgate.targets.iptables.diff import Plan
from podgate.targets.iptables.render import render
from podgate.targets.iptables.state import Binary, State, program
from tests.support.cases import Case, read_cases
from tests.support.iptables_programs import restored, saved
from tests.support.iptables_states import BINARIES, CHAIN, FAMILIES, OWNERS, keeping, nothing, states
from tests.support.netns import NetNamespace, netns

pytestmark = pytest.mark.kernel

BOTH: Final = [(family, binary) for family in FAMILIES for binary in BINARIES]
REFUSED = read_cases(Path(__file__).parents[1] / "targets" / "iptables" / "cases" / "refused.case")
KEPT: Final = {"ip": ("10.0.0.0/8", "192.168.0.0/16"), "ip6": ("fd00::/8", "2001:db8::/32")}


@pytest.fixture(scope="module")
def shared_by() -> Iterator[dict[Binary, NetNamespace]]:
    with ExitStack() as stack:
        yield {binary: stack.enter_context(netns()) for binary in BINARIES}


def opened(
    namespace: NetNamespace, family: Family = "ip", binary: Binary = "nft", lock_seconds: int = 5
) -> IptablesTarget:
    return IptablesTarget(family, binary, OWNERS, namespace=namespace.descriptor, lock_seconds=lock_seconds)


async def load(target: IptablesTarget, want: State) -> Plan:
    plan = target.diff(await target.read(), want)
    await target.apply(plan)
    return plan


def loaded(namespace: NetNamespace, want: State) -> Plan:
    with closing(opened(namespace, want.family, want.binary)) as target:
        return asyncio.run(load(target, want))


def left(namespace: NetNamespace, want: State) -> Plan:
    """Give what a process without memory finds to do."""

    async def look() -> Plan:
        with closing(opened(namespace, want.family, want.binary)) as target:
            return target.diff(await target.read(), want)

    return asyncio.run(look())


def kept(family: Family, binary: Binary) -> State:
    return keeping(*KEPT[family], family=family, binary=binary)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "binary"), BOTH)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_plans_lead_from_any_state_to_any_other(
    family: Family, binary: Binary, data: st.DataObject, shared_by: dict[Binary, NetNamespace]
) -> None:
    async def walk() -> None:
        with closing(opened(shared_by[binary], family, binary)) as target:
            for want in data.draw(st.lists(states(family, binary), min_size=2, max_size=4)):
                await load(target, want)
                plan = target.diff(await target.read(), want)
                assert not plan, str(plan)

    asyncio.run(walk())


@pytest.mark.parametrize(("family", "binary"), BOTH)
def test_a_rendered_state_loads_by_hand(family: Family, binary: Binary, namespace: NetNamespace) -> None:
    want = kept(family, binary)
    restored(namespace, render(want), family, binary)
    plan = left(namespace, want)
    assert not plan, str(plan)


@pytest.mark.parametrize(("family", "binary"), BOTH)
def test_nothing_is_written_when_nothing_differs(family: Family, binary: Binary, namespace: NetNamespace) -> None:
    """T38: counters keep."""
    want = kept(family, binary)
    loaded(namespace, want)
    address, kind = ("127.0.0.1", socket.AF_INET) if family == "ip" else ("::1", socket.AF_INET6)
    restored(namespace, "*nat\n-I POSTROUTING -j RETURN\nCOMMIT\n", family, binary)
    with inside_network(namespace.descriptor), socket.socket(kind, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"counted", (address, 9))
    counted = saved(namespace, family, binary, "-c")
    assert "-A POSTROUTING -j RETURN" in counted
    assert "[1:" in counted
    assert not loaded(namespace, want)
    assert saved(namespace, family, binary, "-c") == counted


@pytest.mark.parametrize(("family", "binary"), BOTH)
def test_all_that_is_ours_goes_and_others_rules_stay(family: Family, binary: Binary, namespace: NetNamespace) -> None:
    foreign = "*nat\n:KUBE-X - [0:0]\n-A KUBE-X -j MASQUERADE\n-A POSTROUTING -p udp -j KUBE-X\nCOMMIT\n"
    restored(namespace, foreign, family, binary)
    before = saved(namespace, family, binary)
    loaded(namespace, kept(family, binary))
    assert loaded(namespace, nothing(family, binary))
    assert saved(namespace, family, binary) == before
    assert not loaded(namespace, nothing(family, binary))


DAMAGES: Final = {
    "chains are flushed and deleted": ["-F", "-X"],
    "the chain is flushed": [f"-F {CHAIN}"],
    "the jump is deleted": ["-F POSTROUTING"],
    "a rule without a comment is added": [f"-A {CHAIN} -j ACCEPT"],
    "a rule is deleted": [f"-D {CHAIN} 1"],
    "the jump is doubled": ['-A POSTROUTING -m comment --comment "old: all" -j PG-TEST'],
}


@pytest.mark.slow
@pytest.mark.parametrize("binary", BINARIES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_what_others_change_is_healed(damage: str, binary: Binary, namespace: NetNamespace) -> None:
    """T33, and a reload as firewalld does it: all rules of all programs go."""
    want = kept("ip", binary)

    async def run() -> None:
        with closing(opened(namespace, "ip", binary)) as target:
            await load(target, want)
            whole = saved(namespace, "ip", binary)
            for words in DAMAGES[damage]:
                command = f"*nat\n{words}\nCOMMIT\n"
                restored(namespace, command, "ip", binary)
            assert await load(target, want)
            assert saved(namespace, "ip", binary) == whole

    asyncio.run(run())


@pytest.mark.parametrize("binary", BINARIES)
def test_a_rule_that_comes_after_a_start_with_nothing_to_do_is_healed(binary: Binary, namespace: NetNamespace) -> None:
    want = kept("ip", binary)
    loaded(namespace, want)

    async def run() -> None:
        with closing(opened(namespace, "ip", binary)) as target:
            assert not target.diff(await target.read(), want)
            restored(namespace, f"*nat\n-A {CHAIN} -j ACCEPT\nCOMMIT\n", "ip", binary)
            await load(target, want)

    asyncio.run(run())
    assert not left(namespace, want)


@pytest.mark.slow
def test_an_observer_never_sees_a_part_of_a_change(namespace: NetNamespace) -> None:
    """T39: while a chain of 200 rules changes again and again, each listing holds one of the two, whole.

    Of iptables-legacy, whose listing is one copy of the table. iptables-nft's is several netlink dumps, which can mix
    what was before and after a transaction although no packet ever meets a mixture: it is no witness.
    """
    binary: Binary = "legacy"
    networks = [[f"10.{first + n}.0.0/16" for n in range(200)] for first in (0, 50)]
    wanted = [keeping(*each, binary=binary) for each in networks]
    loaded(namespace, wanted[0])
    stop = threading.Event()
    seen = [0, 0]
    mixed: list[set[str]] = []

    def observe() -> None:
        whole = [{f"-d {network}" for network in each} for each in networks]
        while not stop.is_set():
            lines = saved(namespace, "ip", binary).splitlines()
            found = {" ".join(line.split()[2:4]) for line in lines if line.startswith(f"-A {CHAIN} -d")}
            if found in whole:
                seen[whole.index(found)] += 1
            else:
                mixed.append(found)

    async def write() -> None:
        turn = 0
        with closing(opened(namespace, "ip", binary)) as target:
            while min(seen) < 10 and not mixed:
                await target.apply(target.diff(wanted[turn], wanted[1 - turn]))
                turn = 1 - turn
                await asyncio.sleep(0.003)

    thread = threading.Thread(target=observe)
    thread.start()
    try:
        asyncio.run(asyncio.wait_for(write(), 120))
    finally:
        stop.set()
        thread.join()
    assert mixed == []
    assert min(seen) >= 10


@pytest.mark.slow
@pytest.mark.parametrize("case", REFUSED, ids=str)
@pytest.mark.parametrize("binary", BINARIES)
def test_what_the_kernel_refuses_changes_nothing(case: Case, binary: Binary, namespace: NetNamespace) -> None:
    text = case.one("text")
    assert text is not None
    family: Family = "ip6" if case.one("family") else "ip"
    loaded(namespace, nothing(family, binary))
    before = saved(namespace, family, binary)

    async def run() -> None:
        with closing(opened(namespace, family, binary)) as target, pytest.raises(ApplyError) as refused:
            await target._iptables.restore(text.text)
        assert refused.value.reason in ("IptablesRejected", "KernelLacksFeature")
        assert program(family, binary) in str(refused.value)

    asyncio.run(run())
    assert saved(namespace, family, binary) == before


@pytest.mark.parametrize("binary", BINARIES)
def test_a_foreign_chain_is_refused_before_anything_is_touched(binary: Binary, namespace: NetNamespace) -> None:
    foreign = '*nat\n:KUBE-X - [0:0]\n-A KUBE-X -m comment --comment "kubernetes: x" -j RETURN\nCOMMIT\n'
    restored(namespace, foreign, "ip", binary)
    before = saved(namespace, "ip", binary)
    with pytest.raises(ApplyError, match="chain KUBE-X holds a rule that is not ours"):
        loaded(namespace, keeping("10.0.0.0/8", binary=binary, chain="KUBE-X"))
    assert saved(namespace, "ip", binary) == before


def test_the_old_tables_are_not_made_by_looking_at_them(namespace: NetNamespace) -> None:
    for family in FAMILIES:
        assert not loaded(namespace, nothing(family, "legacy"))
    tables = [namespace.run("cat", f"/proc/net/{name}_tables_names", check=False) for name in ("ip", "ip6")]
    assert tables == ["", ""]
    assert not loaded(namespace, nothing("ip", "nft"))
    assert namespace.run("nft", "list", "tables") == ""


def test_one_program_does_not_see_the_other(namespace: NetNamespace) -> None:
    for binary in BINARIES:
        loaded(namespace, kept("ip", binary))
    loaded(namespace, nothing("ip", "legacy"))
    assert not left(namespace, kept("ip", "nft"))
    assert CHAIN not in saved(namespace, "ip", "legacy")


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.5, None], ids=["released in time", "held too long"])
def test_the_lock_of_iptables_is_waited_for(
    seconds: float | None, namespace: NetNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T34: iptables waits by itself; after that the apply fails, with a reason of its own, and nothing is changed."""
    lock = tmp_path / "xtables.lock"
    lock.touch()
    monkeypatch.setenv("XTABLES_LOCKFILE", str(lock))
    want = kept("ip", "legacy")
    holder = subprocess.Popen(
        ["flock", str(lock), "sh", "-c", "echo held; " + ("cat" if seconds is None else f"sleep {seconds}")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdin
    assert holder.stdout
    try:
        assert holder.stdout.readline() == b"held\n"
        with closing(opened(namespace, "ip", "legacy", lock_seconds=1 if seconds is None else 60)) as target:
            if seconds is None:
                with pytest.raises(ApplyError, match="another program holds the lock") as held:
                    asyncio.run(load(target, want))
                assert held.value.reason == "LockHeld"
                holder.stdin.close()
                holder.wait(60)
            asyncio.run(load(target, want))
        assert not left(namespace, want)
    finally:
        holder.stdin.close()
        holder.stdout.close()
        holder.wait(60)


def test_rules_that_iptables_cannot_show_are_named(namespace: NetNamespace) -> None:
    namespace.run(
        "nft",
        "add table ip nat; add chain ip nat POSTROUTING { type nat hook postrouting priority 100; }; "
        "add set ip nat some { type ipv4_addr; }; add rule ip nat POSTROUTING ip daddr @some masquerade",
    )
    with pytest.raises(ApplyError, match="holds rules that iptables cannot show") as failed:
        loaded(namespace, kept("ip", "nft"))
    assert failed.value.reason == "TableUnreadable"


def test_a_missing_program_says_what_to_install_and_only_when_it_is_needed(
    namespace: NetNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("podgate.targets.iptables.program.find_program", lambda *_: None)
    assert not loaded(namespace, nothing("ip", "nft"))
    with pytest.raises(ApplyError, match="iptables-nft is not installed: install the package iptables") as failed:
        loaded(namespace, kept("ip", "nft"))
    assert failed.value.reason == "IptablesMissing"


@pytest.mark.parametrize("binary", BINARIES)
def test_without_privileges_it_says_which_ones_are_missing(binary: Binary, namespace: NetNamespace) -> None:
    loaded(namespace, kept("ip", binary))
    code = (
        "from podgate.targets.iptables.apply import IptablesTarget\n"
        "from podgate.joints import ApplyError\n"
        "import asyncio, os; os.setgid(65534); os.setuid(65534)\n"
        f"try: asyncio.run(IptablesTarget('ip', '{binary}', ('ours: ',)).read())\n"
        "except ApplyError as problem: print(problem.reason, problem)\n"
    )
    said = namespace.run(sys.executable, "-c", code)
    assert said.startswith("NotPermitted")
    assert "CAP_NET_ADMIN" in said


@pytest.mark.slow
@pytest.mark.parametrize("binary", BINARIES)
def test_ten_thousand_chains_of_others_are_in_nobodys_way(binary: Binary, namespace: NetNamespace) -> None:
    count = 10_000
    lines = [f":KUBE-SEP-{n} - [0:0]" for n in range(count)]
    lines += [f'-A KUBE-SEP-{n} -m comment --comment "x/y{n}" -j RETURN' for n in range(count)]
    restored(namespace, "\n".join(("*nat", *lines, "COMMIT")) + "\n", "ip", binary)
    want = kept("ip", binary)
    assert loaded(namespace, want)
    assert not left(namespace, want)
