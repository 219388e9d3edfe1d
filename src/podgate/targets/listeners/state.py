"""state: where this process listens, and what it serves there.

Here: an address to listen on, and the set of them. Not here: sockets (apply.py), what a served protocol does.
Invariant: an address is the key by which a target refuses it, and shows itself as people write it.
"""

from podgate.model.frozen import Frozen


class ListenAddress(Frozen, frozen=True, order=True):
    """An address to listen on, and what is served there.

    Attributes:
        address: an IP address of this machine, or ``0.0.0.0`` or ``::`` for all; ``::`` takes IPv6 alone.
        port: a TCP port; 0 lets the kernel choose.
        serves: the name of the protocol that is spoken there.
    """

    address: str
    port: int
    serves: str

    def __str__(self) -> str:
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.port} ({self.serves})"


class State(Frozen, frozen=True):
    """Where this process listens."""

    addresses: frozenset[ListenAddress] = frozenset()
