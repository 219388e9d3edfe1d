"""profiles: what each cloud's metadata server has, and what of it is a secret of the node. Pure.

Here: the value, and the built-in profiles by name. Not here: users' own policies (spec.py), deciding (filter.py).
Invariant: a profile names the roots that it knows; whatever is below none of them is refused.
"""

from collections.abc import Mapping
from typing import Final, Literal

from podgate.features.metadata import v0112
from podgate.model.frozen import Frozen

Switch = Literal["token", "ssh-keys", "startup-script", "user-data", "guest-attribute-writes", "legacy-endpoints"]


class Concealed(Frozen, frozen=True):
    """Paths that are concealed, with all that is below them, in any case of letters.

    Attributes:
        name: what a rule is called in logs, after the profile's name.
        paths: globs (globs.py).
        switch: the switch that opens them; empty for none.
    """

    name: str
    paths: tuple[str, ...]
    switch: Switch | Literal[""] = ""


class AtPaths(Frozen, frozen=True):
    """Words that count at some paths only: query keys or methods, or the name of a JSON field."""

    paths: tuple[str, ...]
    words: tuple[str, ...]
    switch: Switch | Literal[""] = ""


class Profile(Frozen, frozen=True):
    """One cloud.

    Attributes:
        name: as ``--profile`` or ``builtin:NAME`` has it.
        roots: globs of what is forwarded unless something else speaks against it.
        concealed: what is not.
        open: the switches that are open by default.
        query_keys: keys that may stand anywhere; any other is refused.
        query_keys_at: keys that may stand at some paths.
        recursion: the directories at or in which the key ``recursive`` may stand.
        methods_at: methods beside GET and HEAD.
        any_case: whether the server takes a path in any case of letters.
        answers_with_children: whether a directory's answer holds what is below it, so that parents are concealed too.
        hosts: what ``Host`` may name, in lower case and without a port.
        headers: the header that keeps simple forgeries away, and its value in lower case; one of them suffices.
        header_at: paths at which one of ``headers`` is required, although the server would not ask for it.
        redacted: JSON fields to take out of answers.
        addresses: the server's own addresses.
        closed_ports: other addresses and ports of the cloud's that Pods shall not reach.
    """

    name: str
    roots: tuple[str, ...]
    concealed: tuple[Concealed, ...]
    hosts: tuple[str, ...]
    addresses: tuple[str, ...]
    open: tuple[Switch, ...] = ()
    query_keys: tuple[str, ...] = ()
    query_keys_at: tuple[AtPaths, ...] = ()
    recursion: tuple[str, ...] = ()
    methods_at: tuple[AtPaths, ...] = ()
    any_case: bool = False
    answers_with_children: bool = False
    headers: tuple[tuple[str, str], ...] = ()
    header_at: tuple[str, ...] = ()
    redacted: tuple[AtPaths, ...] = ()
    closed_ports: tuple[tuple[str, tuple[int, ...]], ...] = ()


def _each(bases: tuple[str, ...], *names: str) -> tuple[str, ...]:
    return tuple(f"{base}/{name}" for base in bases for name in names)


_V1: Final = ("/computeMetadata/v1", "/computeMetadata/v1beta1")
_ATTRIBUTES: Final = ("/**/attributes",)
"""Of the instance and the project, in each version; anywhere else there are none, so this asks no more than needed."""
_ACCOUNTS: Final = (*_each(_V1, "instance/service-accounts"), "/0.1/meta-data/service-accounts")
_TOKENS: Final = _each(_ACCOUNTS, "*/token")
_OLD_TOKENS: Final = ("/0.1/meta-data/service-accounts/*/acquire", "/0.1/meta-data/auth-token")

# A service account is one segment, and whatever is named identity… below it is concealed, as v0.1.12 had it.
_KUBE_ENV: Final = Concealed("kube-env", _each(_ATTRIBUTES, "kube-env"))
_IDENTITY: Final = Concealed("identity", ("/**/service-accounts/*/**/identity*",))
_TOKEN: Final = Concealed("token", (*_TOKENS, *_OLD_TOKENS), "token")
_SSH_KEYS: Final = Concealed("ssh-keys", _each(_ATTRIBUTES, "ssh-keys", "sshKeys"), "ssh-keys")
_STARTUP: Final = Concealed(
    "startup-script",
    _each(_ATTRIBUTES, "startup-script*", "shutdown-script*", "windows-startup-script*", "windows-shutdown-script*")
    + _each(_ATTRIBUTES, "sysprep-specialize-script*"),
    "startup-script",
)
_USER_DATA: Final = Concealed("user-data", _each(_ATTRIBUTES, "user-data"), "user-data")
_LEGACY: Final = Concealed("legacy-endpoints", ("/0.1", "/computeMetadata/v1beta1"), "legacy-endpoints")

_GCE_HOSTS: Final = (
    *("169.254.169.254", "metadata", "metadata.google.internal", "metadata.google.internal."),
    *("metadata.goog", "metadata.goog.", "metadata.", "[fd20:ce::254]"),
)
_GUEST_ATTRIBUTES: Final = _each(_V1, "instance/guest-attributes/**")

