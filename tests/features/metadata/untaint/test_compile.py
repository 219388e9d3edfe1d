"""Which Nodes are freed: those with the taint whose own proxy is ready."""

from typing import Any

import pytest

from podgate.features.metadata.untaint.compile import (
    PROXY,
    Condition,
    ProxyPod,
    ProxySpec,
    ProxyStatus,
    compile_untaint,
)
from podgate.joints import Inputs
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.meta import ObjectMeta
from podgate.model.kinds.nodes import NODE, Node, NodeSpec, Taint
from podgate.model.snapshot import Absent, Listed, Snapshot
from podgate.model.table import Table
from podgate.targets.kubernetes.taints import Tainted

KEY = "podgate.dev/metadata-not-ready"
BEFORE, MADE, LATER = "2026-01-02T09:59:59Z", "2026-01-02T10:00:00Z", "2026-01-02T10:00:07Z"
READY, NOT_READY = ProxyStatus((Condition("Ready", "True"),)), ProxyStatus((Condition("Ready", "False"),))


def node(*keys: str) -> Node:
    return Node(ObjectMeta(uid="u", creation_timestamp=MADE), NodeSpec(taints=tuple(map(Taint, keys))))


def proxy(on: str, status: ProxyStatus = READY, *, made: str = LATER, going: str | None = None) -> ProxyPod:
    return ProxyPod(ObjectMeta(creation_timestamp=made, deletion_timestamp=going), ProxySpec(on), status)


@pytest.mark.parametrize(
    ("taints", "pods", "places"),
    [
        ((KEY,), [proxy("n")], (0,)),
        (("other", KEY), [proxy("n")], (1,)),
        ((KEY, "other", KEY), [proxy("n")], (0, 2)),
        ((), [proxy("n")], None),
        ((KEY,), [], None),
        ((KEY,), [proxy("m")], None),
        ((KEY,), [proxy("n", NOT_READY)], None),
        ((KEY,), [proxy("n", going="2026-01-01T00:00:00Z")], None),
        ((KEY,), [proxy("n", going="2026-01-01T00:00:00Z"), proxy("n")], (0,)),
        ((KEY,), [proxy("n", made=MADE)], (0,)),
        # A Node that was made anew under its old name, while the API still shows the Pod of the one before.
        ((KEY,), [proxy("n", made=BEFORE)], None),
        ((KEY,), [proxy("n", made=LATER), proxy("n", made=BEFORE)], (0,)),
    ],
)
def test_a_node_is_freed_when_its_own_proxy_is_ready(
    taints: tuple[str, ...], pods: list[ProxyPod], places: tuple[int, ...] | None
) -> None:
    listed = {ObjectRef("Pod", f"p{index}", "kube-system"): pod for index, pod in enumerate(pods)}
    nodes = {ObjectRef("Node", "n"): node(*taints)}
    kinds: dict[str, Any] = {PROXY.kind: Listed(Table.of(listed)), NODE.kind: Listed(Table.of(nodes))}
    compiled = compile_untaint(KEY, Inputs(Snapshot(kinds)))
    states = compiled.states
    assert not compiled.degraded
    assert states.free.nodes == (frozenset() if places is None else {Tainted("n", "u", KEY, places)})
    assert states.tainted == (KEY in taints)


def test_what_must_not_be_read_is_said() -> None:
    kinds: dict[str, Any] = {PROXY.kind: Absent("forbidden"), NODE.kind: Listed(Table())}
    compiled = compile_untaint(KEY, Inputs(Snapshot(kinds)))
    assert compiled.degraded.startswith("Pod cannot be listed")
    assert not compiled.states.free.nodes
