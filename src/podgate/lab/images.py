"""Which program an image's name stands for. Nothing is pulled.

Here: image, command and args -> an argument list. Pure.
Not here: its rights and environment.
Invariant: the image's name decides, by its last path segment before tag and digest; the registry never matters.
"""

import itertools
from collections.abc import Mapping
from typing import Final

import msgspec

from podgate.lab.clouds import IMAGE as CLOUD_IMAGE
from podgate.lab.podspec import Container, Probe, TcpSocket

ENTRIES: Final[Mapping[str, str]] = {
    "podgate": "podgate.cli",
    "ip-masq-agent": "podgate.features.masquerade.dropin",
    "metadata-proxy": "podgate.features.metadata.dropin",
    "kube-proxy": "podgate.features.services.dropin",
}
"""Images that run this checkout, with the module whose ``main(argv)`` is their entry point."""

BIN: Final = "/run/podgate-lab/bin"
"""Where a container finds a program for each entry."""


def image_name(image: str) -> str:
    """Give the last path segment without tag and digest: ``registry:5000/a/podgate:v1@sha256:…`` is ``podgate``."""
    return image.split("@", 1)[0].rsplit("/", 1)[-1].split(":", 1)[0]


def entry_script(python: str, source: str, module: str) -> str:
    """Give the text of an entry's program; ``source`` is the folder that holds the package."""
    return (
        f"#!{python}\nimport sys\n\nsys.path.insert(0, {source!r})\nfrom {module} import main\n\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )


def is_echo(container: Container) -> bool:
    """Whether a container runs the built-in echo server."""
    return not container.command and image_name(container.image) not in (*ENTRIES, CLOUD_IMAGE)


def with_echo_probe(container: Container) -> Container:
    """Give an echo server without a readiness probe one: it is ready once it answers HTTP, not when it was started."""
    if not is_echo(container) or container.readiness_probe is not None:
        return container
    ports = next((variable.value for variable in container.env or () if variable.name == "ECHO_HTTP"), "80")
    args = (container.args or ()) + ("",)
    for argument, following in itertools.pairwise(args):
        if argument == "--http":
            ports = following
        elif argument.startswith("--http="):
            ports = argument.removeprefix("--http=")
    first = ports.split(",")[0]
    if not first.isdigit():
        return container
    probe = Probe(tcp_socket=TcpSocket(int(first)))
    return msgspec.structs.replace(container, readiness_probe=probe)


def words(container: Container, python: str) -> tuple[str, ...]:
    """Give a container's program and arguments, before ``$(VAR)`` is expanded.

    ``command`` replaces the image's entry point, ``args`` its arguments, as in Kubernetes. An image that is no entry
    and has no command is the built-in echo server.
    """
    name = image_name(container.image)
    command, args = container.command or (), container.args or ()
    if name in ENTRIES:
        first = command[0].rsplit("/", 1)[-1] if command else name
        entry = f"{BIN}/{first}" if first in ENTRIES else command[0]
        return (entry, *command[1:], *args)
    if name == CLOUD_IMAGE and not command:
        return (python, "-m", "podgate.lab.peers.clouds", *args)
    if not is_echo(container):
        return (*command, *args)
    return (python, "-m", "podgate.lab.peers.echo", *args)
