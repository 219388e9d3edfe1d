"""proxy: what the connections share: the policy in force, the accounts, and what is given up when there is too much.

Here: admission, shedding, deadlines, stopping. Not here: a single connection (client.py, upstream.py), its listening
socket (targets/listeners).
Invariant: a new request is always answered: idle connections give way to new ones, long polls to other requests.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from msgspec.structs import replace

from podgate.features.metadata.filter import Filter
from podgate.features.metadata.head import Head
from podgate.features.metadata.redact import without_field
from podgate.features.metadata.server.answers import AnswerHead
from podgate.features.metadata.server.client import ClientConnection
from podgate.features.metadata.server.counts import Counts
from podgate.features.metadata.server.decisions import Decision, Decisions, refusal
from podgate.features.metadata.server.exposure import STRANGER, Exposure, networks
from podgate.features.metadata.server.journal import Journal
from podgate.features.metadata.server.limits import READ_SIZE, Limits
from podgate.features.metadata.server.memory import Memory
from podgate.features.metadata.server.pool import Pool, ServerAddress
from podgate.features.metadata.tokens import Tokens, digest
from podgate.linux.descriptors import raised_limit
from podgate.model.frozen import Frozen
from podgate.observe.logs import Log, Repeats
from podgate.targets.cell.apply import Cell

_SWEEP: Final = 0.5
"""Seconds between two looks at all deadlines, while there are connections."""

_PRESSURE: Final = 0.87
"""The part of the memory limit from which on idle connections are given up. Of 25 MiB it leaves what 200 requests need
that come at once."""

_LAST: Final = 0.9
"""The part from which on it does not matter for how long, and where nothing is idle, long polls are given up."""

_UNUSED: Final = 0.25
"""Seconds after which a connection is not between two requests but idle."""

_SETTLING: Final = 0.1
"""Seconds until what was given up is missing in what the kernel counts."""

_CROWD: Final = 32
"""New connections after which memory is looked at without waiting for the next sweep."""

_FREED: Final = 5 * 1024
"""Bytes that an idle connection costs, two thirds of them in the kernel."""

_SHED_SHARE: Final = 20
"""One in so many connections is given up at a time, so that looking for the idlest costs little per connection."""

_FEW: Final = 64
"""Connections that never matter to memory."""

_TTL: Final = b"x-aws-ec2-metadata-token-ttl-seconds"
_LONGEST_TTL: Final = 21_600.0
"""Seconds; Amazon's limit."""

_OWN_DESCRIPTORS: Final = 64
"""Descriptors for everything that is no connection."""


class Setup(Frozen, frozen=True):
    """What does not change while the proxy runs.

    Attributes:
        upstream: the metadata server.
        exposure: who may connect.
        limits: the figures.
        token_hops: the hop limit of an answer that carries an IMDSv2 token.
    """

    upstream: ServerAddress
    exposure: Exposure = Exposure()
    limits: Limits = Limits()
    token_hops: int = 1


