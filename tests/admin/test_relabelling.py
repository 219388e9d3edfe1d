"""Moving the old label of metadata-proxy: bad days of an API server, in virtual time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from podgate.admin.reaching import NOT_IN_TIME
from podgate.admin.relabelling import migrated
from podgate.joints import Answered
from podgate.kubeapi.access import Access
from podgate.kubeapi.answers import Refusal
from podgate.kubeapi.connection import Answer, Connection, UnreachableError
from podgate.kubeapi.requests import Request
from tests.support.fake_apiserver import FakeApiServer
from tests.support.virtual_time import in_virtual_time_over_sockets, now

OLD = "beta.kubernetes.io/metadata-proxy-ready"
NEW = "cloud.google.com/metadata-proxy-ready"
NODES = {
    "old": {OLD: "true"},
    "old-and-no": {OLD: "true", NEW: "false"},
    "old-and-new": {OLD: "true", NEW: "true"},
    "not-ready": {OLD: "false"},
    "another": {"kubernetes.io/os": "linux"},
}
DOWN = UnreachableError("the connection was refused")
BUSY = Refusal(503, "ServiceUnavailable", "starting")
NO = Refusal(403, "Forbidden", "nodes is forbidden")


class Server:
    """A fake API server whose next answers can be made bad ones."""

    def __init__(self, fake: FakeApiServer, connection: Connection) -> None:
        self.fake = fake
        self.bad: list[UnreachableError | Refusal | None] = []
        self.told: list[str] = []
        self._connection = connection

    async def send(self, request: Request) -> Answer:
        bad = self.bad.pop(0) if self.bad else None
        if isinstance(bad, UnreachableError):
            raise bad
        return Answer(refused=bad) if bad else await self._connection.send(request)

    async def migrate(self, seconds: float = 0.0, *, dry: bool = False) -> Answered:
        return await migrated(self.send, self.told.append, seconds, dry=dry)

    def labelled(self) -> set[str]:
        nodes = next(one for (_, _, plural), one in self.fake.objects.collections.items() if plural == "nodes")
        return {name for (_, name), node in nodes.objects.items() if node["metadata"]["labels"].get(NEW) == "true"}


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    async with FakeApiServer().serving() as fake, Connection(Access(fake.url)) as connection:
        for name, labels in NODES.items():
            fake.put("nodes", {"metadata": {"name": name, "labels": labels}})
        yield Server(fake, connection)


@in_virtual_time_over_sockets
async def test_nodes_with_the_old_label_alone_get_the_new_one_over_another_value() -> None:
    async with serving() as server:
        answered = await server.migrate()
        assert (answered.code, answered.data["labelled"]) == (0, ("old", "old-and-no"))
        assert server.labelled() == {"old", "old-and-no", "old-and-new"}
        again = await server.migrate()
        assert (again.code, again.data["labelled"]) == (0, ())
        assert "nothing to do" in again.text


@in_virtual_time_over_sockets
async def test_a_dry_run_says_what_would_be_done_and_changes_nothing() -> None:
    async with serving() as server:
        answered = await server.migrate(dry=True)
        assert (answered.code, answered.data["would_label"]) == (1, ("old", "old-and-no"))
        assert f"Node old: would get {NEW}=true" in answered.text
        assert server.labelled() == {"old-and-new"}
        await server.migrate()
        again = await server.migrate(dry=True)
        assert (again.code, again.data["would_label"], "nothing to do" in again.text) == (0, (), True)


@pytest.mark.parametrize("bad", [[None, NO], [None, None, NO]], ids=["the list", "a Node"])
@in_virtual_time_over_sockets
async def test_a_dry_run_says_what_would_be_refused_after_one_try(bad: list[Refusal | None]) -> None:
    async with serving() as server:
        server.bad = [*bad]
        began = now()
        answered = await server.migrate(dry=True)
        assert (answered.code, now() - began) == (2, 0)
        assert "would not be labelled" in answered.text
        assert server.labelled() == {"old-and-new"}


@in_virtual_time_over_sockets
async def test_the_api_is_waited_for_and_each_trouble_is_told_once() -> None:
    async with serving() as server:
        server.bad = [DOWN, DOWN, BUSY, NO, NO]
        began = now()
        assert (await server.migrate()).code == 0
        assert now() - began == 15
        assert len(server.told) == 3


@in_virtual_time_over_sockets
async def test_an_api_that_never_answers_is_another_exit_code() -> None:
    async with serving() as server:
        server.bad = [DOWN] * 100
        answered = await server.migrate(seconds=30)
        assert answered.code == NOT_IN_TIME
        assert "connection was refused" in answered.text
        assert server.labelled() == {"old-and-new"}


@pytest.mark.parametrize("bad", [DOWN, BUSY, NO], ids=["down", "busy", "forbidden"])
@pytest.mark.parametrize("fails", range(6))
def test_five_tries_three_seconds_apart(bad: UnreachableError | Refusal, fails: int) -> None:
    @in_virtual_time_over_sockets
    async def one() -> None:
        async with serving() as server:
            server.bad = [None, *[bad] * fails]
            began = now()
            answered = await server.migrate()
            assert answered.code == int(fails == 5)
            assert now() - began == 3 * min(fails, 4)
            assert server.labelled() == ({"old-and-new"} if fails == 5 else {"old", "old-and-no", "old-and-new"})

    one()


@in_virtual_time_over_sockets
async def test_one_node_that_is_refused_is_named_and_holds_up_no_other() -> None:
    async with serving() as server:
        # Each try: a list, then the Nodes that lack the label, by name.
        server.bad = [None, None, NO, None, *[None, NO] * 4]
        answered = await server.migrate()
        assert answered.code == 1
        assert server.labelled() == {"old-and-no", "old-and-new"}
        assert "Node old: not labelled: 403 Forbidden" in answered.text


@in_virtual_time_over_sockets
async def test_a_node_that_went_meanwhile_is_not_made_again() -> None:
    async with serving() as server:
        real, server_send = server.fake, server.send

        async def send(request: Request) -> Answer:
            if (
                request.method == "PATCH"
                and "old-and-no" in request.path
                and server.labelled() == {"old", "old-and-new"}
            ):
                real.remove("nodes", "old-and-no")
            return await server_send(request)

        answered = await migrated(send, server.told.append, 0)
        assert answered.code == 0
        assert server.labelled() == {"old", "old-and-new"}
