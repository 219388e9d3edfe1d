"""The proxy's request to itself: passed only by an answer that refuses."""

import asyncio
from collections.abc import Callable

import pytest

from podgate.features.metadata.server.trial import Trial, TrialTarget
from podgate.joints import ApplyError

REFUSES = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"


async def tried(answer: bytes | None, then: Callable[[TrialTarget, Trial], None] = lambda _target, _want: None) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"\r\n\r\n")
        assert b"\r\nHost:" not in asked
        writer.write(answer or b"")
        writer.close()

    target = TrialTarget()
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        want = Trial("127.0.0.1", (server.sockets[0].getsockname()[1],))
        plan = target.diff(await target.read(), want)
        assert str(plan) == f"ask {want}"
        await target.apply(plan)
        assert await target.read() == want
        assert not target.diff(await target.read(), want)
    then(target, want)


@pytest.mark.parametrize("answer", [REFUSES, REFUSES.replace(b"400", b"403")])
def test_passed(answer: bytes) -> None:
    asyncio.run(tried(answer))


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 404 Not Found\r\n\r\n", b"SSH-2.0\r\n"])
def test_another_answer_is_none(answer: bytes) -> None:
    with pytest.raises(ApplyError, match="was not refused but answered"):
        asyncio.run(tried(answer))


def test_nobody_listens() -> None:
    async def main() -> None:
        target = TrialTarget()
        await target.apply(target.diff(await target.read(), Trial("127.0.0.1", (1,))))

    with pytest.raises(ApplyError, match=r"127\.0\.0\.1:1, failed") as caught:
        asyncio.run(main())
    assert caught.value.reason == "SelfRequestFailed"


def test_without_rules_there_is_nothing_to_ask() -> None:
    assert str(Trial()) == "nothing"
    assert not TrialTarget().diff(Trial(), Trial())
