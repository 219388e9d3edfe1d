"""Whatever stands in an object or in a configuration: nothing raises, and one object takes nothing from the others.

Here: properties over Services, slices, Nodes and ranges of any shape, and over KubeProxyConfigurations. Not here: what
single mistakes are told as (test_cases.py, test_proxy_config.py); texts that are no objects (tests/sources).
Invariant: what is generated is close enough to the API's shape to get past the first check now and then.
"""

import asyncio
import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from podgate.commandline.options import SettingsError, settings_from
from podgate.features.services.compile import Compiler
from podgate.features.services.explain import Asker, answer_json
from podgate.features.services.intent import FAMILIES, Intent
from podgate.features.services.node import here_of
from podgate.features.services.proxy_config import API_VERSION, KIND, read_config
from podgate.features.services.proxy_fields import FIELDS
from podgate.features.services.proxy_settings import options_in
from podgate.features.services.server.serving import listeners_of
from podgate.features.services.settings import Settings
from podgate.features.services.to_iptables import Writer as IptablesWriter
from podgate.features.services.to_nftables import TABLE, Writer
from podgate.joints import Inputs
from podgate.model.fieldpath import split_path
from podgate.model.frozen import ObjectRef, file_ref
from podgate.model.kinds.nodes import NODE
from podgate.targets.nftables.fake import FakeNftables
from tests.features.services.flows import FAKE
from tests.features.services.test_same_answer import objects as good_objects
from tests.features.services.test_to_iptables import apply, fakes
from tests.support.service_inputs import inputs_of, machine_of

WORLD: Final = FAKE["ip"]
SETTINGS: Final = Settings(node_name="node-1", cluster_cidr=WORLD["cluster-cidr"])
MACHINE: Final = machine_of(f"{WORLD['node']}/24", f"{FAKE['ip6']['node']}/64")

GOOD: Final = [
    obj
    for number in (1, 2)
    for obj in good_objects(
        number,
        {
            "external": [],
            "balancers": [f"balancer-{number}"],
            "ranges": [],
            "ports": [("TCP", 80, 30000 + number), ("UDP", 80, 0)],
            "outside": "Local",
            "inside": "Cluster",
            "endpoints": [("local-1", True, False, []), ("remote-1", True, False, [])],
        },
    )
]
REFS: Final = [ObjectRef("Service", f"s{number}", "shop") for number in (1, 2)]

# No address and no port of the good ones, which somebody else may rightly ask for first.
texts = st.sampled_from(
    [
        *("", "None", "TCP", "udp", "Local", "ClientIP", "LoadBalancer", "ExternalName", "IPv4", "IPv6", "FQDN", "VIP"),
        *(
            "10.9.0.1",
            "010.009.000.002",
            "10.9.0.256",
            "fd00:9::1",
            "fd00:9::1%eth0",
            "::ffff:10.9.0.3",
            "0.0.0.0",
            "::",
        ),
        *(
            "127.0.0.1",
            "224.0.0.1",
            " 10.9.0.4",
            "10.9.0.0/16",
            "fd00:9::/64",
            "0.0.0.0/0",
            "10.9.0.1/33",
            "/",
            "é",
            "a" * 300,
        ),
        *("bad", "worse", "node-1", "zone-a", '"; flush ruleset #', "x\ny", "2026-01-01T00:00:00Z", "9999"),
    ]
)
numbers = st.sampled_from([-1, 0, 1, 80, 8080, 30080, 65535, 65536, 1 << 31, 1 << 70, 0.5, -(1 << 63)])
leaves = st.one_of(st.none(), st.booleans(), numbers, texts)
keys = st.sampled_from(["ip", "name", "port", "nodePort", "addresses", "ready", "clientIP", "x"])
anything = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=3), max_leaves=5
)


def words(*good: str) -> st.SearchStrategy[str]:
    """Give mostly these."""
    return st.integers(0, 7).flatmap(lambda number: texts if number == 7 else st.sampled_from(good))


addresses = words("10.9.0.1", "10.9.0.2", "10.9.0.3", "fd00:9::1", "010.009.000.002", "10.9.0.256")
protocols = words("TCP", "TCP", "TCP", "UDP", "SCTP")
names = words("", "", "", "a")
numbers_of_ports = st.integers(0, 7).flatmap(lambda number: numbers if number == 7 else st.sampled_from([80, 30090]))
policies = words("Cluster", "Local")


