"""What others do to our chains through iptables-nft is noticed; what they do to their own, and what we do, is not."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing

import pytest

from podgate.joints import ApplyError, Drifted, Signal
from podgate.targets.iptables.apply import IptablesTarget
from tests.support.iptables_states import CHAIN, OWNERS, keeping, nothing
from tests.support.netns import NetNamespace
from tests.support.poll import poll_async
from tests.support.signals import signals_of

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

THE_END = Drifted(f"rules added to chain {CHAIN}")


def watched(
    namespace: NetNamespace,
    act: Callable[[IptablesTarget, list[Signal]], Awaitable[object]],
    buffer_bytes: int = 1 << 20,
) -> list[Signal]:
    """Watch while something happens, then add a rule to our chain by hand; gives the signals before that one."""

    async def run() -> list[Signal]:
        with closing(
            IptablesTarget("ip", "nft", OWNERS, namespace=namespace.descriptor, buffer_bytes=buffer_bytes)
        ) as target:
            await target.apply(target.diff(await target.read(), keeping("10.0.0.0/8")))
            async with signals_of(target) as seen:
                await act(target, seen)
                count = len(seen)
                restore(namespace, f"-A {CHAIN} -j ACCEPT")
                await poll_async(lambda: seen[-1:] == [THE_END] or len(seen) > count)
        assert seen[-1] == THE_END, seen
        return seen[:-1]

    return asyncio.run(run())


def restore(namespace: NetNamespace, *lines: str) -> None:
    namespace.run("iptables-nft-restore", "--noflush", text="\n".join(("*nat", *lines, "COMMIT")) + "\n")


FOREIGN = {
    "the chain is flushed": f"-F {CHAIN}",
    "a rule of ours is deleted": f"-D {CHAIN} 1",
    "the jump is deleted": "-F POSTROUTING",
    "somebody masquerades first": "-I POSTROUTING -j MASQUERADE",
}


@pytest.mark.parametrize("line", FOREIGN.values(), ids=FOREIGN)
def test_a_foreign_change_is_noticed(line: str, namespace: NetNamespace) -> None:
    async def act(target: IptablesTarget, seen: list[Signal]) -> None:
        restore(namespace, line)
        await poll_async(lambda: seen)

    (signal,) = watched(namespace, act)
    assert isinstance(signal, Drifted)
    assert CHAIN in signal.what or "POSTROUTING" in signal.what


def test_the_whole_table_deleted_is_noticed(namespace: NetNamespace) -> None:
    async def act(target: IptablesTarget, seen: list[Signal]) -> None:
        namespace.run("nft", "delete", "table", "ip", "nat")
        await poll_async(lambda: seen)
        await target.apply(target.diff(await target.read(), keeping("10.0.0.0/8")))

    assert watched(namespace, act) == [Drifted("the table was deleted")]


def test_own_changes_and_chains_of_others_are_not_drift(namespace: NetNamespace) -> None:
    async def act(target: IptablesTarget, seen: list[Signal]) -> None:
        have = await target.read()
        for want in (
            keeping("172.16.0.0/12"),
            keeping("10.0.0.0/8", chain="PG-OTHER"),
            nothing(),
            keeping("10.0.0.0/8"),
        ):
            await target.apply(target.diff(have, want))
            have = want
        restore(namespace, ":KUBE-X - [0:0]", "-A KUBE-X -j RETURN")
        restore(namespace, "-F KUBE-X", "-X KUBE-X")
        namespace.run("ip6tables-nft-restore", "--noflush", text=f"*nat\n:{CHAIN} - [0:0]\nCOMMIT\n")

    assert watched(namespace, act) == []


def test_lost_notifications_count_as_drift(namespace: NetNamespace) -> None:
    async def act(target: IptablesTarget, seen: list[Signal]) -> None:
        # Nobody reads meanwhile: the loop is held up while more arrives than the buffer takes.
        restore(namespace, *(f":KUBE-{n} - [0:0]" for n in range(500)))
        await poll_async(lambda: seen)

    assert watched(namespace, act, buffer_bytes=4096) == [Drifted("notifications were lost")]


def test_a_change_before_the_watch_is_told(namespace: NetNamespace) -> None:
    async def run() -> None:
        with closing(IptablesTarget("ip", "nft", OWNERS, namespace=namespace.descriptor)) as target:
            await target.read()
            restore(namespace, ':X - [0:0]\n-A X -m comment --comment "old: x" -j RETURN')
            async with asyncio.timeout(60):
                assert "before it was watched" in str(await anext(aiter(target.signals())))

    asyncio.run(run())


def test_a_change_of_others_before_the_watch_is_not_told(namespace: NetNamespace) -> None:
    async def run() -> None:
        with closing(IptablesTarget("ip", "nft", OWNERS, namespace=namespace.descriptor)) as target:
            await target.read()
            restore(namespace, ":X - [0:0]\n-A X -j RETURN")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await anext(aiter(target.signals()))

    asyncio.run(run())


def test_a_table_that_iptables_cannot_show_is_none_of_ours_where_nothing_is_wanted(
    namespace: NetNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs that use nft alone need no iptables; a trace of ours has it asked all the same."""
    namespace.run("nft", "add table ip nat; add chain ip nat x; add set ip nat s { type ipv4_addr; }")
    namespace.run("nft", "add rule ip nat x ip saddr @s tcp dport vmap { 1-10 : accept }")

    def opened(*, clears: bool, recorded: frozenset[str] = frozenset()) -> IptablesTarget:
        return IptablesTarget("ip", "nft", OWNERS, recorded=recorded, clears=clears, namespace=namespace.descriptor)

    async def read(target: IptablesTarget) -> None:
        with closing(target):
            assert not target.diff(await target.read(), nothing())

    monkeypatch.setattr("podgate.targets.iptables.program.find_program", lambda _name: None)
    asyncio.run(read(opened(clears=True)))
    for target in (opened(clears=False), opened(clears=True, recorded=frozenset({"x"}))):
        with pytest.raises(ApplyError, match="iptables-nft is not installed"):
            asyncio.run(read(target))
    namespace.run("nft", 'add rule ip nat x accept comment "old: of the agent"')
    with pytest.raises(ApplyError, match="iptables-nft is not installed"):
        asyncio.run(read(opened(clears=True)))


def test_the_old_tables_tell_nothing(namespace: NetNamespace) -> None:
    async def run() -> None:
        with closing(IptablesTarget("ip", "legacy", OWNERS, namespace=namespace.descriptor)) as target:
            await target.apply(target.diff(await target.read(), keeping("10.0.0.0/8", binary="legacy")))
            namespace.run("iptables-legacy", "-t", "nat", "-F")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await anext(aiter(target.signals()))

    asyncio.run(run())
