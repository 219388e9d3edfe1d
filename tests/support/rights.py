"""Rights: what a folder of manifests allows its account, compared with what the account asked of a real API server.

Here: rules taken apart, the server's audit log, the comparison. Not here: what is asked, which is the test's.
Invariant: a right that no request needed and a request that no right allowed both fail the test that looks.

An audit event says who asked for what, and with which answer (kubernetes.io, "Auditing"). To make an object by applying
it needs "create" beside "patch", and is answered 201.
"""

import json
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from podgate.kubeapi.access import Access, Login
from podgate.model.secret import Secret
from podgate.model.snapshot import Listed, Snapshot, Watch
from tests.support.asynchronous import in_loop
from tests.support.chaos_proxy import ChaosProxy, Fault
from tests.support.cluster import ControlPlane
from tests.support.kube_source import running
from tests.support.poll import poll, poll_async

DEPLOY = Path(__file__).parents[2] / "deploy"
ROLES = ("ClusterRole", "Role")
PLURALS = {
    "ServiceAccount": "serviceaccounts",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "CustomResourceDefinition": "customresourcedefinitions",
}
"""What a folder's account needs; nothing of it runs anything."""


class Right(NamedTuple):
    """One verb on one resource; an empty name or namespace stands for all."""

    verb: str
    group: str
    resource: str
    name: str = ""
    namespace: str = ""

    def allows(self, asked: "Right") -> bool:
        return (self.verb, self.group, self.resource) == (asked.verb, asked.group, asked.resource) and all(
            mine in ("", theirs) for mine, theirs in ((self.name, asked.name), (self.namespace, asked.namespace))
        )


class Asked(NamedTuple):
    """A request, and the code of its answer."""

    right: Right
    code: int


def folders() -> list[Path]:
    """Give the folders of deploy/ that give rights."""
    return sorted({path.parent for path in DEPLOY.rglob("*.yaml") if any(rights_in(path))})


def documents(folder: Path) -> list[Any]:
    """Read a folder, or a file."""
    paths = sorted(folder.glob("*.yaml")) if folder.is_dir() else [folder]
    return [each for path in paths for each in yaml.safe_load_all(path.read_text()) if each]


def rights_in(path: Path) -> Iterator[Right]:
    """Take the rules of a file apart."""
    for role in yaml.safe_load_all(path.read_text()):
        if role and role["kind"] in ROLES:
            namespace = role["metadata"].get("namespace", "")
            for rule in role["rules"]:
                for verb in rule["verbs"]:
                    for group in rule["apiGroups"]:
                        for resource in rule["resources"]:
                            for name in rule.get("resourceNames", [""]):
                                yield Right(verb, group, resource, name, namespace)


def account(folder: Path) -> tuple[str, str]:
    """Give the namespace and name of the account that a folder gives rights to."""
    found = {
        (subject["namespace"], subject["name"])
        for each in documents(folder)
        if each["kind"] in ("ClusterRoleBinding", "RoleBinding")
        for subject in each["subjects"]
    }
    assert len(found) == 1, f"{folder}: rights for {found}; one account, please"
    return found.pop()


def audited() -> list[str]:
    """Give the users whose requests the API server should note."""
    return sorted({f"system:serviceaccount:{':'.join(account(folder))}" for folder in folders()})


def asked(plane: ControlPlane, user: str, since: int) -> list[Asked]:
    """Give what a user asked for after so many bytes of the log; a line that is still being written is left out."""
    data = plane.audit_log.read_bytes()[since:]
    events = [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]
    found = []
    for event in events:
        thing = event.get("objectRef")
        if event["user"]["username"] != user or thing is None or "responseStatus" not in event:
            continue
        resource = "/".join(filter(None, (thing["resource"], thing.get("subresource", ""))))
        code = event["responseStatus"]["code"]
        right = Right(
            event["verb"], thing.get("apiGroup", ""), resource, thing.get("name", ""), thing.get("namespace", "")
        )
        found.append(Asked(right, code))
        if (event["verb"], code) == ("patch", 201):
            found.append(Asked(right._replace(verb="create"), code))
    return found


class Looking:
    """What a folder allows its account, and what the account asked for since."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self._plane = plane
        self._since = plane.audit_log.stat().st_size
        self._user = f"system:serviceaccount:{':'.join(account(folder))}"
        self._rights = [right for path in sorted(folder.glob("*.yaml")) for right in rights_in(path)]

    def refused(self) -> list[Right]:
        """Give what was asked for and not allowed."""
        return sorted({each.right for each in asked(self._plane, self._user, self._since) if each.code == 403})

    def unused(self) -> list[Right]:
        """Give what is allowed and was not asked for yet."""
        requests = asked(self._plane, self._user, self._since)
        return [right for right in self._rights if not any(right.allows(each.right) for each in requests)]


@contextmanager
def exactly(plane: ControlPlane, folder: Path) -> Iterator[Looking]:
    """See that what a folder's account asks for in the body is just what the folder allows."""
    looking = Looking(plane, folder)
    yield looking
    wrong = {"asked for and not allowed": looking.refused(), "never asked for": looking.unused()}
    assert not any(wrong.values()), f"{folder}: {wrong}"


def listed_kinds(snapshot: Snapshot) -> set[str]:
    return {name for name, found in snapshot.kinds.items() if isinstance(found, Listed)}


def access_of(plane: ControlPlane, folder: Path, server: str) -> Access:
    """Give the access of a folder's account, by a token as a Pod gets one."""
    namespace, name = account(folder)
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    code, answer = plane.request("POST", path, request)
    assert code == 201, answer
    authority = Secret((plane.folder / "pki" / "ca.crt").read_bytes())
    token = Secret(json.loads(answer)["status"]["token"].encode())
    return Access(server, authority, namespace=namespace, login=Login(token=token))


def grant(plane: ControlPlane, *paths: Path) -> None:
    """Make the objects of some manifests, but for what would run; they stay."""
    for each in (each for path in paths for each in documents(path)):
        if each["kind"] in PLURALS:
            group, namespace = each["apiVersion"], each["metadata"].get("namespace", "")
            base = f"/api/{group}" if "/" not in group else f"/apis/{group}"
            path = "/".join(filter(None, (base, namespace and f"namespaces/{namespace}", PLURALS[each["kind"]])))
            # One that a test before this one deleted is there until its objects have gone, and takes no new ones.
            named = f"{path}/{each['metadata']['name']}"
            poll(lambda named=named: b'"deletionTimestamp"' not in plane.get(named)[1])  # type: ignore[misc]
            code, answer = plane.request("POST", path, each)
            assert code in (201, 409), answer
            if each["kind"] == "CustomResourceDefinition":
                spec = each["spec"]
                served = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
                poll(lambda served=served: plane.get(served)[0] == 200)  # type: ignore[misc]


def list_in_pages(plane: ControlPlane, folder: Path, watches: Sequence[Watch]) -> None:
    """List as agents do where an API server has no lists in streams, with the rights of a folder's account."""

    @in_loop
    async def listed() -> None:
        authority = ssl.create_default_context(cafile=str(plane.folder / "pki" / "ca.crt"))
        async with ChaosProxy(plane.server, authority).serving() as proxy:
            refusal = Fault(status=400, reason="BadRequest", times=1000, asked=lambda line: "sendInitialEvents" in line)
            proxy.strike(refusal)
            async with running(proxy.url, *watches, access=access_of(plane, folder, proxy.url)) as source:
                source.source.lead(True)
                kinds = {watch.kind.kind for watch in watches}
                await poll_async(lambda: source.snapshots and kinds <= listed_kinds(source.newest))

    listed()
