"""Leading: takes part in the election of one leader, through a Lease in the API.

Here: reading and writing the Lease on time, and stopping whoever writes when it is lost. Not here: rules (leases.py).
Invariant: work under ``held`` never goes on after leadership has ended: it is cancelled at the end of its time,
whatever the API does. Who stops gives the Lease back.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import msgspec

from podgate.kubeapi.connection import AccessError, Connection, UnreachableError
from podgate.kubeapi.requests import create, get, replace
from podgate.model.frozen import ObjectRef
from podgate.targets.kubernetes.leases import CANDIDATES, LEASE, Election, Lease, LeaseWrite, Terms

T = TypeVar("T")

GIVING_BACK: Final = 2.0
"""Seconds that giving the Lease back may take: a Pod that is stopped has not many."""


class LostLease(Exception):  # noqa: N818 - it is what happened
    """Somebody else may lead now."""


class Leadership:
    """One candidate.

    Args:
        connection: to the API.
        namespace: where the Lease is.
        name: its name.
        identity: unique among the candidates: a Pod's name and its start.
        manager: the field manager that the Lease is written by.
        terms: how long things last.
        candidates: asked, while we lead, how many take part, as far as that is known.
        heard: told whenever we begin or cease to lead.

    Attributes:
        trouble: why the Lease can be neither read nor written; empty when it can.
    """

    def __init__(  # noqa: PLR0917 - each is a fact
        self,
        connection: Connection,
        namespace: str,
        name: str,
        identity: str,
        manager: str,
        terms: Terms = Terms(),  # noqa: B008
        *,
        candidates: Callable[[], int] = lambda: 1,
        heard: Callable[[bool], None] = lambda _leads: None,
    ) -> None:
        self._connection = connection
        self._ref = ObjectRef("Lease", name, namespace)
        self._manager = manager
        self._terms = terms
        self._patience = terms.deadline / 2
        self._election = Election(identity, terms)
        self._changed = asyncio.Event()
        self._candidates = candidates
        self._heard = heard
        self._forbidden = False
        self.trouble = ""

    def leads(self) -> bool:
        """Say whether we may write now."""
        return self._election.leads(_now())

    def told(self) -> int:
        """Give how many take part, as the leader said last."""
        return self._election.candidates

    async def run(self) -> AsyncIterator[bool]:
        """Take part for ever; say whether we lead, whenever that changes, or when the Lease fails or works again."""
        led = troubled = False
        async with self._connection:
            try:
                while True:
                    await self._turn()
                    before = (led, troubled)
                    led, troubled = self.leads(), bool(self.trouble)
                    if (led, troubled) != before:
                        self._changed.set()
                        self._heard(led)
                        yield led
                    pause = self._terms.forbidden if self._forbidden else self._election.pause(_now())
                    wait = pause * (1 + random.random() / 5)  # noqa: S311 - jitter, no secret
                    if led:
                        # The end of our time is noticed when it comes, not with the next attempt.
                        wait = min(wait, max(0.0, self._election.may_write_until - _now()))
                    await asyncio.sleep(wait)
            finally:
                await self._release()

    async def _release(self) -> None:
        """Stop leading, and give the Lease back, so that the next one need not wait for its end."""
        write = self._election.releases(_now(), _wall())
        self._election = self._election.gone()
        self._changed.set()
        self._heard(False)
        if write is not None:
            with contextlib.suppress(UnreachableError, AccessError, TimeoutError):
                async with asyncio.timeout(GIVING_BACK):
                    await self._write(write)

    async def held(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do some work while we lead. Raises LostLease when we do not, or no longer; the work is cancelled then."""
        result: list[T] = []

        async def do() -> None:
            result.append(await work())

        async with asyncio.TaskGroup() as group:
            doing = group.create_task(do())
            while not doing.done():
                self._changed.clear()
                left = self._election.may_write_until - _now()
                if left <= 0:
                    doing.cancel()
                    break
                changed = group.create_task(self._changed.wait())
                await asyncio.wait((doing, changed), timeout=left, return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
        if not result:
            raise LostLease("we do not lead: another one may write now")
        return result[0]

    async def _turn(self) -> None:
        """Read, decide, write."""
        asked_at, self._forbidden = _now(), False
        try:
            answer = await self._limited(self._connection.send(get(LEASE, self._ref)))
            if answer.refused is not None and answer.refused.code != 404:
                self.trouble = f"{self._ref} cannot be read: {answer.refused}"
                self._forbidden = answer.refused.code == 403
                return
            lease = None if answer.refused else msgspec.json.decode(answer.body, type=Lease)
            self._election = self._election.saw(lease, _now())
            write = self._election.wants(_now(), _wall())
            if write is not None:
                asked_at = _now()
                written = await self._limited(self._write(write))
                if written is None:
                    return
                self._election = self._election.wrote(written, asked_at, _now())
        except TimeoutError:
            self.trouble = f"{self._ref}: no answer in {self._patience:g} s"
            return
        except (UnreachableError, AccessError, msgspec.DecodeError) as error:
            self.trouble = f"{self._ref}: {error}"
            return
        self.trouble = ""

    async def _limited(self, work: Awaitable[T]) -> T:
        """Never wait for an answer longer than our time lasts."""
        async with asyncio.timeout(self._patience):
            return await work

    async def _write(self, write: LeaseWrite) -> Lease | None:
        """Write; None when another one was faster, which the next turn sees."""
        metadata: dict[str, Any] = {"name": self._ref.name, "namespace": self._ref.namespace}
        metadata["annotations"] = {CANDIDATES: str(self._candidates())}
        body = {"apiVersion": LEASE.api_version, "kind": "Lease", "metadata": metadata, "spec": write.spec}
        if write.resource_version:
            metadata["resourceVersion"] = write.resource_version
            request = replace(LEASE, self._ref, body, self._manager)
        else:
            request = create(LEASE, self._ref, body, self._manager)
        answer = await self._connection.send(request)
        if answer.refused is not None:
            # A conflict says only that another one was faster.
            self.trouble = "" if answer.refused.code == 409 else f"{self._ref} cannot be written: {answer.refused}"
            self._forbidden = answer.refused.code == 403
            return None
        return msgspec.json.decode(answer.body, type=Lease)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _wall() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