def spoiled(good: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Give what a field takes, and once in 60 times anything: an object has some thirty of these."""
    return st.integers(0, 59).flatmap(lambda number: anything if number == 59 else good)


def mapping(*needed: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Give a mapping with what is needed, and some of the other fields."""
    values = {name: spoiled(value) for name, value in fields.items()}
    return st.fixed_dictionaries(
        {name: values[name] for name in needed},
        optional={name: value for name, value in values.items() if name not in needed},
    )


def some(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(spoiled(values), min_size=1, max_size=3)


def named(api_version: str, kind: str, name: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    metadata = st.fixed_dictionaries(
        {
            "name": st.just(name),
            "namespace": st.just("shop" if kind in ("Service", "EndpointSlice") else ""),
            "labels": st.fixed_dictionaries(
                {"kubernetes.io/service-name": st.sampled_from([name.removesuffix("-1"), "nobody", "bad"])},
                optional={"topology.kubernetes.io/zone": texts},
            ),
        },
        optional={
            "creationTimestamp": spoiled(texts),
            "annotations": st.dictionaries(
                st.just("endpoints.kubernetes.io/last-change-trigger-time"), spoiled(texts), max_size=1
            ),
        },
    )
    head = {"apiVersion": st.just(api_version), "kind": st.just(kind), "metadata": metadata}
    return st.fixed_dictionaries({**head, **{key: spoiled(value) for key, value in fields.items()}})


def service(name: str) -> st.SearchStrategy[Any]:
    ports = mapping("port", name=names, protocol=protocols, port=numbers_of_ports, nodePort=numbers_of_ports)
    spec = mapping(
        *("clusterIP", "ports"), type=words("NodePort", "LoadBalancer", "ExternalName"), clusterIP=addresses,
        clusterIPs=some(addresses), ports=some(ports), externalIPs=some(addresses),
        loadBalancerSourceRanges=some(words("10.9.0.0/16", "::/0")), sessionAffinity=words("ClientIP"),
        externalTrafficPolicy=policies, internalTrafficPolicy=policies, healthCheckNodePort=numbers_of_ports,
        sessionAffinityConfig=mapping(clientIP=mapping(timeoutSeconds=numbers)),
    )  # fmt: skip
    ingress = some(mapping(ip=addresses, ipMode=words("VIP", "Proxy")))
    return named("v1", "Service", name, spec=spec, status=mapping(loadBalancer=mapping(ingress=ingress)))


def endpoint_slice(name: str) -> st.SearchStrategy[Any]:
    endpoints = mapping(
        "addresses", addresses=some(addresses), nodeName=words("node-1", "node-2"), targetRef=mapping(uid=texts),
        conditions=mapping(ready=st.booleans(), serving=st.booleans(), terminating=st.booleans()),
        hints=mapping(forZones=some(mapping(name=texts)), forNodes=some(mapping(name=words("node-1")))),
    )  # fmt: skip
    ports = some(mapping("port", name=names, protocol=protocols, port=numbers_of_ports))
    family = words("IPv4", "IPv6", "FQDN")
    fields = {"addressType": family, "ports": ports, "endpoints": some(endpoints)}
    return named("discovery.k8s.io/v1", "EndpointSlice", name, **fields)


def node() -> st.SearchStrategy[Any]:
    found = some(mapping(type=st.just("InternalIP"), address=addresses))
    ranges = words("10.180.0.0/24", "fd00:180::/48")
    spec = mapping(podCIDR=ranges, podCIDRs=some(ranges))
    return named("v1", "Node", "node-1", spec=spec, status=mapping(addresses=found))


def service_cidr() -> st.SearchStrategy[Any]:
    return named(
        "networking.k8s.io/v1", "ServiceCIDR", "any", spec=mapping(cidrs=some(words("10.9.0.0/16", "fd00:9::/64")))
    )


hostile = st.tuples(
    st.lists(st.sampled_from(["bad", "worse"]).flatmap(service), min_size=1, max_size=2),
    st.lists(st.sampled_from(["bad-1", "worse-1"]).flatmap(endpoint_slice), max_size=2),
    st.lists(service_cidr(), max_size=1),
).map(lambda found: [each for group in found for each in group])


def compiled(objects: list[Any], settings: Settings = SETTINGS) -> tuple[Intent, Inputs]:
    inputs = inputs_of(objects, settings, MACHINE)
    result = Compiler(settings, lambda intent: intent)(inputs)
    for problems in (inputs.objects.faults, *result.problems.values()):
        for problem in problems:
            split_path(problem.field)
            assert problem.message
            assert str(problem)
    return result.states, inputs


def of_the_good(intent: Intent) -> Mapping[str, list[Any]]:
    parts = {family: intent.of(family) for family in FAMILIES}
    return {family: [part.ports.get(ref) for ref in REFS] for family, part in parts.items() if part}


@given(hostile)
def test_a_bad_object_changes_nothing_for_others(found: list[Any]) -> None:
    before, _ = compiled(GOOD)
    after, inputs = compiled([*found, *GOOD])
    assert of_the_good(after) == of_the_good(before)
    assert after.ip is not None
    assert all(after.ip.ports.get(ref) for ref in REFS)
    here = here_of("node-1", inputs.objects.objects(NODE).get(ObjectRef("Node", "node-1")), MACHINE)
    (answer,) = Asker(after, inputs, here, WORLD["pod"]).answers(f"{WORLD['cluster-ip-1']}:80/tcp")
    assert answer_json(answer)["verdict"] == "forward"


@given(hostile)
def test_what_is_written_for_bad_objects_is_taken_by_either_back_end(found: list[Any]) -> None:
    intent, _ = compiled([*found, *GOOD])
    listeners_of(intent)

    async def written() -> None:
        for family in FAMILIES:
            fake = FakeNftables(family, TABLE)
            wanted = Writer(family)(intent.of(family), "")
            assert await fake.apply(fake.diff(await fake.read(), wanted)) == {}
            assert not fake.diff(await fake.read(), wanted)
            await apply(fakes(family), IptablesWriter(family, "nft")(intent))

    asyncio.run(written())


@given(st.lists(node(), max_size=2), hostile)
def test_a_bad_node_raises_nothing(nodes: list[Any], found: list[Any]) -> None:
    compiled([*nodes, *found, *GOOD])


# A configuration: groups and fields of the real one, with anything in them.


def documents() -> st.SearchStrategy[Any]:
    fields: dict[str, Any] = {}
    words = st.sampled_from(["", "30s", "1h", "-1s", "nftables", "ipvs", "NodeCIDR", "10.244.0.0/16", "primary", "9"])
    values = st.one_of(words, words, texts, numbers, st.booleans(), some(texts | words), anything)
    for path in FIELDS:
        group, dot, name = path.partition(".")
        if dot:
            fields.setdefault(group, {})[name] = values
        else:
            fields[group] = values
    shaped = {
        name: spoiled(st.fixed_dictionaries({}, optional=value)) if isinstance(value, dict) else value
        for name, value in fields.items()
    }
    head = {"apiVersion": st.sampled_from([API_VERSION] * 5 + ["v1"]), "kind": st.sampled_from([KIND] * 5 + ["Other"])}
    return st.fixed_dictionaries(head, optional={**shaped, "bogus": anything})


def options_of(text: bytes) -> Iterator[Mapping[str, Any]]:
    config = read_config(file_ref("/config.conf"), text)
    for problem in config.problems:
        split_path(problem.field)
        assert problem.message
    for backend in (None, "nftables", "iptables") if config.is_usable else ():
        with contextlib.suppress(SettingsError):
            yield options_in(config, backend)


@given(documents(), st.binary(max_size=3), st.integers(0, 400))
def test_no_configuration_raises_and_each_complaint_names_its_field(document: Any, junk: bytes, at: int) -> None:
    text = json.dumps(document).encode()
    for candidate in (text, text[:at] + junk + text[at:]):
        for options in options_of(candidate):
            with contextlib.suppress(SettingsError):
                compiled(GOOD, settings_from(Settings, {"node_name": "node-1", **options}))
