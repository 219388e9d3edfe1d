"""What explain gives to a program, and that it agrees with the set that a kernel gets."""

from ipaddress import IPv4Address

from hypothesis import given
from hypothesis import strategies as st

from podgate.features.masquerade.compile import Compiler
from podgate.features.masquerade.explain import Answer, answer_json, answer_line, explain, source_text
from podgate.features.masquerade.intent import Intent
from podgate.features.masquerade.ports import PortRange
from podgate.features.masquerade.prefixes import RuleOrigin
from podgate.features.masquerade.settings import DEFAULT_CONFIG, Settings
from podgate.joints import Inputs
from podgate.model.files import Present
from podgate.model.frozen import ObjectRef, file_ref

TEXT = b"nonMasqueradeCIDRs:\n- 10.0.0.0/30\n- 10.0.0.8/29\n- 10.0.0.12/32\n- 169.254.0.0/31\nmasqLinkLocal: true\n"


def intent() -> Intent:
    inputs = Inputs(files={DEFAULT_CONFIG: Present(TEXT)})
    return Compiler(Settings(), lambda made: made)(inputs).states


def test_json_has_exactly_these_fields() -> None:
    answer = explain(intent(), IPv4Address("10.0.0.12"))
    assert isinstance(answer, Answer)
    assert answer_json(answer, lambda _ref, _field: 4) == {
        "address": "10.0.0.12",
        "action": "keep",
        "rule": "10.0.0.12/32",
        "source": f"{DEFAULT_CONFIG}:4",
    }


def test_json_and_line_of_a_chosen_address() -> None:
    origin = RuleOrigin(ObjectRef("MasqueradePolicy", "p"), "spec.to[0].cidr")
    ports = (PortRange(1024, 9999), PortRange(20000, 20000))
    answer = Answer(IPv4Address("20.0.0.1"), "snat", "20.0.0.0/8", origin, IPv4Address("192.0.2.77"), ports)
    assert answer_json(answer, lambda _ref, _field: None) == {
        "address": "20.0.0.1",
        "action": "snat",
        "rule": "20.0.0.0/8",
        "source": "MasqueradePolicy/p:spec.to[0].cidr",
        "snatAddress": "192.0.2.77",
        "ports": "1024-9999,20000",
    }
    assert answer_line(answer, lambda _ref, _field: None) == (
        "20.0.0.1: snat to 192.0.2.77 with ports 1024-9999,20000, by 20.0.0.0/8 (MasqueradePolicy/p:spec.to[0].cidr)"
    )


def test_sources() -> None:
    def line(ref: ObjectRef, field: str) -> int | None:
        return 7 if (ref.name, field) == ("/a", "x[0]") else None

    assert source_text(RuleOrigin(), line) == "default"
    assert source_text(RuleOrigin(file_ref("/a"), "x[0]"), line) == "/a:7"
    assert source_text(RuleOrigin(file_ref("/b"), "x[0]"), line) == "/b"
    assert source_text(RuleOrigin(ObjectRef("ConfigMap", "c", "ns"), "data.config.x[0]"), line) == (
        "ConfigMap/ns/c:data.config.x[0]"
    )
    assert source_text(RuleOrigin(ObjectRef("Kernel", "t")), line) == "Kernel/t"


@given(st.one_of(st.integers(0, 20).map(lambda n: (10 << 24) + n), st.integers(0, (1 << 32) - 1)))
def test_the_answer_is_what_the_kernel_s_set_says(number: int) -> None:
    made = intent()
    answer = explain(made, IPv4Address(number))
    assert isinstance(answer, Answer)
    in_set = any(first <= number <= last for first, last in made.families[0].keep)
    never = IPv4Address(number).is_multicast or IPv4Address(number).is_loopback or number in {0, (1 << 32) - 1}
    assert (answer.action == "keep") == (in_set or never)
