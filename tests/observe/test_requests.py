"""What is counted of requests to an API server."""

from podgate.observe.metrics import Distribution
from podgate.observe.requests import NO_ANSWER, RequestCounts, uncounted


def test_requests_are_counted_by_answer_and_their_seconds_by_method() -> None:
    counts = RequestCounts()
    assert counts.readings() == (), "no host is known yet"
    for tell in (counts.answered, uncounted):
        for method, code, seconds in (("GET", "200", 0.003), ("GET", NO_ANSWER, 10.0), ("PATCH", "409", 0.2)):
            tell(method, "10.0.0.1:6443", code, seconds)
    found = {(each.name, *(value for _, value in sorted(each.labels))): each.value for each in counts.readings()}
    host = "10.0.0.1:6443"
    totals = {key: value for key, value in found.items() if not isinstance(value, Distribution)}
    assert totals == {
        ("rest_client_requests_total", code, host, method): 1
        for method, code in (("GET", "200"), ("GET", NO_ANSWER), ("PATCH", "409"))
    }
    took = found["rest_client_request_duration_seconds", host, "GET"]
    assert isinstance(took, Distribution)
    assert (sum(took.counts), took.sum, took.counts[0]) == (2, 10.003, 1)
