"""The rights that a feature's agents are said to need are those that deploy/ gives them."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from podgate.admin.doctor.agents import AgentContainer
from podgate.admin.doctor.examining import Role, settings_of
from podgate.admin.doctor.rights import Account, Right, is_allowed, reads, review, right_findings, tells
from podgate.features.masquerade.feature import FEATURE as MASQUERADE
from podgate.features.masquerade.policy import MASQUERADE_POLICY
from podgate.features.metadata.policy import METADATA_POLICY
from podgate.features.metadata.watcher.feature import FEATURE as WATCHER
from podgate.features.services.feature import FEATURE as SERVICES
from podgate.model.kinds.pods import POD
from podgate.model.snapshot import Watch

DEPLOY = Path(__file__).parents[3] / "deploy"


def given_by(folder: str) -> set[Right]:
    """Give the rights of a folder's roles."""
    found: set[Right] = set()
    for path in (DEPLOY / folder).glob("*.yaml"):
        for obj in yaml.safe_load_all(path.read_text()):
            for rule in obj.get("rules") or () if obj["kind"] in {"ClusterRole", "Role"} else ():
                namespace = obj["metadata"].get("namespace", "")
                found |= {
                    Right(group, resource, verb, namespace, name)
                    for group in rule["apiGroups"]
                    for resource in rule["resources"]
                    for verb in rule["verbs"]
                    for name in rule.get("resourceNames") or [""]
                }
    return found


def test_masquerades_rights_are_those_of_its_manifests() -> None:
    role = Role(MASQUERADE, "masquerade", "run", True, "")
    settings = settings_of(role, AgentContainer("masquerade", "run", ("--config=/etc/config/ip-masq-agent",), ""))
    needs = reads(role.watches(settings)) | tells(MASQUERADE_POLICY, "kube-system", "podgate-masquerade")
    assert needs == given_by("masquerade-policies")


def test_metadatas_rights_are_those_of_its_manifests() -> None:
    role = Role(WATCHER, "metadata", "watch", True, "")  # type: ignore[arg-type]
    needs = reads(role.watches(settings_of(role, None))) | tells(
        METADATA_POLICY, "kube-system", "podgate-metadata-watch"
    )
    assert needs == given_by("metadata/per-pod")


def test_services_rights_are_those_of_its_manifests() -> None:
    role = Role(SERVICES, "services", "run", True, "")
    needs = reads(role.watches(settings_of(role, None))) | tells(None, "kube-system", "podgate-services")
    assert needs == given_by("services")


def test_settings_that_cannot_be_used_are_the_defaults() -> None:
    role = Role(MASQUERADE, "masquerade", "run", True, "")
    default = settings_of(role, None)
    for words in (("--nope",), ("--backend", "wrong"), ("--to-ports=x",)):
        assert settings_of(role, AgentContainer("masquerade", "run", words, "")) == default
    assert settings_of(role, AgentContainer("masquerade", "run", ("--masq-chain=X",), "", ours=False)) == default


@pytest.mark.parametrize(
    ("account", "kind"), [(Account(), "SelfSubjectAccessReview"), (Account("ns", "agent"), "SubjectAccessReview")]
)
def test_a_review_asks_about_one_right_of_one_account(account: Account, kind: str) -> None:
    request = review(Right("podgate.dev", "masqueradepolicies/status", "patch", "x", "y"), account)
    body: dict[str, Any] = msgspec.json.decode(request.body)
    assert (body["kind"], request.path.rpartition("/")[2]) == (kind, f"{kind.lower()}s")
    assert body["spec"]["resourceAttributes"] == {
        "group": "podgate.dev", "resource": "masqueradepolicies", "subresource": "status", "verb": "patch",
        "namespace": "x", "name": "y",
    }  # fmt: skip
    assert body["spec"].get("user") == ("system:serviceaccount:ns:agent" if account.name else None)


def test_what_is_missing_is_named_with_what_gives_it() -> None:
    answers = {right: right.verb == "list" for right in reads([Watch(POD)])}
    (found,) = right_findings("masquerade", Account("ns", "agent"), answers, "deploy/x")
    assert str(found) == (
        "bad     masquerade: rights: ServiceAccount ns/agent may not watch pods\n"
        "        apply the roles and bindings of deploy/x"
    )
    (found,) = right_findings("masquerade", Account(), dict.fromkeys(answers, True), "deploy/x")
    assert str(found) == "ok      masquerade: rights: your login has all 2"


def test_answers() -> None:
    assert is_allowed(b'{"status": {"allowed": true}}')
    assert not is_allowed(b'{"status": {}}')
