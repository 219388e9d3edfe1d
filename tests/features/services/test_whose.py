"""Whose a Service is, and what the default proxy knows of another one's."""

import msgspec
import pytest

from podgate.features.services.addresses import packed
from podgate.features.services.compile import Compiler
from podgate.features.services.intent import Intent
from podgate.features.services.settings import Settings
from podgate.features.services.whose import is_ours, theirs
from podgate.joints import Inputs
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.discovery import ENDPOINT_SLICE
from podgate.model.kinds.services import PROXY_NAME_LABEL, SERVICE, Service
from podgate.model.snapshot import Listed, Snapshot
from podgate.model.table import Table

REF = ObjectRef("Service", "dns", "default")


def service(*names: str, **spec: object) -> Service:
    """Give a Service as the API has it, with the label if there is a name."""
    labels = {"app": "x", **({PROXY_NAME_LABEL: names[0]} if names else {})}
    whole = {"metadata": {"name": "dns", "namespace": "default", "labels": labels}, "spec": spec}
    return msgspec.convert(whole, Service)


PORTS = [{"name": "u", "protocol": "UDP", "port": 53, "nodePort": 30053}, {"name": "t", "port": 54, "nodePort": 30054}]
DUAL = {"clusterIP": "10.96.0.10", "clusterIPs": ["10.96.0.10", "fd00::a"], "ports": PORTS}


@pytest.mark.parametrize(
    ("proxy", "names", "ours"),
    [
        ("", (), True),
        ("", ("mesh",), False),
        ("", ("",), False),  # the label is there
        ("mesh", ("mesh",), True),
    ],
)
def test_a_service_is_one_proxys(proxy: str, names: tuple[str, ...], *, ours: bool) -> None:
    assert is_ours(service(*names), proxy) is ours


def at(address: str, port: int) -> tuple[bytes, int]:
    return packed(address) or b"", port


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (service(**DUAL), None),
        (service("mesh", clusterIP="None"), None),
        # All of its cluster IPs, and of what others may have too the UDP ports alone.
        (service("mesh", **DUAL), {at("10.96.0.10", 0), at("fd00::a", 0), (b"", 30053)}),
        (
            service("mesh", **DUAL, externalIPs=["203.0.113.9"]),
            {at("10.96.0.10", 0), at("fd00::a", 0), (b"", 30053), at("203.0.113.9", 53)},
        ),
    ],
)
def test_what_is_known_of_anothers(found: Service, expected: set[tuple[bytes, int]] | None) -> None:
    assert theirs("", REF, found) == expected


def test_the_default_proxy_does_nothing_for_anothers_service_but_know_of_it() -> None:
    table = Table.of({REF: service("mesh", **DUAL), ObjectRef("Service", "own", "default"): service(**DUAL)})
    objects = Snapshot({SERVICE.kind: Listed(table), ENDPOINT_SLICE.kind: Listed(Table())})
    compiler: Compiler[Intent] = Compiler(Settings(node_name="n"), lambda intent: intent)
    compiled = compiler(Inputs(objects))
    assert compiled.states.ip is not None
    assert [ref.name for ref in compiled.states.ip.ports] == ["own"]
    assert list(compiled.states.theirs) == [REF]
    assert REF not in compiled.problems, "it is no contest for an address either"
