"""What the watching process asks for: its own node, its Pods, the policies, and nothing of other nodes."""

import io

from podgate.engine.status import Status
from podgate.features.metadata.watched import Watched
from podgate.features.metadata.watcher.compile import States
from podgate.features.metadata.watcher.feature import FEATURE
from podgate.features.metadata.watcher.settings import WatchSettings
from podgate.observe.logs import Log
from podgate.targets.cell.state import State

STATUS = Status("metadata_watch", (), Log(io.StringIO()))


def test_pods_of_other_nodes_are_never_asked_for() -> None:
    watches = FEATURE.watches(WatchSettings(), "node-1")
    assert [(watch.kind.plural, watch.field_selector) for watch in watches] == [
        ("nodes", "metadata.name=node-1"),
        ("pods", "spec.nodeName=node-1"),
        ("metadatapolicies", ""),
    ]


def test_without_objects_files_alone_count() -> None:
    settings = WatchSettings(objects=False, policy="/p")
    assert FEATURE.watches(settings, "node-1") == ()
    assert [watch.path for watch in FEATURE.files(settings)] == ["/p"]


def test_it_tells_the_proxy_and_counts_what_it_tells() -> None:
    assert [step.name for step in FEATURE.steps(WatchSettings())] == ["proxy"]
    assert [sample.value for sample in FEATURE.samples(States(State(Watched())))] == [0, 0]
    assert FEATURE.recover({}) == {}
    assert FEATURE.pages(WatchSettings(), STATUS) == {}
    assert FEATURE.instance(WatchSettings()) == "metadata_watch"
