"""DaemonSets as the API says them."""

import msgspec

from podgate.model.kinds.meta import ObjectMeta
from podgate.model.kinds.workloads import (
    Container,
    DaemonSet,
    DaemonSetSpec,
    DaemonSetStatus,
    Template,
    TemplateSpec,
)

TEXT = b"""{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"p","namespace":"kube-system"},
"spec":{"selector":{},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"hostNetwork":true,"containers":[
{"name":"c","image":"podgate:1","command":["podgate"],"args":["metadata","run"]}]}}},
"status":{"desiredNumberScheduled":3,"currentNumberScheduled":2,"numberReady":1,"numberMisscheduled":0}}"""


def test_a_daemon_set_of_the_api_decodes() -> None:
    containers = (Container("podgate:1", ("podgate",), ("metadata", "run")),)
    assert msgspec.json.decode(TEXT, type=DaemonSet) == DaemonSet(
        ObjectMeta(name="p", namespace="kube-system"),
        DaemonSetSpec(Template(ObjectMeta(labels={"a": "b"}), TemplateSpec(containers))),
        DaemonSetStatus(3, 2, 1),
    )


def test_a_status_that_nobody_wrote_is_not_zero_of_zero() -> None:
    assert msgspec.json.decode(b"{}", type=DaemonSet).status.desired_number_scheduled is None
