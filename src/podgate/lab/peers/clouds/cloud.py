"""cloud: what a fake metadata server is asked, what it answers, and the secrets that it plants.

Here: the values, and the base of the four clouds. Not here: sockets (serving.py), any cloud (gce.py and its siblings).
Invariant: every secret is a random word of this run and nothing else holds it, so that a search finds a leak.
"""

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from typing import Final

from podgate.model.frozen import Frozen

FORWARDED_FOR: Final = "x-forwarded-for"


class Asked(Frozen, frozen=True):
    """One request as it came. ``target`` is raw; names of headers are as spelled."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    def header(self, name: str) -> str | None:
        """Give the first value of a header; None when it is not there."""
        return next((value for key, value in self.headers if key.lower() == name), None)

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    @property
    def query(self) -> dict[str, str]:
        """The query's pairs, decoded as little as a plain server does; the last of a name counts."""
        parts = [part for part in self.target.partition("?")[2].split("&") if part]
        return {key: value for key, _, value in (part.partition("=") for part in parts)}


class Reply(Frozen, frozen=True):
    """An answer. ``hops`` limits how far its packets travel (IP_TTL); 0 for the usual."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    hops: int = 0


class Hold(Frozen, frozen=True):
    """No answer before something changes, or ``seconds`` have passed; None for never."""

    seconds: float | None = None


class Cloud:
    """One cloud's server: answers without sockets.

    Attributes:
        name: as ``--profile`` has it.
        secrets: a random word for each planted secret, by what it is.
    """

    name = ""

    def __init__(self, names: Sequence[str]) -> None:
        self.secrets: Mapping[str, str] = {name: f"SECRET-{secrets.token_hex(8)}" for name in names}

    def answer(self, asked: Asked, *, held: bool = False) -> Reply | Hold:
        """Answer a request; ``held`` says that it was held, and must have its answer now."""
        del asked, held
        return Reply(404)

    def put(self, path: str, value: str) -> None:
        """Change what stands at a path, as an operator of the cloud does."""
        raise KeyError(f"{self.name}: {path} cannot be changed to {value!r}")


def etag(text: str) -> str:
    """Give a digest as the servers write it: 16 hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
