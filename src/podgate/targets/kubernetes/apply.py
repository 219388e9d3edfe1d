"""KubernetesTarget: reads back what is ours in an API, and applies plans to it.

Here: the I/O, what an answer means for a plan, leadership. Not here: bodies (render.py), whose fields are whose
(ownership.py).
Invariant: nothing is written while somebody else leads; a part that the API refuses never blocks another.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import msgspec

from podgate.joints import ApplyError, Key, Signal, Turned
from podgate.kubeapi.answers import Refusal
from podgate.kubeapi.connection import AccessError, Connection, UnreachableError
from podgate.kubeapi.requests import Request, get, list_page
from podgate.linux.waiting import for_ever
from podgate.model.snapshot import Kind, Watch
from podgate.model.table import Table
from podgate.targets.kubernetes.conditions import Since, stamped, unstamped
from podgate.targets.kubernetes.diff import Plan, diff
from podgate.targets.kubernetes.leading import Leadership, LostLease
from podgate.targets.kubernetes.ownership import owned_page
from podgate.targets.kubernetes.pacing import Budget
from podgate.targets.kubernetes.render import apply_request, event_request, needs_uid, release_request
from podgate.targets.kubernetes.state import STANDBY, Fields, Notice, Part, State, Subject, canonical

AT_ONCE: Final = 8
"""Requests under way at a time: an API server shares itself out among its clients anyway (KEP-1040)."""

TOO_MANY: Final = "are too many at once: for now they are in the log alone"

FORBIDDEN_PAUSE: Final = 300.0
"""Seconds until somebody who may not read asks again: rights are given by people, and nodes are many."""

_ITS_OWN_FAULT: Final = (400, 403, 404, 405, 409, 413, 415, 422)
"""Answers that say something about one request; any other says something about the API."""


class KubernetesTarget:
    """Our fields in the objects of some kinds.

    Args:
        connection: to the API; opened whenever it is used.
        written: the objects that are written, as watches: they are listed to read back.
        manager: our field manager, as ``podgate-masquerade``.
        instance: which of us writes, for Events: a Pod's or node's name.
        leadership: who leads; None where several never write the same.
    """

    def __init__(
        self,
        connection: Connection,
        written: Iterable[Watch],
        manager: str,
        instance: str,
        leadership: Leadership | None = None,
    ) -> None:
        self._connection = connection
        self._written = tuple(written)
        self._kinds = {watch.kind.kind: watch.kind for watch in self._written}
        self._manager = manager
        self._instance = instance
        self._leadership = leadership
        self._budget = Budget()
        self._since: dict[Part, Since] = {}

    async def read(self) -> State:
        """List all kinds, and find what is ours. Raises ApplyError. While somebody else leads, nothing is asked."""
        if self._leadership is not None and not self._leadership.leads():
            if self._leadership.trouble:
                raise ApplyError(self._leadership.trouble, "LeaseFailed")
            return STANDBY
        parts: dict[Part, Fields] = {}
        async with self._connection:
            for watch in self._written:
                async for part, fields in self._listed(watch):
                    plain, self._since[part] = unstamped(msgspec.json.decode(fields.body))
                    parts[part] = msgspec.structs.replace(fields, body=canonical(plain))
        return State(Table.of(parts))

    async def _listed(self, watch: Watch) -> AsyncIterator[tuple[Part, Fields]]:
        """List what a watch asks for, and give what is ours in it."""
        token, more = "", True
        while more:
            request = list_page(watch, token)
            answer = await self._send(request)
            if isinstance(answer, Refusal):
                if answer.code == 404:
                    return  # not installed: nothing of it can be ours
                pause = FORBIDDEN_PAUSE if answer.code == 403 else 0.0
                raise ApplyError(f"{request.what}: {answer}", "ReadRefused", pause)
            try:
                page = owned_page(answer, watch.kind, self._manager)
            except msgspec.DecodeError as error:
                raise ApplyError(f"{request.what}: the answer is no list: {error}", "ReadFailed") from error
            for entry in page.parts:
                yield entry
            token, more = page.token, bool(page.token)

    def diff(self, have: State, want: State) -> Plan:
        """Give the plan from one state to another."""
        return diff(have, want)

    async def apply(self, plan: Plan) -> Mapping[Key, str]:
        """Do it; give refused parts and notices. Raises ApplyError when the API fails, or when the lease is lost.

        While somebody else leads, nothing is done, and that is well: who begins to lead reads everything first.
        """
        if self._leadership is None:
            return await self._apply(plan)
        if not self._leadership.leads():
            return {}
        try:
            return await self._leadership.held(lambda: self._apply(plan))
        except LostLease as error:
            raise ApplyError(str(error), "LostLease") from error
        except BaseExceptionGroup as group:
            raise _first(group) from group

    async def signals(self) -> AsyncIterator[Signal]:
        """Take part in the election, and say when to look again because of it."""
        if self._leadership is None:
            await for_ever()
            return
        async for leads in self._leadership.run():
            trouble = self._leadership.trouble
            yield Turned(trouble or ("we lead now" if leads else "somebody else may lead now"), bool(trouble))

    async def _apply(self, plan: Plan) -> Mapping[Key, str]:
        refused: dict[Key, str] = {}
        doing: list[tuple[Key, Callable[[], Awaitable[str]]]] = [
            *((part, partial(self._apply_part, part, fields)) for part, fields in plan.applied),
            *((part, partial(self._release, part, fields)) for part, fields in plan.released),
        ]
        waiting = iter(doing)

        async def work() -> None:
            for key, do in waiting:
                why = await do()
                if why:
                    refused[key] = why

        async def tell() -> None:
            # One after the other: what was told before takes no room from what was not.
            for notice, subject in plan.notices:
                why = await self._tell(notice, subject)
                if why:
                    refused[notice] = why

        async with self._connection:
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(tell())
                    for _ in range(min(AT_ONCE, len(doing))):
                        group.create_task(work())
            except BaseExceptionGroup as failed:
                raise _first(failed) from failed
        return _summed(refused)

    async def _apply_part(self, part: Part, fields: Fields) -> str:
        kind = self._kind(part)
        uid = ""
        if needs_uid(part, fields):
            found = await self._uid(part)
            if isinstance(found, Refusal):
                return _why(found)
            uid = found
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        body, since = stamped(msgspec.json.decode(fields.body), self._since.get(part, {}), now)
        written = msgspec.structs.replace(fields, body=canonical(body))
        answer = await self._send(apply_request(kind, part, written, self._manager, uid))
        if isinstance(answer, Refusal):
            return _why(answer)
        self._since[part] = since
        return ""

    async def _release(self, part: Part, fields: Fields) -> str:
        uid = ""
        self._since.pop(part, None)
        if not part.subresource:
            found = await self._uid(part)
            if isinstance(found, Refusal):
                return "" if found.code == 404 else _why(found)
            uid = found
        answer = await self._send(release_request(self._kind(part), part, fields, self._manager, uid))
        return "" if not isinstance(answer, Refusal) or answer.code == 404 else _why(answer)

    async def _uid(self, part: Part) -> str | Refusal:
        answer = await self._send(get(self._kind(part), part.ref))
        return answer if isinstance(answer, Refusal) else str(msgspec.json.decode(answer)["metadata"]["uid"])

    async def _tell(self, notice: Notice, subject: Subject) -> str:
        left = self._budget.spend(asyncio.get_running_loop().time())
        if left is None:
            return TOO_MANY
        self._budget = left
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        answer = await self._send(event_request(notice, subject, self._manager, self._instance, now))
        if isinstance(answer, Refusal) and answer.code == 409:
            self._budget = self._budget.returned()  # it was told before, and is still there
            return ""
        return _why(answer) if isinstance(answer, Refusal) else ""

    def _kind(self, part: Part) -> Kind[Any]:
        return self._kinds[part.ref.kind]

    async def _send(self, request: Request) -> bytes | Refusal:
        """Send; a refusal of this request is a value, a failure of the API is an ApplyError."""
        if self._leadership is not None and not self._leadership.leads():
            raise ApplyError("we do not lead: another one may write now", "LostLease")
        try:
            answer = await self._connection.send(request)
        except (UnreachableError, AccessError) as error:
            raise ApplyError(str(error), "Unreachable") from error
        if answer.refused is None:
            return answer.body
        if answer.refused.code not in _ITS_OWN_FAULT:
            raise ApplyError(f"{request.what}: {answer.refused}", "ApiFailed")
        return answer.refused


def _summed(refused: Mapping[Key, str]) -> Mapping[Key, str]:
    """Say of many Events that are too many once that they are; the next full read has them tried again."""
    late = [key for key, why in refused.items() if why == TOO_MANY]
    rest = {key: why for key, why in refused.items() if why != TOO_MANY}
    return {**rest, late[0]: f"{len(late)} Events {TOO_MANY}"} if late else rest


def _why(refusal: Refusal) -> str:
    """Say why a part was refused; of a conflict, which fields others own."""
    if refusal.code == 409 and refusal.causes:
        fields = ", ".join(f"{field} ({message})" for field, message in refusal.causes)
        return f"others own these fields: {fields}: leave them to one of us"
    return str(refusal)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Give the first exception inside of a group: the others say the same."""
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner
