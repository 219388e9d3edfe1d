"""A proxy that does not hear of Pods any more, in virtual time: an address that another Pod may have opens nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import msgspec

from podgate.features.metadata.filter import Client, Decider, Filter, NamedPolicy
from podgate.features.metadata.request import Request
from podgate.features.metadata.server.following import OpenLink, WatchLostError, WatchSource, snapshot_of
from podgate.features.metadata.server.running import NOT_TOLD, SERVER, STALE, compile_states, shown
from podgate.features.metadata.settings import Settings
from podgate.features.metadata.spec import PolicySpec, Rule, Subjects
from podgate.features.metadata.watched import BEAT, Watched, line_of
from podgate.joints import Inputs
from tests.support.virtual_time import in_virtual_time, now

SETTINGS = Settings()
INSTALLER, SHOP, STRANGER = "10.1.0.2", "10.1.0.3", "10.1.0.9"
KUBE_ENV = "/computeMetadata/v1/instance/attributes/kube-env"
TOKEN = "/computeMetadata/v1/instance/service-accounts/default/token"
ZONE, TAGS = "/computeMetadata/v1/instance/zone", "/computeMetadata/v1/instance/tags"


def policy(name: str, path: str, verdict: str, *namespaces: str) -> NamedPolicy:
    subjects = Subjects(namespaces) if namespaces else Subjects()
    return NamedPolicy(name, PolicySpec((Rule((path,), "allow" if verdict == "allow" else "deny"),), subjects))


POLICIES = (
    policy("installer", KUBE_ENV, "allow", "kube-system"),
    policy("no tokens", TOKEN, "deny", "shop"),
    policy("all", TAGS, "deny"),
)
TOLD = Watched(POLICIES, {INSTALLER: Client("kube-system/i", (0, 2)), SHOP: Client("shop/s", (1, 2))})
AWAY = Watched(POLICIES, TOLD.clients, unheard=5.0)


class Script:
    """A watching process that says each line at its second, and signs of life between; ``None`` is its end."""

    def __init__(self, *lines: tuple[float, bytes | None], life: bool = True) -> None:
        self._life = BEAT if life else b""
        self._lines = list(lines)
        self._begun = now()
        self._next: asyncio.TimerHandle

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[OpenLink]:
        if not self._lines or now() < self._begun + self._lines[0][0]:
            raise WatchLostError("nobody is there")
        reader = asyncio.StreamReader()
        self._say(reader)
        try:
            yield OpenLink(reader, self._why)
        finally:
            self._next.cancel()

    def _say(self, reader: asyncio.StreamReader) -> None:
        reader.feed_data(self._life)
        while self._lines and now() >= self._begun + self._lines[0][0]:
            line = self._lines.pop(0)[1]
            if line is None:
                reader.feed_eof()
                return
            reader.feed_data(line)
        self._next = asyncio.get_running_loop().call_later(5, self._say, reader)

    async def _why(self) -> str:
        return "it has ended"


def gets(filter_: Filter, source: str) -> str:
    """Say what an address gets: E for kube-env, T for tokens, Z for the zone, G for tags."""
    decider, headers = Decider(filter_), ((b"Metadata-Flavor", b"Google"),)
    asked = {"E": KUBE_ENV, "T": TOKEN, "Z": ZONE, "G": TAGS}
    verdicts = {
        letter: decider.decide(Request(b"GET", path.encode(), headers, source)) for letter, path in asked.items()
    }
    return "".join(letter for letter, verdict in verdicts.items() if verdict.action == "forward")


async def seen(link: Script, seconds: float, settings: Settings = SETTINGS) -> list[tuple[int, str, str]]:
    """Give the second of each change, what installer, shop and a stranger get from then on, and why."""
    began, found = now(), [(0, "", "")]
    try:
        async with (
            asyncio.timeout(seconds),
            aclosing(WatchSource(link, stale_after=settings.stale_after).values()) as values,
        ):
            async for snapshot in values:
                compiled = compile_states(settings, Inputs(objects=snapshot))
                each = " ".join(gets(compiled.states.policy.value, source) for source in (INSTALLER, SHOP, STRANGER))
                why = {STALE: "stale", NOT_TOLD: "not told"}.get(compiled.degraded, "")
                if (each, why) != found[-1][1:]:
                    found.append((round(now() - began), each, why))
    except TimeoutError:
        pass
    return [change for change in found if change[0] > 0]


FRESH, OLD, UNKNOWN = "ETZ Z Z", "TZ Z Z", "Z Z Z"


@in_virtual_time
async def test_after_a_minute_without_a_process_nobody_is_known_until_it_tells_again() -> None:
    found = await seen(Script((0, line_of(TOLD)), (10, None), (600, BEAT), (650, line_of(TOLD))), 800)
    # Signs of life come every 5 s, and attempts every 30.
    assert [change[1:] for change in found] == [(UNKNOWN, "not told"), (FRESH, "")]
    assert 65 <= found[0][0] <= 70
    assert 650 <= found[1][0] <= 685


@in_virtual_time
async def test_while_it_cannot_read_its_pods_nobody_is_cut_and_what_single_pods_are_allowed_is_closed() -> None:
    found = await seen(Script((0, line_of(TOLD)), (100, line_of(AWAY)), (700, line_of(TOLD))), 900)
    assert found == [(155, OLD, "stale"), (700, FRESH, "")]


@in_virtual_time
async def test_one_that_starts_anew_and_cannot_read_them_makes_nothing_fresh() -> None:
    found = await seen(Script((0, line_of(TOLD)), (10, None), (12, BEAT), (700, line_of(TOLD))), 900)
    assert [change[1:] for change in found] == [(OLD, "stale"), (FRESH, "")]
    assert 65 <= found[0][0] <= 70


@in_virtual_time
async def test_one_that_hangs_is_as_good_as_none() -> None:
    assert await seen(Script((0, line_of(TOLD)), life=False), 300) == [(60, UNKNOWN, "not told")]


@in_virtual_time
async def test_the_time_is_an_option() -> None:
    found = await seen(Script((0, line_of(TOLD)), (10, None)), 300, Settings(stale_after=20))
    assert [change[1:] for change in found] == [(UNKNOWN, "not told")]
    assert 25 <= found[0][0] <= 30


def test_how_it_is_said() -> None:
    snapshot = snapshot_of(msgspec.structs.replace(TOLD, unheard=60.0))
    compiled = compile_states(SETTINGS, Inputs(objects=snapshot))
    assert [problem.reason for problems in compiled.problems.values() for problem in problems] == ["PodsStale"]
    samples = {sample.name: sample.value for sample in SERVER.samples(compiled.states)}
    assert samples["podgate_metadata_pods_stale"] == 1
    assert samples["podgate_metadata_watch_connected"] == 1
    assert shown(compiled.states.policy.value).endswith("nothing allowed to single Pods")


@in_virtual_time
async def test_one_that_hung_for_less_than_its_silence_tells_all_again() -> None:
    found = await seen(Script((0, line_of(TOLD)), (21, line_of(TOLD)), life=False), 30, Settings(stale_after=20))
    assert found == [(20, UNKNOWN, "not told"), (22, FRESH, "")]
