"""sockets: what the kernel knows of one connection, and what it is told.

Here: options of a TCP socket. Not here: reading and writing (client.py, upstream.py).
Invariant: an option that cannot be read is the answer that grants least; none raises for a connection that has gone.
"""

import contextlib
import socket
import struct
from typing import Final

_SO_ORIGINAL_DST: Final = 80
"""linux/netfilter_ipv4.h, and IP6T_SO_ORIGINAL_DST of linux/netfilter_ipv6/ip6_tables.h: the same number."""

_CLOSE_WAIT: Final = 8
_TIME_WAIT: Final = "06"


def original_destination(sock: socket.socket | None) -> str:
    """Give the address that a redirected connection was meant for; empty when nobody redirected it."""
    if sock is None:
        return ""
    try:
        if sock.family == socket.AF_INET6:
            raw = sock.getsockopt(socket.IPPROTO_IPV6, _SO_ORIGINAL_DST, 28)
            return socket.inet_ntop(socket.AF_INET6, raw[8:24])
        raw = sock.getsockopt(socket.IPPROTO_IP, _SO_ORIGINAL_DST, 16)
    except OSError:
        return ""
    return socket.inet_ntop(socket.AF_INET, struct.unpack("4x4s8x", raw)[0])


def keep_alive(sock: socket.socket | None) -> None:
    """Have the kernel find out about peers that are gone without a word: after two minutes of silence (tcp(7))."""
    if sock is None:
        return
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 4)):
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def has_closed(sock: socket.socket | None) -> bool:
    """Say whether the other side has closed, though nobody has read up to its FIN: TCP_INFO, tcp(7)."""
    try:
        return sock is not None and sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _CLOSE_WAIT
    except OSError:
        return True


def limit_hops(sock: socket.socket, hops: int) -> None:
    """Let packets of this connection be forwarded at most ``hops`` - 1 times (IP_TTL, ip(7))."""
    six = sock.family == socket.AF_INET6
    level, option = (socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS) if six else (socket.IPPROTO_IP, socket.IP_TTL)
    sock.setsockopt(level, option, hops)


def sockets_at(address: str, port: int) -> int:
    """Count the TCP sockets of this network namespace whose own end is an address and port (proc(5), net/tcp).

    The kernel gives one port to several connections as long as their other ends differ.
    """
    packed = socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
    wanted = {_shown(packed, port)}
    if len(packed) == 4:
        wanted.add(_shown(b"\0" * 10 + b"\xff\xff" + packed, port))
    count = 0
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), open(f"/proc/thread-self/net/{table}", encoding="ascii") as lines:  # noqa: PTH123 - one word of /proc
            count += sum(fields[1] in wanted and fields[3] != _TIME_WAIT for fields in map(str.split, lines))
    return count


def _shown(packed: bytes, port: int) -> str:
    """Write an address as net/tcp does: words in the machine's own order of bytes."""
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"
