"""Whatever the filter lets through, a naive and independent normaliser finds no concealed path in it."""

import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from podgate.features.metadata.explain import Question, head_of
from podgate.features.metadata.filter import Decider, Filter
from podgate.features.metadata.head import Head, read_head
from podgate.features.metadata.profiles import GCE
from podgate.features.metadata.request import Request
from podgate.features.metadata.target import RequestTarget, read_target
from podgate.features.metadata.verdict import Verdict
from tests.features.metadata.oracle import bad_bytes, decoded, finding
from tests.features.metadata.tricks import TARGETS

DECIDER = Decider(Filter())
EVERYTHING = Decider(Filter(profile=GCE, opened=GCE.open, check_host=False))
HEADERS = ((b"Host", b"metadata"), (b"Metadata-Flavor", b"Google"))
MANY = settings(max_examples=max(600, settings().max_examples), suppress_health_check=[HealthCheck.too_slow])
V1 = b"/computeMetadata/v1/instance/"


@pytest.mark.slow
@MANY
@given(TARGETS)
def test_what_is_forwarded_can_be_read_as_nothing_concealed(raw: bytes) -> None:
    verdict = DECIDER.decide(Request(b"GET", raw, HEADERS))
    if verdict.action == "forward":
        assert finding(verdict.target) == ""
        assert bad_bytes(verdict.target) == ""
    else:
        assert verdict.status == 403
        assert verdict.target == b""


@pytest.mark.slow
@MANY
@given(TARGETS)
def test_a_target_that_goes_upstream_is_its_own_only_spelling(raw: bytes) -> None:
    target = read_target(raw)
    if isinstance(target, RequestTarget):
        again = read_target(target.raw)
        assert isinstance(again, RequestTarget)
        assert (again.path, again.pairs, again.raw) == (target.path, target.pairs, target.raw)


@pytest.mark.slow
@MANY
@given(TARGETS, st.lists(st.sampled_from([b"\r\n", b"\n", b"\r", b" ", b"A: b\r\n", b"\x00", b":"]), max_size=3))
def test_bytes_of_any_kind_end_in_a_verdict(raw: bytes, noise: list[bytes]) -> None:
    data = b"GET " + raw + b" HTTP/1.1\r\nHost: metadata\r\n" + b"".join(noise) + b"\r\n\r\n"
    head = read_head(data)
    if isinstance(head, Head):
        verdict = DECIDER.decide(head.request("10.0.0.1"))
        if verdict.action == "forward":
            assert finding(verdict.target) == ""


LEAKED = [
    *(b"attributes/kube-env/", b"attributes/kube%252Denv", b"attributes%5Ckube-env", b"attributes/KUBE-ENV"),
    *(b"attributes/kube-env%00", b"attributes/kube-env%20", b"attributes/kube-env%2F", b"attributes/kube-env%0a"),
    *(b"attributes/kube-env%3Fx", b"attributes/kube-env;x=1", b"attributes/kube-env.", b"attributes//kube-env"),
    *(b"service-accounts/default/Identity", b"service-accounts/default%0a/identity", b"?alt=text;recursive=true"),
    *(b"?recursive=true;", b"?;recursive=true", b"?recursive=true%zz", b"%2e%2e/instance/attributes/kube-env"),
    *(b"attributes/kube%u002denv", b"attributes%c0%afkube-env", b"attributes/kube%E2%80%90env"),
]


@pytest.mark.parametrize("leak", LEAKED)
def test_the_oracle_sees_what_the_old_proxy_let_through(leak: bytes) -> None:
    assert finding(V1 + leak)


@pytest.mark.parametrize("good", [b"zone", b"service-accounts/default/?recursive=true", b"attributes/cluster-name"])
def test_the_oracle_has_nothing_against_what_clients_need(good: bytes) -> None:
    assert finding(V1 + good) == ""
    assert DECIDER.decide(Request(b"GET", V1 + good, HEADERS)).action == "forward"


def test_decoding_ends() -> None:
    assert decoded(b"%25%32%35%32%66") == b"/"


def hostile(size: int) -> list[bytes]:
    """Give targets of some length that ask for much work, each in its own way."""
    return [
        b"/computeMetadata/v1/" + b"%41" * (size // 3),
        b"/computeMetadata/v1/" + b"a/" * (size // 2),
        b"/" * size,
        b"/computeMetadata/v1/" + b"../" * (size // 3),
        b"/computeMetadata/v1/?" + b"&" * size,
        b"/computeMetadata/v1/?" + b"alt=a&" * (size // 6),
        b"/computeMetadata/v1/?alt=" + b"%41" * (size // 3),
        b"/computeMetadata/v1/?alt=" + b"%" * size,
        b"/computeMetadata/v1/instance/service-accounts/" + b"/identit" * (size // 8),
        b"/computeMetadata/v1/instance/service-accounts/" + b"a" * size + b"/identity",
        b"/computeMetadata/v1/instance/attributes/" + b"kube-env," * (size // 9),
        b"/computeMetadata/v1/instance/attributes/" + b".a" * (size // 2),
    ]


LONGEST = 8_000
"""Bytes that a request line may have, about (server/limits.py)."""
PAIRS = list(zip(hostile(LONGEST // 2), hostile(LONGEST), strict=True))


@pytest.mark.parametrize(("half", "whole"), PAIRS, ids=range(len(PAIRS)))
def test_hostile_input_takes_work_in_proportion_to_its_length_and_bounded_memory(half: bytes, whole: bytes) -> None:
    """The slowest of them must not hold up a thousand others: lines of code that run are counted, not seconds."""
    verdict, steps = counted(whole)
    assert steps <= 2.5 * counted(half)[1] + 500
    assert steps <= 10 * LONGEST
    assert len(verdict.message) < 300
    assert len(verdict.target) <= 3 * LONGEST


def counted(raw: bytes) -> tuple[Verdict, int]:
    """Decide, and count the lines that run."""
    steps = 0

    def line(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal steps
        steps += event == "line"
        return line

    before = sys.gettrace()
    sys.settrace(line)
    try:
        verdict = EVERYTHING.decide(Request(b"GET", raw, HEADERS))
    finally:
        sys.settrace(before)
    return verdict, steps


def test_what_explain_asks_is_what_a_client_sends() -> None:
    data = head_of(Question("http://metadata.google.internal/computeMetadata/v1/?alt=text#x", "GET", ("A: b",)), "x")
    assert data == b"GET /computeMetadata/v1/?alt=text HTTP/1.1\r\nHost: metadata.google.internal\r\nA: b\r\n\r\n"
