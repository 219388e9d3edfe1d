"""EndpointSlices: what a Service's Pods become, and how they are spread over slices."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podgate.lab.controllers import reconcile
from podgate.lab.controllers.endpointslices import CONTROLLER, LARGEST, MANAGED_BY, SERVICE_NAME, TRIGGERED
from podgate.lab.kinds import Object
from podgate.model.frozen import ObjectRef
from tests.lab.world import World, node, nodes, workload

DUAL = (
    "spec: {podCIDRs: [10.16.1.0/24, 'fd00:16:1::/64']}\n"
    "status: {addresses: [{type: InternalIP, address: 10.140.0.1}, {type: InternalIP, address: 'fd00:140::1'}]}"
)


def service(spec: str = "", ports: str = "[{port: 80}]", meta: str = "", selector: str = "{app: web}") -> str:
    return (
        f"---\napiVersion: v1\nkind: Service\nmetadata: {{name: web, {meta}}}\n"
        f"spec: {{ports: {ports}, selector: {selector}, {spec}}}\n"
    )


def pod(
    name: str = "one", *, spec: str = "", ports: str = "[]", labels: str = "{app: web}", image: str = "good"
) -> str:
    container = f"{{name: c, image: {image}, ports: {ports}}}"
    return (
        f"---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, labels: {labels}}}\n"
        f"spec: {{containers: [{container}], {spec}}}\n"
    )


def settled(*texts: str, world: World | None = None) -> list[Object]:
    """Give the slices after the controllers are done."""
    world = world or World()
    world.apply("".join(texts))
    return list(world.settle().of("EndpointSlice").values())


def endpoints(slices: list[Object]) -> list[tuple[str, str]]:
    """Give address and port of each endpoint that is ready, sorted."""
    return sorted(
        (endpoint["addresses"][0], str(port["port"]))
        for one in slices
        for endpoint in one["endpoints"]
        for port in one["ports"]
        if endpoint["conditions"]["ready"]
    )


def test_a_slice_as_a_cluster_has_it() -> None:
    zone = "labels: {topology.kubernetes.io/zone: east}"
    world = World()
    world.apply(node("a", DUAL).replace("{name: a}", f"{{name: a, {zone}}}"))
    text = service(ports="[{name: http, port: 80, targetPort: 8080, appProtocol: h2c}]", meta="labels: {tier: front}")
    (found,) = settled(text, pod(), world=world)
    metadata = found["metadata"]
    assert metadata["name"].startswith("web-")
    assert metadata["labels"] == {"tier": "front", SERVICE_NAME: "web", MANAGED_BY: CONTROLLER}
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("Service", "web", True)
    assert found["addressType"] == "IPv4"
    assert found["ports"] == [{"name": "http", "port": 8080, "protocol": "TCP", "appProtocol": "h2c"}]
    assert found["endpoints"] == [
        {
            "addresses": ["10.16.1.2"],
            "conditions": {"ready": True, "serving": True, "terminating": False},
            "targetRef": {
                "kind": "Pod",
                "namespace": "default",
                "name": "one",
                "uid": world.of("Pod")["one"]["metadata"]["uid"],
            },
            "nodeName": "a",
            "zone": "east",
        }
    ]


@pytest.mark.parametrize(
    ("spec", "families"),
    [
        ("", ["IPv4"]),
        ("ipFamilies: [IPv6]", ["IPv6"]),
        ("ipFamilyPolicy: PreferDualStack", ["IPv4", "IPv6"]),
        ("ipFamilyPolicy: PreferDualStack, clusterIP: None", ["IPv4", "IPv6"]),
    ],
)
def test_each_family_has_a_slice_of_its_own(spec: str, families: list[str]) -> None:
    found = settled(node("a", DUAL), service(spec), pod())
    addresses = {"IPv4": "10.16.1.2", "IPv6": "fd00:16:1::2"}
    assert sorted(one["addressType"] for one in found) == families
    assert endpoints(found) == sorted((addresses[family], "80") for family in families)
    labelled = ["service.kubernetes.io/headless" in one["metadata"]["labels"] for one in found]
    assert labelled == ["None" in spec] * len(families)


def test_a_family_that_goes_takes_its_slice_along() -> None:
    world = World()
    settled(node("a", DUAL), service("ipFamilyPolicy: PreferDualStack"), pod(), world=world)
    (found,) = settled(service("ipFamilyPolicy: SingleStack"), world=world)
    assert found["addressType"] == "IPv4"


NAMED = "[{name: http, port: 80, targetPort: web}]"


def test_pods_that_mean_different_numbers_by_a_name_stand_in_different_slices() -> None:
    found = settled(
        nodes("a"),
        service(ports=NAMED),
        pod("a1", ports="[{name: web, containerPort: 8080}]"),
        pod("a2", ports="[{name: web, containerPort: 8080}]"),
        pod("b1", ports="[{name: web, containerPort: 9090}]"),
        pod("udp", ports="[{name: web, containerPort: 7070, protocol: UDP}]"),
    )
    assert sorted((len(one["endpoints"]), [port["port"] for port in one["ports"]]) for one in found) == [
        (1, []),  # no container calls a TCP port so
        (1, [9090]),
        (2, [8080]),
    ]


def test_a_sidecars_port_counts_and_another_init_containers_does_not() -> None:
    init = "initContainers: [{name: %s, image: i, %s ports: [{name: web, containerPort: 1234}]}]"
    found = settled(
        nodes("a"),
        service(ports=NAMED),
        pod("side", spec=init % ("s", "restartPolicy: Always,")),
        pod("init", spec=init % ("i", "")),
    )
    assert {
        e["targetRef"]["name"]: [port["port"] for port in one["ports"]] for one in found for e in one["endpoints"]
    } == {
        "side": [1234],
        "init": [],
    }


CONDITIONS = [
    ("ready", "", "good", False, (True, True, False)),
    ("not ready", "", "bad", False, (False, False, False)),
    ("not ready, and published all the same", "publishNotReadyAddresses: true", "bad", False, (True, False, False)),
    ("terminating", "", "good", True, (False, True, True)),
    ("terminating, and published", "publishNotReadyAddresses: true", "good", True, (True, True, True)),
    ("terminating and not serving", "", "bad", True, (False, False, True)),
]


@pytest.mark.parametrize(
    ("spec", "image", "deleted", "expected"), [row[1:] for row in CONDITIONS], ids=[row[0] for row in CONDITIONS]
)
def test_conditions(spec: str, image: str, deleted: bool, expected: tuple[bool, bool, bool]) -> None:
    world = World(graceful=True)
    world.broken = {"bad"}
    settled(nodes("a"), service(spec), pod(image=image), world=world)
    if deleted:
        world.delete("pod", "one")
        while world.step():
            pass  # the Pod's containers are still ending
    (found,) = world.of("EndpointSlice").values()
    (endpoint,) = found["endpoints"]
    conditions = endpoint["conditions"]
    assert (conditions["ready"], conditions["serving"], conditions["terminating"]) == expected
    if deleted:
        assert world.settle().of("EndpointSlice")[found["metadata"]["name"]]["endpoints"] == []


@pytest.mark.parametrize("spec", ["nodeName: nowhere", "containers: [{name: c, image: other}], nodeSelector: {a: b}"])
def test_a_pod_without_a_node_or_an_address_is_no_endpoint(spec: str) -> None:
    text = f"---\napiVersion: v1\nkind: Pod\nmetadata: {{name: one, labels: {{app: web}}}}\nspec: {{{spec}}}\n"
    if "containers" not in spec:
        text = pod(spec=spec)
    (found,) = settled(nodes("a"), service(), text)
    assert (found["endpoints"], found["ports"]) == ([], [])


def test_a_pod_that_has_ended_is_no_endpoint() -> None:
    world = World()
    settled(nodes("a"), service(), pod(), world=world)
    ref = ObjectRef("Pod", "one", "default")
    world.objects[ref] = {**world.objects[ref], "status": {**world.objects[ref]["status"], "phase": "Succeeded"}}
    while world.step():
        pass
    (found,) = world.of("EndpointSlice").values()
    assert found["endpoints"] == []


HINTS = [
    ("", "east", None),
    ("trafficDistribution: PreferClose", "east", {"forZones": [{"name": "east"}]}),
    ("trafficDistribution: PreferSameZone", "east", {"forZones": [{"name": "east"}]}),
    (
        "trafficDistribution: PreferSameNode",
        "east",
        {"forZones": [{"name": "east"}], "forNodes": [{"name": "a"}]},
    ),
    ("trafficDistribution: PreferSameNode", "", {"forNodes": [{"name": "a"}]}),
    ("trafficDistribution: PreferClose", "", None),
]


@pytest.mark.parametrize(("spec", "zone", "hints"), HINTS)
def test_hints(spec: str, zone: str, hints: Object | None) -> None:
    place = node("a").replace("{name: a}", f"{{name: a, labels: {{topology.kubernetes.io/zone: '{zone}'}}}}")
    world = World()
    world.broken = {"bad"}
    (found,) = settled(place, service(spec), pod(), pod("two", image="bad"), world=world)
    told = {one["targetRef"]["name"]: one.get("hints") for one in found["endpoints"]}
    assert told == {"one": hints, "two": None}


def test_a_hostname_is_told_where_the_service_is_its_domain() -> None:
    (found,) = settled(
        nodes("a"),
        service("clusterIP: None"),
        pod("one", spec="hostname: db-0, subdomain: web"),
        pod("two", spec="hostname: db-1, subdomain: other"),
    )
    assert {one["targetRef"]["name"]: one.get("hostname") for one in found["endpoints"]} == {"one": "db-0", "two": None}


def test_the_newest_change_is_told_in_the_annotation() -> None:
    world = World()
    settled(nodes("a"), service(), pod(), world=world)
    ref = ObjectRef("Pod", "one", "default")
    for minute, status in ((1, "False"), (2, "True")):
        time = f"2026-01-01T00:0{minute}:00Z"
        condition = {"type": "Ready", "status": status, "lastTransitionTime": time}
        world.objects[ref] = {
            **world.objects[ref],
            "status": {**world.objects[ref]["status"], "conditions": [condition]},
        }
        (found,) = world.settle().of("EndpointSlice").values()
        assert found["metadata"]["annotations"] == {TRIGGERED: time}


ELSEWHERE = "type: ExternalName, externalName: b, selector: {app: web}"
NOT_OURS = [
    ("no selector", service(selector="{}")),
    ("an external name", f"---\n{{apiVersion: v1, kind: Service, metadata: {{name: web}}, spec: {{{ELSEWHERE}}}}}\n"),
]


@pytest.mark.parametrize("text", [row[1] for row in NOT_OURS], ids=[row[0] for row in NOT_OURS])
def test_services_without_endpoints_of_ours(text: str) -> None:
    assert settled(nodes("a"), text, pod()) == []


def test_slices_that_a_user_wrote_are_left_alone() -> None:
    own = (
        f"---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\n"
        f"metadata: {{name: mine, labels: {{{SERVICE_NAME}: web}}}}\nendpoints: [{{addresses: [10.9.9.9]}}]\n"
    )
    found = settled(nodes("a"), service(), own, pod())
    assert sorted(len(one["endpoints"]) for one in found) == [1, 1]
    assert [one["metadata"]["name"] for one in found].count("mine") == 1


def test_slices_go_with_their_service() -> None:
    world = World()
    assert len(settled(nodes("a"), service(), pod(), world=world)) == 1
    world.delete("service", "web")
    assert settled(world=world) == []


def test_a_port_that_is_renamed_changes_in_place() -> None:
    world = World()
    (before,) = settled(nodes("a"), service(ports="[{name: a, port: 80}]"), pod(), world=world)
    (after,) = settled(service(ports="[{name: b, port: 80}]"), world=world)
    assert before["metadata"]["name"] == after["metadata"]["name"]
    assert [port["name"] for port in after["ports"]] == ["b"]


def test_a_slice_holds_a_hundred_and_endpoints_stay_where_they_are() -> None:
    world = World()
    many = [pod(f"p{number:03}") for number in range(LARGEST * 2 + 10)]
    found = settled(node("a", "spec: {podCIDRs: [10.16.0.0/20]}"), service(), *many, world=world)
    assert sorted(len(one["endpoints"]) for one in found) == [10, LARGEST, LARGEST]
    before = places(found)
    for number in (3, 120, 205):
        world.delete("pod", f"p{number:03}")
    after = settled(pod("q1"), pod("q2"), world=world)
    assert len(after) == 3
    assert {name: place for name, place in places(after).items() if name in before}.items() <= before.items()
    assert sum(len(one["endpoints"]) for one in after) == LARGEST * 2 + 9


def places(slices: list[Object]) -> dict[str, str]:
    return {e["targetRef"]["name"]: one["metadata"]["name"] for one in slices for e in one["endpoints"]}


def test_a_rolling_update_never_leaves_a_service_without_a_serving_endpoint() -> None:
    world = World(graceful=True)
    settled(nodes("a", "b"), service(selector="{app: app}"), workload("Deployment", spec="replicas: 3"), world=world)
    world.apply(workload("Deployment", image="two", spec="replicas: 3"))
    for _ in range(40):
        while world.step():
            pass
        (found,) = world.of("EndpointSlice").values()
        conditions = Counter(one["conditions"]["ready"] for one in found["endpoints"])
        assert conditions[True] >= 3
        if not world.kubelet():
            break
    assert {image for _, image, _ in world.pods()} == {"two"}


ACTS = st.sampled_from(
    [
        ("apply", service()),
        ("apply", service("ipFamilyPolicy: PreferDualStack")),
        ("apply", service(ports=NAMED)),
        ("apply", service("publishNotReadyAddresses: true")),
        *(("apply", pod(name, ports="[{name: web, containerPort: 8080}]")) for name in ("one", "two")),
        ("apply", pod("bad", image="bad")),
        *(("delete", ObjectRef("Pod", name, "default")) for name in ("one", "two", "bad")),
        ("delete", ObjectRef("Service", "web", "default")),
        ("delete", ObjectRef("Node", "a")),
        ("apply", node("a", DUAL)),
        ("step", None), ("kubelet", None), ("settle", None),
    ]
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(ACTS, max_size=20))
def test_every_history_ends_in_the_same_endpoints(acts: list[tuple[str, Any]]) -> None:
    end = (node("a", DUAL), service(ports=NAMED), pod("one", ports="[{name: web, containerPort: 8080}]"))
    world = World(graceful=True)
    world.broken = {"bad"}
    world.apply(node("a", DUAL))
    for verb, what in acts:
        match verb:
            case "apply":
                world.apply(what)
            case "delete":
                world.discard(what)
            case "step":
                world.step()
            case "kubelet":
                world.kubelet()
            case _:
                world.settle()
    for name in ("one", "two", "bad"):
        world.discard(ObjectRef("Pod", name, "default"))
    world.discard(ObjectRef("Service", "web", "default"))
    world.settle()
    found = settled(*end, world=world)
    assert [one["addressType"] for one in found] == ["IPv4"]
    assert [port for _, port in endpoints(found)] == ["8080"]
    assert reconcile(world.objects) == ()