class Proxy:
    """Serves clients. Make it anywhere; it works inside ``life``.

    Args:
        setup: what does not change.
        cell: holds the Filter in force.
        log: for everything but requests.
        journal: makes the access log, or gives None for no log.
        memory: the limit to keep.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        setup: Setup,
        cell: Cell,
        log: Log,
        make_journal: Callable[["Proxy"], Journal | None],
        memory: Memory | None = None,
    ) -> None:
        self.setup = setup
        self.limits = setup.limits
        self._exposure = setup.exposure
        self._exposed: Filter | None = None
        self.view = memoryview(bytearray(READ_SIZE))
        self.counts = Counts()
        self.pool = Pool(setup.upstream, setup.limits, self.view, self._end_a_long_poll)
        self.is_stopping = False
        self.now = 0.0
        # uvloop's own clock stands still within a round of the loop, so it measures no request.
        self.time: Callable[[], float] = time.monotonic
        self.stranger = refusal(403, STRANGER.reason, STRANGER.message, rule=STRANGER.rule)
        self.closed_port = refusal(403, "ClosedPort", "This metadata endpoint is concealed", rule="closed-port")
        self.loop_found = refusal(508, "Loop", "The upstream of this proxy leads back to it", rule="loop")
        self.unknown_token = refusal(401, "UnknownToken", "Unauthorized", rule="token")
        self._tokens = Tokens()
        self._cell = cell
        self._decisions = Decisions()
        self._log = log
        self._repeats = Repeats()
        self._make_journal = make_journal
        self._journal: Journal | None = None
        self._memory = memory or Memory()
        self._clients: set[ClientConnection] = set()
        self._sources: Counter[str] = Counter()
        self._most = setup.limits.connections
        self._newcomers = 0
        self._relieved = 0.0
        self._sweeper: asyncio.TimerHandle | None = None
        self._is_empty = asyncio.Event()

    # Its life.

    @asynccontextmanager
    async def life(self) -> AsyncIterator[None]:
        """Work while entered; at the end long polls get 503 at once, other requests have a moment to end."""
        self.now = self.time()
        self._most = most_clients(raised_limit(), self.limits)
        self._journal = self._make_journal(self)
        async with asyncio.TaskGroup() as group:
            self.pool.group = group
            try:
                yield
            finally:
                await self._drain()

    async def _drain(self) -> None:
        self.is_stopping = True
        for client in list(self._clients):
            decision = client.decision
            if decision is None:
                client.abort()
            elif decision.waits:
                client.give_up()
        if self._clients:
            self._is_empty.clear()
            try:
                async with asyncio.timeout(self.limits.drain):
                    await self._is_empty.wait()
            except TimeoutError:
                self._log.warning("connections cut at the end", count=len(self._clients))
        for client in list(self._clients):
            client.abort()
        self.pool.close()
        self.pool.group = None
        await asyncio.sleep(0)
        if self._journal is not None:
            self._journal.finish()

    def serve(self) -> ClientConnection:
        """Give the protocol of a connection to the proxy."""
        return ClientConnection(self)

    def serve_closed(self) -> ClientConnection:
        """Give the protocol of a connection to a port where everything is refused."""
        return ClientConnection(self, self.closed_port)

    def admits(self, source: str, local: str, original: str) -> bool:
        """Say whether a connection is taken (exposure.py); the Pod ranges are those of the policy in force."""
        filter_: Filter | None = self._cell.value
        if filter_ is not self._exposed and filter_ is not None:
            self._exposed = filter_
            self._exposure = replace(self.setup.exposure, pods=networks(filter_.pod_ranges))
        return self._exposure.admits(source, local, original)

    # Decisions.

    def known(self, data: bytes, client: ClientConnection) -> Decision | None:
        """Give the decision on bytes that were decided on before, if they are one whole request without a body."""
        decisions = self._decisions
        if self._cell.value is not decisions.filter:
            decisions.use(self._cell.value)
        return decisions.known.get(client.key + data if decisions.by_source else data)

    def decide(self, raw: bytes, head: Head, client: ClientConnection) -> Decision:
        """Decide on a head that was read."""
        if self._cell.value is not self._decisions.filter:
            self._decisions.use(self._cell.value)
        key = client.key + raw if self._decisions.by_source else raw
        # A request with a body comes in more than one piece: what is remembered must be the whole of it.
        return self._decisions.decide(b"" if head.content_length else key, head, client.source)

    def changed(
        self, decision: Decision, head: AnswerHead, body: bytes, client: ClientConnection
    ) -> tuple[bytes, bytes] | None:
        """Give the lines, without a length, and the body of an answer that was collected; None when it is not safe."""
        verdict = decision.verdict
        lines = [line for line in head.lines.split(b"\r\n")[:-1] if line[:15].lower() != b"content-length:"]
        if verdict is not None and verdict.token == "issue":  # noqa: S105 - a word
            client.limit_hops(self.setup.token_hops)
            until = self.time() + _lifetime(lines)
            self._tokens = self._tokens.with_token(digest(body), client.owner(decision), until, self.time())
        elif verdict is not None and verdict.redact:
            encoded = any(line[:17].lower() == b"content-encoding:" for line in lines)
            redacted = None if encoded else without_field(body, verdict.redact)
            if redacted is None:
                return None
            body = redacted
            lines = [line for line in lines if line[:5].lower() != b"etag:"]  # it was the whole document's
        return b"".join(line + b"\r\n" for line in lines), body

    def is_token_of(self, token: bytes, owner: str) -> bool:
        """Say whether a token, given by its digest, was got by this client through this process."""
        return self._tokens.is_of(token, owner, self.time())

    # What connections tell.

    def answered(self, decision: Decision, client: ClientConnection, status: int, seconds: float) -> None:
        """Note a request that has its answer."""
        verdict = "deny" if decision.answer else "forward"
        self.counts.request(verdict, decision.reason, status, seconds)
        if self._journal is not None:
            self._journal.request(decision, client.source, status, seconds)

    def failed(self, why: str, status: int) -> None:
        """Note that the upstream did not answer; a lasting failure is one line."""
        if status == 502:
            self.counts.upstream_failures += 1
        if why and self._repeats.saw("upstream", why):
            self._log.error("no answer from the upstream", why=why)

    def opened(self, client: ClientConnection) -> None:
        """Take in a connection; when there are too many, the idlest give way."""
        source = client.source
        if self._sources[source] >= self.limits.per_source:
            self._shed("client", source)
        if len(self._clients) >= self._most and not self._shed("connections"):
            self._end_a_long_poll()
        self._clients.add(client)
        self._sources[source] += 1
        if self._sweeper is None:
            self.now = self.time()
            self._sweep()
        client.since = self.time()
        client.deadline = self.now + self.limits.idle
        self._newcomers += 1
        if self._newcomers >= _CROWD:
            self._relieve()
        if len(self._clients) > self._most + _OWN_DESCRIPTORS:
            client.abort()  # nothing could be given up: all are busy

    def closed(self, client: ClientConnection) -> None:
        """Forget a connection."""
        self._clients.discard(client)
        self._sources[client.source] -= 1
        if not self._sources[client.source]:
            del self._sources[client.source]
        if not self._clients:
            self._is_empty.set()

    # What is given up.

    def _shed(self, why: str, source: str | None = None) -> bool:
        """Close the connections that have been idle for longest, of one client or of all; False when none is idle."""
        idle = [each for each in self._clients if each.is_idle() and source in (None, each.source)]
        return self._give_up(idle, max(1, len(self._clients) // _SHED_SHARE), why)

    def _relieve(self) -> None:
        """Give up what there is not memory enough for: connections that nobody uses; near the limit, long polls."""
        self._newcomers = 0
        now = self.time()
        share = self._memory.share() if len(self._clients) > _FEW else 0.0
        if share <= _PRESSURE or (share < _LAST and now - self._relieved < _SETTLING):
            return
        self._relieved = now
        excess = int((share - _PRESSURE) * self._memory.limit)
        latest = now - (_UNUSED if share < _LAST else 0.0)
        unused = [each for each in self._clients if each.is_idle() and each.since < latest]
        count = max(excess // _FREED, len(self._clients) // _SHED_SHARE)
        if not self._give_up(unused, min(count, len(self._clients) - _FEW), "memory") and share > _LAST:
            self._end_a_long_poll()

    def _give_up(self, idle: list[ClientConnection], count: int, why: str) -> bool:
        idle.sort(key=_since)
        for each in idle[:count]:
            each.abort()
            self._forget_early(each)
            self.counts.shed[why] += 1
        return bool(idle)

    def _forget_early(self, client: ClientConnection) -> None:
        """Count an aborted connection as gone; asyncio says so only in its next round."""
        self._clients.discard(client)

    def _end_a_long_poll(self) -> bool:
        waiting = [each for each in self._clients if each.decision is not None and each.decision.waits]
        if not waiting:
            return False
        min(waiting, key=_began).give_up()
        self.counts.shed["long-poll"] += 1
        return True

    def _sweep(self) -> None:
        """Look at all deadlines, then again after a while, as long as there is anything to look at."""
        loop = asyncio.get_running_loop()
        self.now = now = self.time()
        for client in [each for each in self._clients if each.deadline <= now or each.has_gone()]:
            client.expired()
        self.pool.sweep(now)
        self._relieve()
        if self._journal is not None:
            self._journal.second_over()
        busy = bool(self._clients or len(self.pool))
        self._sweeper = loop.call_later(_SWEEP, self._sweep) if busy else None

    def refresh(self) -> Counts:
        """Give the counts, with the gauges as they are now."""
        self.counts.clients = len(self._clients)
        self.counts.busy = sum(1 for each in self._clients if not each.is_idle())
        self.counts.upstreams = len(self.pool)
        return self.counts


def _lifetime(lines: list[bytes]) -> float:
    """Give the seconds that a token says it is good for; the longest time that there is when it does not say."""
    for line in lines:
        name, _, value = line.partition(b":")
        if name.lower() == _TTL and value.strip().isdigit():
            return float(value)
    return _LONGEST_TTL


def _began(client: ClientConnection) -> float:
    return client.began


def _since(client: ClientConnection) -> float:
    return client.since


def most_clients(descriptors: int, limits: Limits) -> int:
    """Give how many clients there may be; of a low limit a quarter, as each may need a connection to the upstream."""
    return min(limits.connections, max(descriptors // 4, descriptors - limits.upstreams - _OWN_DESCRIPTORS))


def journal_for(log: Log, clock: Callable[[], float]) -> Callable[[Proxy], Journal]:
    """Give what makes the access log of a proxy."""
    return lambda proxy: Journal(log, proxy.counts, clock, asyncio.get_running_loop().call_later)


def no_journal(proxy: Proxy) -> None:
    """Give no access log: denials are counted all the same."""
    del proxy
