"""Addresses to listen on, as users write them. Pure.

Here: the value and its text. Not here: listening (pages.py).
Invariant: what is read and shown again is read as the same value; a name is never looked up.
"""

import ipaddress
from collections.abc import Iterator, Mapping

import msgspec


class Listen(msgspec.Struct, frozen=True):
    """Where to listen: an IP address and a port, or the path of a unix socket."""

    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_listen(text: str) -> Listen:
    """Read ``127.0.0.1:10350``, ``[::1]:10350``, ``localhost:10350``, ``10350`` (on 127.0.0.1) or ``unix:/run/x.sock``.

    ``0.0.0.0`` listens on all IPv4 addresses, ``[::]`` on all of both families; no host before the colon is an error.
    Port 0 lets the kernel choose.

    Raises:
        ValueError: with what was wrong and what to write instead.
    """
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        # 107 bytes and a NUL: sun_path of sockaddr_un, unix(7).
        if not path.startswith("/") or "\0" in path or len(path.encode(errors="surrogateescape")) > 107:
            raise ValueError(
                f'"{text}": a unix socket needs an absolute path of at most 107 bytes, as unix:/run/x.sock'
            )
        return Listen(path=path)
    host, colon, port = text.rpartition(":")
    if not colon or host == "localhost":
        host = "127.0.0.1"
    elif host.startswith("[") and host.endswith("]"):
        host = _address(text, host[1:-1], 6)
    elif ":" in host:
        raise ValueError(f'"{text}": put an IPv6 address in brackets, as [::1]:10350')
    elif not host:
        raise ValueError(f'"{text}": no address; write 127.0.0.1{text} for this machine only, 0.0.0.0{text} for all')
    else:
        host = _address(text, host, 4)
    if not (port.isascii() and port.isdigit() and int(port[:6]) < 65536 and len(port) <= 5):
        if not colon:
            raise ValueError(f'"{text}": neither ADDRESS:PORT nor a port; write 127.0.0.1:10350, for example')
        raise ValueError(f'"{text}": "{port}" is not a port; use a number from 0 to 65535')
    return Listen(host, int(port))


def listen_mistakes(given: Mapping[str, str]) -> Iterator[str]:
    """Give what is wrong with the addresses of flags, by the flags' names; an empty one is none, and no mistake."""
    for flag, text in given.items():
        try:
            parse_listen(text or "0")
        except ValueError as error:
            yield f"{flag} {error}"


def _address(text: str, host: str, version: int) -> str:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise ValueError(f'"{text}": "{host}" is not an IP address; names are not looked up') from None
    if address.version != version:
        raise ValueError(f'"{text}": only an IPv6 address stands in brackets')
    return str(address)
