"""trial: the proxy's request to itself, before anybody is redirected to it.

Here: one request that no policy and no audit lets through, and the answer. Not here: the redirect (node.py).
Invariant: it is done once an answer came that only this program gives; until then, nothing is redirected.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from typing import Final

from podgate.joints import ApplyError, Key, Signal
from podgate.linux.waiting import silent
from podgate.model.frozen import Frozen

_SECONDS: Final = 3.0
_REQUEST: Final = b"GET /podgate/self-request HTTP/1.1\r\nConnection: close\r\n\r\n"
"""Without Host, which HTTP/1.1 needs: refused before any policy is asked, with --audit too."""
_ANSWERS: Final = (b"HTTP/1.1 400 ", b"HTTP/1.1 403 ")


class Trial(Frozen, frozen=True):
    """Where the proxy is asked; the ports that must each answer. Empty for no trial."""

    address: str = ""
    ports: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.address} port {', '.join(map(str, self.ports))}" if self.ports else "nothing"


class TrialPlan(Frozen, frozen=True):
    """From one trial that was passed to another."""

    have: Trial
    want: Trial

    def __bool__(self) -> bool:
        return self.have != self.want

    def __str__(self) -> str:
        return f"ask {self.want}" if self else ""

    def touches(self) -> Collection[object]:
        """Give no key."""
        return ()

    def without(self, _refused: Collection[object], /) -> "TrialPlan":
        """Give it as it is: no key of it is refused by itself."""
        return self


class TrialTarget:
    """Asks the proxy; what was passed is remembered for this process alone."""

    def __init__(self) -> None:
        self._passed = Trial()

    async def read(self) -> Trial:
        """Give what was passed."""
        return self._passed

    def diff(self, have: Trial, want: Trial) -> TrialPlan:
        """Give the plan."""
        return TrialPlan(have, want)

    async def apply(self, plan: TrialPlan) -> Mapping[Key, str]:
        """Ask each port. Raises ApplyError when one does not answer as it must; it is tried again."""
        for port in plan.want.ports:
            where = f"the proxy's request to itself, at {plan.want.address}:{port}"
            try:
                async with asyncio.timeout(_SECONDS):
                    answer = await _ask(plan.want.address, port)
            except TimeoutError as error:
                raise ApplyError(f"{where}, had no answer in {_SECONDS:.0f} s", "SelfRequestFailed") from error
            except OSError as error:
                raise ApplyError(f"{where}, failed: {error.strerror or error}", "SelfRequestFailed") from error
            if not answer.startswith(_ANSWERS):
                raise ApplyError(f"{where}, was not refused but answered {answer!r}", "SelfRequestFailed")
        self._passed = plan.want
        return {}

    def signals(self) -> AsyncIterator[Signal]:
        """Wait for ever."""
        return silent()


async def _ask(address: str, port: int) -> bytes:
    reader, writer = await asyncio.open_connection(address, port)
    try:
        writer.write(_REQUEST)
        return (await reader.readline()).rstrip()
    finally:
        writer.close()
