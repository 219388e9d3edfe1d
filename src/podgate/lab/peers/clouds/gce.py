"""gce: Google's metadata server.

Here: the tree, Metadata-Flavor, 301s, ETag, recursion, wait_for_change, tokens. Not here: sockets.
Invariant: as at Google, every answer says Metadata-Flavor, and whoever sends X-Forwarded-For gets 403.
"""

import json
from typing import Any, Final

from podgate.lab.peers.clouds.cloud import FORWARDED_FOR, Asked, Cloud, Hold, Reply, etag

V1: Final = "/computeMetadata/v1/"
_ROOTS: Final = (V1, "/computeMetadata/v1beta1/", "/0.1/meta-data/")
_LISTED: Final = {"/": "0.1/\ncomputeMetadata/\n", "/computeMetadata/": "v1/\nv1beta1/\n", "/0.1/": "meta-data/\n"}
_TRUE: Final = ("true", "1", "yes", "y")
_ATTRIBUTES: Final = (
    *("kube-env", "kube-master-certs", "kubeconfig", "kubelet-config", "configure-sh", "user-data", "startup-script"),
    *("shutdown-script", "k8s-node-setup-psm1", "user-profile-psm1", "gce-container-declaration", "windows-keys"),
)
_SECRETS: Final = (
    *_ATTRIBUTES,
    *("ssh-keys", "project-ssh-keys", "token", "identity", "workload-key", "trust-anchors", "mds-client-certificate"),
    *("guest-attribute", "oslogin-users"),
)
ACCOUNT: Final = "123456-compute@developer.gserviceaccount.com"


class Gce(Cloud):
    """A virtual machine's view of Google's server.

    Args:
        legacy: whether /0.1/ and /computeMetadata/v1beta1/ answer; they need no header.
    """

    name = "gce"

    def __init__(self, *, legacy: bool = True) -> None:
        super().__init__(_SECRETS)
        self._legacy = legacy
        self._tree = _tree(self.secrets)

    def put(self, path: str, value: str) -> None:
        """Change or add an entry below /computeMetadata/v1/."""
        *folders, last = path.removeprefix(V1).strip("/").split("/")
        at = self._tree
        for folder in folders:
            at = at.setdefault(folder, {})
        at[last] = value

    def answer(self, asked: Asked, *, held: bool = False) -> Reply | Hold:
        """Answer a request."""
        if asked.header(FORWARDED_FOR) is not None:
            return _reply(403, "Forbidden: X-Forwarded-For\n")
        if asked.path in _LISTED:
            return _reply(200, _LISTED[asked.path])
        root = next((root for root in _ROOTS if f"{asked.path}/".startswith(root)), None)
        if root is None:
            slash = f"{asked.path}/"
            return _moved(asked, slash) if slash in _LISTED else _reply(404, "not found\n")
        if root == V1:
            flavor = asked.header("metadata-flavor") or ""
            old = asked.header("x-google-metadata-request") or ""
            if flavor.lower() != "google" and old.lower() != "true":
                return _reply(403, "Missing required header: Metadata-Flavor\n")
        elif not self._legacy:
            return _reply(403, "Legacy metadata endpoints are disabled. Please use the /v1/ endpoint.\n")
        return self._below(asked, root, held=held)

    def _below(self, asked: Asked, root: str, *, held: bool) -> Reply | Hold:
        words = [word for word in asked.path[len(root) :].split("/") if word]
        if root == "/0.1/meta-data/":
            words = {
                "attributes": ["instance", "attributes"],
                "service-accounts": ["instance", "service-accounts"],
            }.get(words[0] if words else "", words[:1]) + words[1:]
        found: Any = self._tree
        for word in words:
            if not isinstance(found, dict) or word not in found:
                return _reply(404, "not found\n")
            found = found[word]
        if asked.method not in ("GET", "HEAD"):
            return self._written(asked, words)
        recursive = asked.query.get("recursive", "").lower() in _TRUE
        if isinstance(found, dict) and not asked.path.endswith("/"):
            return _moved(asked, asked.path + "/")
        waits = asked.query.get("wait_for_change", "").lower() in _TRUE
        if waits and (words[-1:] == ["token"] or (isinstance(found, dict) and not recursive)):
            return _reply(400, "wait_for_change is not supported here\n")
        return self._waited(asked, _shown(found, recursive=recursive, alt=asked.query.get("alt", "")), held=held)

    def _waited(self, asked: Asked, text: str, *, held: bool) -> Reply | Hold:
        query, tag = asked.query, etag(text)
        wants = query.get("wait_for_change", "").lower() in _TRUE
        if wants and not held and query.get("last_etag", tag) == tag:
            seconds = query.get("timeout_sec")
            if seconds is None or not seconds.isdecimal():
                return Hold()
            if int(seconds) > 0:
                return Hold(float(seconds))
        is_recursive = query.get("recursive", "").lower() in _TRUE and query.get("alt") != "text"
        json_body = is_recursive or asked.path.endswith("/token")
        return _reply(200, text, ("ETag", tag), content="application/json" if json_body else "application/text")

    def _written(self, asked: Asked, words: list[str]) -> Reply:
        if words[-1:] == ["token"] and asked.method == "POST":
            return _reply(
                200, self._tree["instance"]["service-accounts"]["default"]["token"], content="application/json"
            )
        if words[:2] == ["instance", "guest-attributes"] and asked.method in ("PUT", "DELETE"):
            return _reply(200, "")
        return _reply(405, "method not allowed\n")


