"""One Service placed: what it gives to several fields at once, and health checks of several Services."""

from podgate.features.services.compile import HealthChecks
from podgate.features.services.endpoints import Here
from podgate.features.services.intent import HealthCheck
from podgate.features.services.place import Placed, place
from podgate.features.services.ports import read_service
from podgate.features.services.slices import read_slice
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.discovery import Endpoint, EndpointPort, EndpointSlice, SliceLabels, SliceMeta
from podgate.model.kinds.services import Service, ServicePort, ServiceSpec
from podgate.model.table import Table

SERVICE = ObjectRef("Service", "web", "shop")
SLICE = ObjectRef("EndpointSlice", "web-1", "shop")


def test_slices_without_a_service_and_services_without_slices() -> None:
    facts = read_service(SERVICE, Service(spec=ServiceSpec(cluster_ip="10.96.0.1", ports=(ServicePort(port=80),))))
    found = read_slice(
        SLICE,
        EndpointSlice(
            SliceMeta(labels=SliceLabels("web")), "IPv4", (Endpoint(("10.244.2.1",)),), (EndpointPort(port=8080),)
        ),
    )
    assert facts is not None
    assert found is not None
    assert place(Here(), SERVICE, (None, {SLICE: found})) is None
    alone = place(Here(), SERVICE, (facts, None))
    assert alone is not None
    assert (alone.ip[0].cluster, alone.ip[0].anywhere, alone.ip6) == ((), False, ())
    both = place(Here(), SERVICE, (facts, {SLICE: found}))
    assert both is not None
    assert both.ip[0].cluster == (bytes((10, 244, 2, 1)) + (8080).to_bytes(2),)


def test_of_two_services_with_one_health_check_port_the_first_by_name_has_it() -> None:
    def placed(name: str) -> Placed:
        return Placed(health_port=32000, health=HealthCheck("shop", name, 1))

    a, b = ObjectRef("Service", "a", "shop"), ObjectRef("Service", "b", "shop")
    checks = HealthChecks()
    assert dict(checks(Table.of({b: placed("b")}))) == {32000: HealthCheck("shop", "b", 1)}
    assert dict(checks(Table.of({a: placed("a"), b: placed("b")}))) == {32000: HealthCheck("shop", "a", 1)}
    assert dict(checks(Table.of({b: placed("b")}))) == {32000: HealthCheck("shop", "b", 1)}
    assert dict(checks(Table.of({b: Placed()}))) == {}
