"""securityContext as arguments of ``setpriv``.

Here: which user, groups and capabilities a container runs with. Pure.
Not here: read-only roots and /proc/sys (lab/rootfs.py).
Invariant: a container never gets a right that the same manifest would not get from a container runtime.
"""

from typing import Final

from podgate.lab.podspec import Container, PodSecurityContext
from podgate.model.frozen import Frozen

RUNTIME_CAPABILITIES: Final = (
    "audit_write",
    "chown",
    "dac_override",
    "fowner",
    "fsetid",
    "kill",
    "mknod",
    "net_bind_service",
    "net_raw",
    "setfcap",
    "setgid",
    "setpcap",
    "setuid",
    "sys_chroot",
)
"""What container runtimes give by default (containerd, CRI-O adds nothing)."""


class ConfigFault(Frozen, frozen=True):
    """Why a container cannot be made from its manifest; ``reason`` is a kubelet's word for it."""

    reason: str
    message: str


def user_of(container: Container, pod: PodSecurityContext) -> int:
    """Give the user id: the container's, the Pod's, or root, as images of the lab have no user of their own."""
    own = container.security.run_as_user
    if own is not None:
        return own
    return pod.run_as_user if pod.run_as_user is not None else 0


def _capabilities(container: Container) -> str | None:
    """Give setpriv's list for the bounding set; None leaves it as it is."""
    context = container.security
    add = [name.lower().removeprefix("cap_") for name in context.capabilities.add]
    drop = {name.lower().removeprefix("cap_") for name in context.capabilities.drop}
    if context.privileged or ("all" in add and not drop):
        return None
    base = [] if "all" in drop else [name for name in RUNTIME_CAPABILITIES if name not in drop]
    if "all" in add:
        return ",".join(["+all", *(f"-{name}" for name in sorted(drop - {"all"}))])
    return ",".join(["-all", *(f"+{name}" for name in dict.fromkeys([*base, *add]))])


def setpriv(container: Container, pod: PodSecurityContext) -> tuple[str, ...] | ConfigFault:
    """Give the command that a container's own command is appended to."""
    context = container.security
    user = user_of(container, pod)
    must_not_be_root = context.run_as_non_root if context.run_as_non_root is not None else pod.run_as_non_root
    if must_not_be_root and user == 0:
        return ConfigFault(
            "CreateContainerConfigError",
            f"container {container.name}: runAsNonRoot is set, but it would run as root: set runAsUser",
        )
    group = context.run_as_group if context.run_as_group is not None else pod.run_as_group
    groups = [*pod.supplemental_groups, *([] if pod.fs_group is None else [pod.fs_group])]
    words = ["setpriv", f"--reuid={user}", f"--regid={0 if group is None else group}"]
    words.append(f"--groups={','.join(map(str, groups))}" if groups else "--clear-groups")
    bounding = _capabilities(container)
    if bounding is not None:
        words += ["--inh-caps=-all", f"--bounding-set={bounding}"]
    if not context.allow_privilege_escalation and not context.privileged:
        words.append("--no-new-privs")
    return (*words, "--")
