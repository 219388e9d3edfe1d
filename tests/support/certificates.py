"""Certificates for tests: an authority, a server and a client, made by openssl.

Here: making them in a folder. Not here: what they are used for.
Invariant: they are made afresh for a session and are good for a day and 127.0.0.1 alone.
"""

import ssl
import subprocess
from pathlib import Path


class Certificates:
    """An authority (``ca.crt``), and what it signed: ``server`` and ``client``, each ``.crt`` and ``.key``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._openssl("req", "-x509", *_KEY, "-keyout", "ca.key", "-out", "ca.crt", "-days", "1",
                      "-subj", "/CN=test CA", "-addext", "keyUsage=critical,keyCertSign")  # fmt: skip
        self.sign("server", "subjectAltName=IP:127.0.0.1,DNS:kubernetes.default")
        self.sign("client", "extendedKeyUsage=clientAuth", subject="/O=system:nodes/CN=system:node:n1")

    def sign(self, name: str, extension: str, subject: str = "/CN=server") -> None:
        """Make a key and have the authority sign it."""
        request = (
            "req",
            *_KEY,
            "-keyout",
            f"{name}.key",
            "-out",
            f"{name}.csr",
            "-subj",
            subject,
            "-addext",
            extension,
        )
        self._openssl(*request)
        self._openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
                      "-out", f"{name}.crt", "-days", "1", "-copy_extensions", "copy")  # fmt: skip

    def _openssl(self, *words: str) -> None:
        subprocess.run(["openssl", *words], cwd=self.folder, check=True, capture_output=True)

    def read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def server_context(self) -> ssl.SSLContext:
        """Give a server's context that asks clients for a certificate, and goes on without."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self.path("ca.crt"))
        context.load_cert_chain(self.path("server.crt"), self.path("server.key"))
        context.verify_mode = ssl.CERT_OPTIONAL
        return context


_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
