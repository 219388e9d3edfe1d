"""Explaining: the answers' forms; what they are for many requests is in the case files."""

import pytest

from podgate.features.metadata.explain import Question, answer_json, answer_text, explain, explain_all, target_and_host
from podgate.features.metadata.filter import Client, Decider, Filter

DECIDER = Decider(Filter(clients={"10.64.0.2": Client("a/b")}))
KUBE_ENV = "/computeMetadata/v1/instance/attributes/kube-env"


def test_a_denial() -> None:
    answer = explain(DECIDER, Question(f"http://metadata.google.internal{KUBE_ENV}?alt=text", source="10.64.0.2"))
    assert answer_json(answer) == {
        "path": f"{KUBE_ENV}?alt=text",
        "verdict": "deny",
        "status": 403,
        "reason": "Concealed",
        "rule": "gce/kube-env",
        "message": "This metadata endpoint is concealed",
        "sent": "",
        "audited": False,
        "client": "a/b",
    }
    assert answer_text(answer) == (
        f"{KUBE_ENV}?alt=text: deny 403 Concealed, by gce/kube-env: This metadata endpoint is concealed"
    )


def test_what_is_forwarded_has_no_status() -> None:
    first, second = explain_all(DECIDER, [Question("/"), Question("/computeMetadata/v1/%7Aone")])
    assert (first.verdict, first.status, answer_text(first)) == ("forward", None, "/: forward, by gce/roots")
    assert answer_text(second).endswith("sent as /computeMetadata/v1/zone")


def test_an_audit_says_what_it_would_have_done() -> None:
    answer = explain(Decider(Filter(audit=True)), Question(KUBE_ENV))
    assert (answer.verdict, answer.status, answer.reason, answer.audited) == ("forward", None, "Concealed", True)
    assert answer_text(answer).endswith("(would be denied: Concealed)")


@pytest.mark.parametrize(
    ("question", "status", "reason"),
    [
        (Question("/a b"), 400, "BadRequestLine"),
        (Question("/ HTTP/1.1\r\nHost: metadata\r\n\r\nGET /"), 400, "BadRequestLine"),
        (Question("/a\nb"), 400, "BareLineFeed"),
        (Question("/", headers=("X-Forwarded-For : a",)), 400, "BadHeader"),
        (Question("/", headers=("Host: a", "Host: b")), 400, "BadHost"),
        (Question("/", headers=("Host: a.example",)), 403, "HostNotAllowed"),
        (Question("/", headers=("X-Forwarded-For: a",)), 403, "ForwardedFor"),
        (Question("/computeMetadata/v1/\udcff"), 403, "NonAscii"),
        (Question("/computeMetadata/v1/é"), 403, "NonAscii"),
        (Question("/" + "a" * 9_000), 414, "TooLong"),
        (Question("/", method="PUT"), 405, "MethodNotAllowed"),
        (Question("/", method="P T"), 400, "BadRequestLine"),
    ],
)
def test_what_is_asked_is_sent_as_it_is(question: Question, status: int, reason: str) -> None:
    answer = explain(DECIDER, question)
    assert (answer.status, answer.reason, answer.verdict) == (status, reason, "deny")
    assert answer_text(answer).isascii()


def test_a_pod_on_the_nodes_own_network_is_not_redirected() -> None:
    answer = explain(DECIDER, Question(KUBE_ENV, host_network=True))
    assert (answer.verdict, answer.reason) == ("forward", "NotRedirected")


@pytest.mark.parametrize(
    ("asked", "target", "host"),
    [
        ("http://a", "/", "a"),
        ("HTTP://A:80/x?y#z", "/x?y", "A:80"),
        ("http://a?b", "/?b", "a"),
        ("http://u:p@a/", "/", "a"),
        ("/x#y", "/x#y", "d"),
        ("http:x", "http:x", "d"),
        ("https://a/", "https://a/", "d"),
    ],
)
def test_urls(asked: str, target: str, host: str) -> None:
    assert target_and_host(asked, "d") == (target, host)
