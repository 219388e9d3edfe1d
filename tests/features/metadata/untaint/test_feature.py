"""What the untainting agent asks for, and that it needs an API."""

import io

import pytest

from podgate.engine.status import Status
from podgate.features.metadata.untaint.compile import States
from podgate.features.metadata.untaint.feature import FEATURE
from podgate.features.metadata.untaint.settings import UntaintSettings
from podgate.joints import SourceError
from podgate.observe.logs import Log
from podgate.targets.kubernetes.taints import Taints


def test_it_watches_all_nodes_and_the_proxies_alone() -> None:
    assert [
        (each.kind.plural, each.namespace, each.label_selector) for each in FEATURE.watches(UntaintSettings(), None)
    ] == [
        ("nodes", "", ""),
        ("pods", "kube-system", "k8s-app=metadata-proxy"),
    ]
    assert FEATURE.files(UntaintSettings()) == ()


def test_without_an_api_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODGATE_SOURCE", "/objects")
    with pytest.raises(SourceError, match="in an API only"):
        FEATURE.steps(UntaintSettings())


def test_it_counts_and_serves_the_usual_pages() -> None:
    settings = UntaintSettings()
    assert [sample.value for sample in FEATURE.samples(States(Taints(), 3))] == [3]
    assert FEATURE.recover({}) == {}
    assert FEATURE.pages(settings, Status("x", (), Log(io.StringIO()))) == {}
    assert FEATURE.instance(settings) == "metadata_untaint"
