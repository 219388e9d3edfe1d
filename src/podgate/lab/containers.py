"""From a container of a workload to the program and root that the runner starts.

Here: putting together rights, environment, words, volumes and root. Pure, given where volumes lie.
Not here: starting anything (lab/runner.py), the life of a container (lab/workload.py).
Invariant: the same workload, objects and volume paths give the same program and root.
"""

import posixpath
from collections.abc import Mapping
from typing import Final

from podgate.lab.images import BIN, words
from podgate.lab.podenv import Surroundings, environment, expanded
from podgate.lab.pods import Workload
from podgate.lab.podspec import Container, VolumeMount
from podgate.lab.rootfs import MachineRoot, RootRequest, RootStep, VolumeBind, container_root, hosts_file
from podgate.lab.security import ConfigFault, setpriv, user_of
from podgate.model.frozen import Frozen

OBJECTS: Final = "/run/podgate-lab/objects"
"""Where a container sees the lab's objects; ``PODGATE_SOURCE`` says so."""

_SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Program(Frozen, frozen=True):
    """What to run.

    Attributes:
        words: program and arguments, with setpriv in front.
        environment: all of it.
        folder: the working directory.
    """

    words: tuple[str, ...]
    environment: Mapping[str, str]
    folder: str = "/"


class Installation(Frozen, frozen=True):
    """What of this machine and lab goes into every container.

    Attributes:
        python: the interpreter that runs the lab.
        setpriv: the path of that program, which a container's own PATH need not hold.
        bin: the lab's folder of entry programs.
        objects: the lab's objects; empty when they are in an API server.
        environment: variables that every container has.
        limits: whether resources.limits are enforced.
    """

    machine: MachineRoot
    python: str
    setpriv: str
    bin: str
    objects: str
    environment: Mapping[str, str] = {}
    limits: bool = False

    @property
    def joined(self) -> bool:
        """Whether the objects are in an API server."""
        return not self.objects

    @property
    def mounts(self) -> tuple[VolumeBind, ...]:
        """What of the lab every container sees."""
        programs = VolumeBind(self.bin, BIN, True)
        return (programs,) if self.joined else (VolumeBind(self.objects, OBJECTS, True), programs)

    @property
    def variables(self) -> dict[str, str]:
        """What tells programs in a container where the objects are."""
        return {**({} if self.joined else {"PODGATE_SOURCE": OBJECTS}), **self.environment}


class VolumePlaces(Frozen, frozen=True):
    """Where each volume lies; those in ``read_only`` are never writable, as kubelets mount them."""

    paths: Mapping[str, str] = {}
    read_only: frozenset[str] = frozenset()


def base_environment(container: Container, workload: Workload, installation: Installation) -> dict[str, str]:
    """Give what a container runtime and the lab set before the manifest has its say."""
    root = user_of(container, workload.pod.spec.security) == 0
    return {
        "PATH": f"{BIN}:{posixpath.dirname(installation.python)}:{_SYSTEM_PATH}",
        "HOSTNAME": workload.hostname,
        "HOME": "/root" if root else "/",
        **installation.variables,
    }


def program(
    container: Container, workload: Workload, around: Surroundings, installation: Installation
) -> Program | ConfigFault:
    """Give the container's main program."""
    prefix = setpriv(container, workload.pod.spec.security)
    if isinstance(prefix, ConfigFault):
        return prefix
    variables = environment(container, around, base_environment(container, workload, installation).items())
    if isinstance(variables, ConfigFault):
        return variables
    own = tuple(expanded(word, variables) for word in words(container, installation.python))
    return Program((installation.setpriv, *prefix[1:], *own), variables, container.working_dir or "/")


def command_in(main: Program, command: tuple[str, ...], more: Mapping[str, str]) -> Program:
    """Give a further command with the rights and environment of a container's main program."""
    prefix = main.words[: main.words.index("--") + 1]
    return Program((*prefix, *command), {**main.environment, **more}, main.folder)


def _bind(mount: VolumeMount, volumes: VolumePlaces, variables: Mapping[str, str]) -> VolumeBind | ConfigFault:
    source = volumes.paths.get(mount.name)
    if source is None:
        return ConfigFault(
            "CreateContainerConfigError", f"volumeMount {mount.mount_path}: no volume named {mount.name!r}"
        )
    below = expanded(mount.sub_path_expr, variables) if mount.sub_path_expr else mount.sub_path
    if ".." in below.split("/") or below.startswith("/"):
        return ConfigFault("CreateContainerConfigError", f"subPath {below!r} leads out of volume {mount.name}")
    path = posixpath.join(source, below) if below else source
    return VolumeBind(path, mount.mount_path, mount.read_only or mount.name in volumes.read_only)


def root(
    container: Container,
    workload: Workload,
    variables: Mapping[str, str],
    installation: Installation,
    volumes: VolumePlaces,
) -> tuple[RootStep, ...] | ConfigFault:
    """Give the steps for the container's root."""
    mounts = [*installation.mounts]
    for mount in container.volume_mounts or ():
        bind = _bind(mount, volumes, variables)
        if isinstance(bind, ConfigFault):
            return bind
        mounts.append(bind)
    spec = workload.pod.spec
    aliases = [(alias.ip, alias.hostnames) for alias in spec.host_aliases or ()]
    addresses = workload.host_ips if spec.host_network else workload.pod.status.addresses
    request = RootRequest(
        mounts=tuple(mounts),
        hostname=workload.hostname,
        hosts=hosts_file(workload.hostname, addresses, aliases),
        privileged=container.security.privileged,
        read_only=container.security.read_only_root_filesystem,
    )
    return container_root(installation.machine, request)
