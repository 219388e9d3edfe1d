"""What the lab writes to a Kubernetes API: from its controllers' writes to requests. Pure.

Here: bindings, patches, statuses, deletions, leases, tokens. Not here: when they are sent (kubestore.py).
Invariant: a write that would change nothing is no request; a patch carries the UID of the object that it means, so it
never reaches a later one of the same name.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from podgate.kubeapi.requests import Request, create, path_of
from podgate.lab.controllers.writes import Put, PutStatus, Remove, Write, merged_status
from podgate.lab.kinds import Object
from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.snapshot import Kind

MANAGER: Final = "podgate-lab"
_MERGE: Final = "application/merge-patch+json"
_STRATEGIC: Final = "application/strategic-merge-patch+json"
LEASE_SECONDS: Final = 40
"""As long as a kubelet's (KEP-589); the node controller takes a Node without renewal for gone after that."""


class Erase(Remove, frozen=True):
    """Take a Pod whose containers have ended out of the API."""


class TokenKey(Frozen, frozen=True, order=True):
    """A token that a Pod mounts: bound to the Pod, for an audience (empty: the API server's own)."""

    namespace: str
    account: str
    pod: str
    uid: str
    audience: str
    seconds: int

    @property
    def ref(self) -> ObjectRef:
        """Where the token is among the objects of the lab; no API has an object of that kind."""
        return token_ref(self.namespace, self.pod, self.uid, self.audience)


def token_ref(namespace: str, pod: str, uid: str, audience: str) -> ObjectRef:
    """Give where a Pod's token is among the objects of a lab that has joined a cluster."""
    return ObjectRef("TokenRequest", f"{pod}/{uid}/{audience}", namespace)


def merge_patch(before: Any, after: Any) -> Any:
    """Give the JSON merge patch (RFC 7386) from one value to another; an empty map changes nothing."""
    if not isinstance(before, Mapping) or not isinstance(after, Mapping):
        return after
    patch: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        if key not in before:
            patch[key] = value
        elif before[key] != value:
            patch[key] = merge_patch(before[key], value)
    return patch


def request_for(kind: Kind[Any], have: Object, writes: Sequence[Write]) -> Request | None:
    """Give the request for one write, or for several statuses, of an object that is there; None when it is so."""
    first, ref = writes[0], writes[0].ref
    if isinstance(first, Put):
        return put_request(kind, ref, have, first.obj)
    if isinstance(first, Remove):
        return deletion(kind, ref, have, at_once=isinstance(first, Erase))
    status: Mapping[str, Any] = {}
    for write in writes:
        if isinstance(write, PutStatus):
            status = {**merged_status(status, write.status), **{k: None for k, v in write.status.items() if v is None}}
    return status_request(kind, ref, have, status)


def put_request(kind: Kind[Any], ref: ObjectRef, before: Object | None, obj: Object) -> Request | None:
    """Give the request that makes an object's body so; None when it is so. A Pod's node is given by a binding."""
    if before is None:
        return create(kind, ref, {key: value for key, value in obj.items() if key != "status"}, MANAGER)
    node = (obj.get("spec") or {}).get("nodeName")
    if ref.kind == "Pod" and node:
        return binding(kind, ref, before, node) if not (before.get("spec") or {}).get("nodeName") else None
    parts = {"labels", "annotations"}
    old, new = ({k: v for k, v in one["metadata"].items() if k in parts} for one in (before, obj))
    patch = merge_patch(
        {"metadata": old, "spec": before.get("spec") or {}}, {"metadata": new, "spec": obj.get("spec") or {}}
    )
    return _patch(kind, ref, before, patch, _MERGE) if patch else None


def binding(kind: Kind[Any], ref: ObjectRef, pod: Object, node: str) -> Request:
    """Give a Pod to a node, as a scheduler does."""
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": ref.name, "namespace": ref.namespace, "uid": pod["metadata"]["uid"]},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    return Request(
        "POST", path_of(kind, ref.namespace, ref.name, "binding"), (("fieldManager", MANAGER),),
        msgspec.json.encode(body), what=f"bind {ref} to {node}",
    )  # fmt: skip


