"""What follows from a Service's type and addresses."""

import pytest

from podgate.lab.serviceshapes import ServiceSpec

KINDS = [
    (ServiceSpec(), (False, False, False)),
    (ServiceSpec(type="NodePort"), (True, False, False)),
    (ServiceSpec(type="LoadBalancer"), (True, False, False)),
    (ServiceSpec(type="LoadBalancer", external_traffic_policy="Local"), (True, True, False)),
    (ServiceSpec(type="NodePort", external_traffic_policy="Local"), (True, False, False)),
    (ServiceSpec(type="LoadBalancer", allocate_load_balancer_node_ports=False), (False, False, False)),
    (ServiceSpec(type="ExternalName"), (False, False, True)),
]


@pytest.mark.parametrize(("spec", "expected"), KINDS)
def test_what_a_type_brings(spec: ServiceSpec, expected: tuple[bool, bool, bool]) -> None:
    assert (spec.wants_node_ports, spec.wants_health_check, spec.named_elsewhere) == expected


def test_cluster_ips_may_stand_in_either_field() -> None:
    assert ServiceSpec(cluster_ip="10.96.0.1").given_ips == ("10.96.0.1",)
    assert ServiceSpec(cluster_ip="10.96.0.1", cluster_ips=("10.96.0.1", "fd00::1")).given_ips == (
        "10.96.0.1",
        "fd00::1",
    )
    assert [ServiceSpec(cluster_ip=text).headless for text in ("None", "", "10.96.0.1")] == [True, False, False]