GCE: Final = Profile(
    name="gce",
    roots=(
        *("/", "/0.1", "/0.1/meta-data/**", "/computeMetadata"),
        *("/computeMetadata/v1beta1/**", "/computeMetadata/v1/**"),
    ),
    concealed=(
        *(_KUBE_ENV, _IDENTITY),
        Concealed("kube-master-certs", _each(_ATTRIBUTES, "kube-master-certs")),
        Concealed("kubeconfig", _each(_ATTRIBUTES, "kubeconfig")),
        Concealed(
            "bootstrap",
            _each(_ATTRIBUTES, "kubelet-config", "configure-sh", "k8s-node-setup-psm1", "user-profile-psm1")
            + _each(_ATTRIBUTES, "gce-container-declaration", "windows-keys"),
        ),
        Concealed("workload-certificates", ("/**/gce-workload-certificates",)),
        Concealed("credentials", ("/**/instance/credentials",)),
        Concealed("oslogin", ("/**/oslogin",)),
        *(_TOKEN, _SSH_KEYS, _STARTUP, _USER_DATA, _LEGACY),
    ),
    hosts=_GCE_HOSTS,
    addresses=("169.254.169.254", "fd20:ce::254"),
    open=("token", "legacy-endpoints"),
    query_keys=v0112.QUERY_KEYS,
    query_keys_at=(AtPaths(_TOKENS, ("enforce_scopes", "bindCertificateFingerprint")),),
    recursion=_each(_ACCOUNTS, "*/**"),
    methods_at=(AtPaths(_TOKENS, ("POST",)), AtPaths(_GUEST_ATTRIBUTES, ("PUT", "DELETE"), "guest-attribute-writes")),
    headers=(("metadata-flavor", "google"), ("x-google-metadata-request", "true")),
    # The old endpoints give tokens to whoever asks, without the header.
    header_at=(*_OLD_TOKENS, "/0.1/meta-data/service-accounts/*/token", f"{_V1[1]}/instance/service-accounts/*/token"),
)
V0112: Final = Profile(
    name="v0.1.12",
    roots=GCE.roots,
    concealed=(
        Concealed("kube-env", (*_each(_V1, "instance/attributes/kube-env"), "/0.1/meta-data/attributes/kube-env")),
        Concealed("identity", _each(_ACCOUNTS, "*/**/identity*")),
        _TOKEN,
        _SSH_KEYS,
        _STARTUP,
        _USER_DATA,
        _LEGACY,
    ),
    hosts=_GCE_HOSTS,
    addresses=GCE.addresses,
    open=("token", "ssh-keys", "startup-script", "user-data", "legacy-endpoints"),
    query_keys=v0112.QUERY_KEYS,
    recursion=GCE.recursion,
    methods_at=GCE.methods_at,
    headers=GCE.headers,
)

_AWS_VERSIONS: Final = ("/latest", "/1.0", "/20*-*-*")
_AWS_ANY: Final = ("/*",)
AWS: Final = Profile(
    name="aws",
    roots=("/", *_each(_AWS_VERSIONS, "meta-data/**", "dynamic/**", "user-data"), *_AWS_VERSIONS, "/latest/api/token"),
    concealed=(
        Concealed("credentials", _each(_AWS_ANY, "meta-data/iam/security-credentials"), "token"),
        Concealed("identity-credentials", _each(_AWS_ANY, "meta-data/identity-credentials"), "token"),
        Concealed("user-data", _each(_AWS_ANY, "user-data"), "user-data"),
    ),
    hosts=("169.254.169.254", "[fd00:ec2::254]", "instance-data", "instance-data.ec2.internal"),
    addresses=("169.254.169.254", "fd00:ec2::254"),
    methods_at=(AtPaths(("/latest/api/token",), ("PUT",)),),
    headers=(("x-aws-ec2-metadata-token", ""),),
)

_COMPUTE: Final = ("/metadata/instance/compute",)
AZURE: Final = Profile(
    name="azure",
    roots=(
        *("/metadata/instance/**", "/metadata/attested/**", "/metadata/scheduledevents/**"),
        *("/metadata/loadbalancer/**", "/metadata/versions", "/metadata/identity/**", "/metadata/THIM/**"),
    ),
    concealed=(
        Concealed("identity", ("/metadata/identity",), "token"),
        Concealed("user-data", _each(_COMPUTE, "userData", "customData"), "user-data"),
        Concealed("os-profile", _each(_COMPUTE, "osProfile")),
    ),
    hosts=("169.254.169.254",),
    addresses=("169.254.169.254",),
    query_keys=("api-version", "format", "extended", "nonce"),
    query_keys_at=(
        AtPaths(
            ("/metadata/identity/**",),
            ("resource", "client_id", "object_id", "mi_res_id", "msi_res_id", "bypass_cache"),
        ),
    ),
    any_case=True,
    answers_with_children=True,
    headers=(("metadata", "true"),),
    closed_ports=(("168.63.129.16", (80, 32526)),),
)

OPENSTACK: Final = Profile(
    name="openstack",
    roots=("/", "/openstack/**", *_each(_AWS_VERSIONS, "meta-data/**", "user-data"), *_AWS_VERSIONS),
    concealed=(
        Concealed("user-data", ("/openstack/*/user_data", *_each(_AWS_ANY, "user-data")), "user-data"),
        Concealed("vendor-data", ("/openstack/*/vendor_data*",)),
        Concealed("password", ("/openstack/*/password",)),
    ),
    hosts=("169.254.169.254", "[fe80::a9fe:a9fe]"),
    addresses=("169.254.169.254", "fe80::a9fe:a9fe"),
    redacted=(AtPaths(("/openstack/*/meta_data.json",), ("admin_pass",)),),
)

PROFILES: Final[Mapping[str, Profile]] = {each.name: each for each in (GCE, V0112, AWS, AZURE, OPENSTACK)}
"""The built-in policies by name: ``builtin:NAME``."""