def status_request(kind: Kind[Any], ref: ObjectRef, obj: Object, status: Mapping[str, Any]) -> Request | None:
    """Give the request that merges a status into an object's; None when it changes nothing.

    Of a Pod others write conditions too, so theirs are left alone (strategic merge, by type). Of a Node that way would
    make one of two addresses of a type (kubernetes issue 67166), so the whole list is sent.
    """
    have = obj.get("status") or {}
    merged = merged_status(have, status)
    changed = {key: merged.get(key) for key in status if _plain(merged.get(key)) != _plain(have.get(key))}
    if not changed:
        return None
    if ref.kind == "Pod" and "conditions" in changed:
        changed["conditions"] = [_replacing(one, have.get("conditions") or ()) for one in status["conditions"]]
    style = _STRATEGIC if ref.kind == "Pod" else _MERGE
    return _patch(kind, ref, obj, {"status": changed}, style, part="status")


def _replacing(condition: Mapping[str, Any], have: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Give a condition for a strategic merge, which keeps what is not mentioned: reasons that are over are removed."""
    before = next((one for one in have if one.get("type") == condition["type"]), {})
    return {**{key: None for key in ("reason", "message") if key in before}, **condition}


def _plain(value: Any) -> Any:
    """Leave out what says nothing: the API server adds empty fields of its own to what it stores."""
    if isinstance(value, Mapping):
        return {key: plain for key, part in value.items() if (plain := _plain(part)) not in (None, "", {}, [])}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value


def _patch(
    kind: Kind[Any], ref: ObjectRef, obj: Object, patch: Mapping[str, Any], style: str, *, part: str = ""
) -> Request:
    metadata = {**patch.get("metadata", {}), "uid": obj["metadata"]["uid"]}
    return Request(
        "PATCH", path_of(kind, ref.namespace, ref.name, part), (("fieldManager", MANAGER),),
        msgspec.json.encode({**patch, "metadata": metadata}), style,
        f"patch {'the ' + part + ' of ' if part else ''}{ref}",
    )  # fmt: skip


def deletion(kind: Kind[Any], ref: ObjectRef, obj: Object, *, at_once: bool) -> Request:
    """Delete an object; ``at_once`` takes a Pod whose containers have ended out of the API."""
    options: dict[str, Any] = {"preconditions": {"uid": obj["metadata"]["uid"]}}
    if at_once:
        options["gracePeriodSeconds"] = 0
    path = path_of(kind, ref.namespace, ref.name)
    return Request("DELETE", path, body=msgspec.json.encode(options), what=f"delete {ref}")


def lease(kind: Kind[Any], node: Object, now: str) -> Request:
    """Say that a node is alive, as a kubelet does every 10 seconds."""
    metadata = node["metadata"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": metadata["name"], "uid": metadata["uid"]}
    body = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": metadata["name"], "namespace": "kube-node-lease", "ownerReferences": [owner]},
        "spec": {"holderIdentity": metadata["name"], "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now},
    }
    return Request(
        "PATCH", path_of(kind, "kube-node-lease", metadata["name"]),
        (("fieldManager", MANAGER), ("force", "true")), msgspec.json.encode(body), "application/apply-patch+yaml",
        f"renew the lease of Node/{metadata['name']}",
    )  # fmt: skip


def token(kind: Kind[Any], key: TokenKey) -> Request:
    """Ask for a token of a service account, bound to a Pod (TokenRequest)."""
    spec: dict[str, Any] = {
        "expirationSeconds": key.seconds,
        "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": key.pod, "uid": key.uid},
    }
    if key.audience:
        spec["audiences"] = [key.audience]
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    return Request(
        "POST", path_of(kind, key.namespace, key.account, "token"), (), msgspec.json.encode(body),
        what=f"get a token of {key.account} for Pod/{key.namespace}/{key.pod}",
    )  # fmt: skip
