"""The follower towards a machine that fails: an error that is retried, never one that ends the agent."""

import asyncio
import resource

import pytest

from podgate.joints import ApplyError
from podgate.targets.conntrack.apply import ConntrackFollower


def test_a_machine_without_descriptors_is_an_error_that_is_retried() -> None:
    follower = ConntrackFollower[None]("ip", lambda _before, _after: lambda _flow: False)

    async def follow() -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            await follower.follow(None, None)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    with pytest.raises(ApplyError, match="Too many open files"):
        asyncio.run(follow())
