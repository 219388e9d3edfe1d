"""Single objects by name: one stream each while they are few, one per namespace when they are many."""

from typing import Any

from podgate.model.frozen import ObjectRef
from podgate.model.kinds.config import CONFIG_MAP
from podgate.model.kinds.nodes import NODE
from podgate.model.snapshot import Kind, Watch
from podgate.sources.kube.wanted import MOST_STREAMS, watches_for

KINDS: dict[str, Kind[Any]] = {"ConfigMap": CONFIG_MAP, "Node": NODE}


def refs(count: int, namespaces: int = 2) -> list[ObjectRef]:
    return [ObjectRef("ConfigMap", f"c{number}", f"ns{number % namespaces}") for number in range(count)]


def test_few_objects_are_watched_by_name() -> None:
    wanted = [ObjectRef("ConfigMap", "a", "ns"), ObjectRef("Node", "n")]
    assert watches_for(wanted, KINDS) == (
        Watch(CONFIG_MAP, "ns", "", "metadata.name=a"),
        Watch(NODE, "", "", "metadata.name=n"),
    )


def test_the_limit_is_fifty_streams() -> None:
    assert MOST_STREAMS == 50
    assert len(watches_for(refs(50), KINDS)) == 50
    assert watches_for(refs(51), KINDS) == (Watch(CONFIG_MAP, "ns0"), Watch(CONFIG_MAP, "ns1"))


def test_the_order_does_not_matter_and_unknown_kinds_are_left_out() -> None:
    assert watches_for(reversed(refs(9)), KINDS) == watches_for(refs(9), KINDS)
    assert watches_for([ObjectRef("Secret", "s", "ns")], KINDS) == ()