def _tree(words: Any) -> dict[str, Any]:
    account = {
        "aliases": "default\n",
        "email": ACCOUNT,
        "scopes": "https://www.googleapis.com/auth/cloud-platform\n",
        "identity": words["identity"],
        "token": json.dumps({"access_token": words["token"], "expires_in": 3599, "token_type": "Bearer"}),
    }
    return {
        "instance": {
            "id": "4711",
            "name": "node-1",
            "hostname": "node-1.c.proj.internal",
            "zone": "projects/123456/zones/us-central1-a",
            "machine-type": "projects/123456/machineTypes/e2-small",
            "tags": '["gke-node"]',
            "attributes": {
                **{name: f"{name}: {words[name]}\n" for name in _ATTRIBUTES},
                "ssh-keys": f"user:ssh-rsa {words['ssh-keys']} user@example.com\n",
                "cluster-name": "cluster-1",
                "cluster-location": "us-central1-a",
            },
            "service-accounts": {"default": account, ACCOUNT: dict(account)},
            "network-interfaces": {"0": {"ip": "10.128.0.2", "access-configs": {"0": {"external-ip": "192.0.2.9"}}}},
            "gce-workload-certificates": {
                "workload-identities": json.dumps({"privateKeyPem": words["workload-key"]}),
                "trust-anchors": words["trust-anchors"],
                "config-status": "{}",
            },
            "credentials": {"mds-client-certificate": words["mds-client-certificate"]},
            "guest-attributes": {"hostkeys": {"ssh-rsa": words["guest-attribute"]}},
        },
        "project": {
            "project-id": "proj",
            "numeric-project-id": "123456",
            "attributes": {"ssh-keys": words["project-ssh-keys"], "sshKeys": words["project-ssh-keys"]},
        },
        "oslogin": {"users": words["oslogin-users"]},
    }


def _shown(found: Any, *, recursive: bool, alt: str) -> str:
    if not isinstance(found, dict):
        return str(found)
    if not recursive:
        return "".join(f"{name}/\n" if isinstance(inner, dict) else f"{name}\n" for name, inner in found.items())
    # Credentials are made when asked for one by one: recursion leaves them out.
    plain = _without(found, ("token", "identity"))
    return "".join(f"{line}\n" for line in _flat(plain, "")) if alt == "text" else json.dumps(plain)


def _without(value: Any, names: tuple[str, ...]) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: _without(inner, names) for name, inner in value.items() if name not in names}


def _flat(value: Any, above: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{above} {value}"]
    return [line for name, inner in value.items() for line in _flat(inner, f"{above}/{name}".lstrip("/"))]


def _reply(status: int, text: str, *more: tuple[str, str], content: str = "application/text") -> Reply:
    fixed = (("Metadata-Flavor", "Google"), ("Content-Type", content), ("Server", "Metadata Server for VM"))
    return Reply(status, text.encode(), (*fixed, *more, ("X-XSS-Protection", "0"), ("X-Frame-Options", "SAMEORIGIN")))


def _moved(asked: Asked, path: str) -> Reply:
    query = asked.target.partition("?")[2]
    host = asked.header("host") or "metadata.google.internal"
    return _reply(301, f"{path}\n", ("Location", f"http://{host}{path}{'?' + query if query else ''}"))
