"""Rights: what an agent asks of the API, as access reviews, and what their answers mean. Pure.

Here: the rights that follow from watches and from what is told, review requests, findings. Not here: sending.
Invariant: the rights are those that deploy/ gives: a test compares them.

Format: kubernetes.io, authorization.k8s.io/v1, SelfSubjectAccessReview and SubjectAccessReview.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from podgate.commandline.findings import Finding
from podgate.kubeapi.requests import Request
from podgate.model.frozen import Frozen
from podgate.model.kinds.meta import ApiStruct
from podgate.model.kinds.reports import NODE_REPORT
from podgate.model.snapshot import Kind, Watch
from podgate.targets.kubernetes.leases import LEASE
from podgate.targets.kubernetes.render import EVENT

_REVIEWS: Final = "/apis/authorization.k8s.io/v1"
_EVERYBODY: Final = "system:authenticated"


class Right(Frozen, frozen=True, order=True):
    """One verb on one resource; an empty namespace or name stands for all."""

    group: str
    resource: str
    verb: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        """Show ``list pods`` or ``patch masqueradepolicies.podgate.dev/status``."""
        plural, slash, subresource = self.resource.partition("/")
        where = f" in {self.namespace}" if self.namespace else ""
        which = f" {self.name}" if self.name else ""
        return f"{self.verb} {plural}{'.' if self.group else ''}{self.group}{slash}{subresource}{which}{where}"


class Account(Frozen, frozen=True):
    """Whose rights: a service account's, or our own login's (both empty)."""

    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        """Show ``ServiceAccount NAMESPACE/NAME`` or ``your login``."""
        return f"ServiceAccount {self.namespace}/{self.name}" if self.name else "your login"


def reads(watches: Iterable[Watch]) -> set[Right]:
    """Give the rights that watching needs."""
    return {
        Right(watch.kind.group, watch.kind.plural, verb, watch.namespace)
        for watch in watches
        for verb in ("list", "watch")
    }


def tells(kind: Kind[Any] | None, namespace: str, lease: str) -> set[Right]:
    """Give the rights that telling needs: a report by node, statuses, Events, and the Lease of the one that leads.

    Args:
        kind: whose status is written; None for none.
        namespace: where the Lease is.
        lease: its name. RBAC cannot restrict what is made by its name.
    """
    found = {Right(NODE_REPORT.group, NODE_REPORT.plural, verb) for verb in ("create", "list", "patch", "watch")}
    found |= {Right(EVENT.group, EVENT.plural, "create")}
    found |= {Right(LEASE.group, LEASE.plural, "create", namespace)}
    found |= {Right(LEASE.group, LEASE.plural, verb, namespace, lease) for verb in ("get", "update")}
    return found | ({Right(kind.group, f"{kind.plural}/status", "patch")} if kind else set())


def review(right: Right, account: Account) -> Request:
    """Ask whether an account has a right."""
    plural, _, subresource = right.resource.partition("/")
    asked = {"group": right.group, "resource": plural, "verb": right.verb}
    asked |= {"namespace": right.namespace} if right.namespace else {}
    asked |= {"name": right.name} if right.name else {}
    asked |= {"subresource": subresource} if subresource else {}
    spec: dict[str, Any] = {"resourceAttributes": asked}
    kind = "SubjectAccessReview" if account.name else "SelfSubjectAccessReview"
    if account.name:
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{account.namespace}", _EVERYBODY]
        spec |= {"user": f"system:serviceaccount:{account.namespace}:{account.name}", "groups": groups}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    path = f"{_REVIEWS}/{kind.lower()}s"
    return Request("POST", path, body=msgspec.json.encode(body), what=f"review whether {account} may {right}")


class _Status(ApiStruct, frozen=True, rename="camel"):
    allowed: bool = False


class _Review(ApiStruct, frozen=True, rename="camel"):
    status: _Status = _Status()


def is_allowed(body: bytes) -> bool:
    """Read the answer to a review. Raises msgspec.DecodeError."""
    return msgspec.json.decode(body, type=_Review).status.allowed


def right_findings(feature: str, account: Account, answers: Mapping[Right, bool], role: str) -> Iterator[Finding]:
    """Say what an account lacks for a feature; ``role`` is the folder of manifests that gives it."""
    name = f"{feature}: rights"
    missing = sorted(right for right, allowed in answers.items() if not allowed)
    if missing:
        lacks = "; ".join(map(str, missing))
        yield Finding(name, "bad", f"{account} may not {lacks}", f"apply the roles and bindings of {role}")
    else:
        yield Finding(name, "ok", f"{account} has all {len(answers)}")
