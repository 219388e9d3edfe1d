"""``explain --from``: an address, a Pod that is there, or labels of a Pod that need not be."""

from ipaddress import IPv4Address, IPv6Address

import pytest

from podgate.features.masquerade.selecting import Labelled
from podgate.features.masquerade.senders import namespace_of, sender_of
from podgate.joints import Inputs, QuestionError
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.config import Namespace
from podgate.model.kinds.meta import ObjectMeta
from podgate.model.kinds.pods import Pod
from podgate.model.snapshot import Listed, Snapshot
from podgate.model.table import Table

WEB = Pod(ObjectMeta("web", "shop"))
INPUTS = Inputs(
    Snapshot(
        {
            "Pod": Listed(Table.of({ObjectRef("Pod", "web", "shop"): WEB})),
            "Namespace": Listed(
                Table.of({ObjectRef("Namespace", "shop"): Namespace(ObjectMeta("shop", labels={"team": "red"}))})
            ),
        }
    )
)


def test_addresses_and_pods() -> None:
    assert sender_of("10.0.0.1", INPUTS) == IPv4Address("10.0.0.1")
    assert sender_of("fd00::1", INPUTS) == IPv6Address("fd00::1")
    assert sender_of("shop/web", INPUTS) is WEB
    assert namespace_of(WEB) == "shop"
    assert namespace_of(IPv4Address("10.0.0.1")) == ""


@pytest.mark.parametrize(
    ("text", "labels", "namespace", "of_namespace"),
    [
        ("app=web", {"app": "web"}, "default", {}),
        ("shop/app=web,tier=", {"app": "web", "tier": ""}, "shop", {"team": "red"}),
        ("bank/app=web", {"app": "web"}, "bank", {}),
        ("app.kubernetes.io/name=web", {"app.kubernetes.io/name": "web"}, "default", {}),
        ("shop/app.kubernetes.io/name=web", {"app.kubernetes.io/name": "web"}, "shop", {"team": "red"}),
    ],
)
def test_labels(text: str, labels: dict[str, str], namespace: str, of_namespace: dict[str, str]) -> None:
    assert sender_of(text, INPUTS) == Labelled(labels, namespace, of_namespace)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("web", r"neither an address nor a Pod of the source on this node \(Pods: shop/web\)"),
        ("shop/db", "neither an address nor a Pod"),
        ("shop/app=web,tier", '"tier" is no label'),
        ("=web", '"=web" is no label'),
    ],
)
def test_what_is_none_of_these(text: str, complaint: str) -> None:
    with pytest.raises(QuestionError, match=complaint):
        sender_of(text, INPUTS)
