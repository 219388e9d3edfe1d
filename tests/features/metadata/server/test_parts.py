"""The parts of the server that need no sockets: framing, decisions, exposure, memory, metrics, the access log."""

import io
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podgate.features.metadata.filter import Client, Decider, Filter
from podgate.features.metadata.head import BadRequest, Head, read_head
from podgate.features.metadata.server import journal as journals
from podgate.features.metadata.server.answers import AnswerHeads, BadAnswerError, Chunks, chunk, read_answer_head
from podgate.features.metadata.server.counts import Counts
from podgate.features.metadata.server.decisions import Decision, Decisions, decided, framing_refusal, shown_path
from podgate.features.metadata.server.exposure import Exposure, networks
from podgate.features.metadata.server.journal import Journal
from podgate.features.metadata.server.limits import CACHED, CACHED_BYTES, READ_SIZE
from podgate.features.metadata.server.memory import Memory
from podgate.features.metadata.server.pool import ServerAddress
from podgate.features.metadata.server.proxy import Proxy, Setup, no_journal
from podgate.observe.logs import Log
from podgate.observe.metrics import exposition
from podgate.targets.cell.apply import Cell
from podgate.targets.cell.state import State
from tests.support.metadata_upstream import KUBE_ENV, ZONE, get


def head(data: bytes) -> Head:
    read = read_head(data)
    assert isinstance(read, Head)
    return read


def decision(data: bytes, filter_: Filter | None = None) -> Decision:
    read = head(data)
    return decided(read, Decider(filter_ or Filter()).decide(read.request("10.0.0.9")))


# Answers.


@given(pieces=st.lists(st.binary(min_size=1, max_size=40), max_size=5), cuts=st.lists(st.integers(1, 9), max_size=40))
def test_chunks_give_the_body_however_they_are_cut(pieces: list[bytes], cuts: list[int]) -> None:
    data = b"".join(map(chunk, pieces)) + b"0\r\nTrailer: x\r\n\r\n"
    chunks, found = Chunks(), b""
    for cut in cuts:
        found += chunks.feed(data[:cut])
        data = data[cut:]
    found += chunks.feed(data)
    assert found == b"".join(pieces)
    assert chunks.is_done


@pytest.mark.parametrize(
    "data",
    [
        b"x\r\n",
        b"\r\n",
        b"-1\r\n",
        b"0x5\r\n",
        b"5\nhello\r\n",
        b"5\r\nhelloX\r\n",
        b"fffffffffffff\r\n",
        b"5" * 300,
        b"0\r\n\r\nmore",
        b"0\r\n" + b"T: x\r\n" * 2000,
        b"0\r\n" + b"T" * 9000,
    ],
)
def test_a_chunk_that_could_be_read_in_two_ways_is_no_chunk(data: bytes) -> None:
    def feed() -> None:
        chunks = Chunks()
        for at in range(0, len(data), 50):
            chunks.feed(data[at : at + 50])

    with pytest.raises(BadAnswerError):
        feed()


def test_a_head_is_read_once_and_remembered_up_to_a_limit() -> None:
    heads = AnswerHeads()
    first = heads.read(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n")
    assert heads.read(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n") is first
    for number in range(3 * CACHED):
        heads.read(b"HTTP/1.1 200 OK\r\nETag: %d\r\n\r\n" % number)
    assert len(heads._known) <= CACHED


def test_spelling_and_order_of_headers_stay() -> None:
    read = read_answer_head(b"HTTP/1.0 404 Not  Here\r\nx-b: 1\r\nX-A:2\r\nKeep-Alive: 3\r\n\r\n")
    assert read.lines == b"HTTP/1.1 404 Not  Here\r\nx-b: 1\r\nX-A:2\r\n"
    assert (read.status, read.framing, read.reusable) == (404, "close", False)


# Decisions.


def test_what_goes_up_is_written_from_what_was_checked() -> None:
    asked = get("/computeMetadata/v1/instance/tags?alt=%74ext", "X-Real-IP: 1", "Connection: close, X-A", "X-A: 2")
    made = decision(asked)
    first, *lines = made.forward.decode().split("\r\n")
    assert first == "GET /computeMetadata/v1/instance/tags?alt=text HTTP/1.1"
    assert lines == ["Host: metadata.google.internal", "Metadata-Flavor: Google", "", ""]
    assert not made.keep_alive


def test_decisions_are_remembered_until_the_filter_changes() -> None:
    decisions = Decisions()
    assert decisions.decide(b"k", head(get()), "10.0.0.1").status == 503
    decisions.use(Filter())
    made = decisions.decide(b"k", head(get()), "10.0.0.1")
    assert decisions.known == {b"k": made}
    decisions.decide(b"", head(get()), "10.0.0.1")
    decisions.decide(b"k" * (CACHED_BYTES + 1), head(get()), "10.0.0.1")
    assert list(decisions.known) == [b"k"]
    for number in range(3 * CACHED):
        decisions.decide(b"%d" % number, head(get()), "10.0.0.1")
    assert len(decisions.known) <= CACHED
    decisions.use(Filter(audit=True))
    assert decisions.known == {}
    assert not decisions.by_source
    decisions.use(Filter(clients={"10.0.0.1": Client("ns/pod")}))
    assert decisions.by_source


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        (b"/a/b?access_token=x", "/a/b"),
        (b"http://user:pass@host/a/b?x", "/a/b"),
        (b"/a%3Fx=y", "/a"),
        (b"/a;x=y", "/a"),
        (b"/a#x", "/a"),
        (b"/" + b"a" * 1000, "/" + "a" * 255),
        (b"opaque:thing=x", "opaque:thing"),
    ],
)
def test_a_log_shows_the_path_alone(target: bytes, shown: str) -> None:
    assert shown_path(target) == shown


# Exposure.

EXPOSURE = Exposure(frozenset({"169.254.169.254", "fd20:ce::254"}), networks(["10.9.0.0/16"]), ())


@pytest.mark.parametrize(
    ("source", "local", "original", "admitted"),
    [
        ("127.0.0.1", "127.0.0.1", "", True),
        ("::1", "::1", "", True),
        ("169.254.169.252", "169.254.169.252", "", True),
        ("10.64.0.5", "169.254.169.252", "169.254.169.254", True),
        ("10.64.0.5", "169.254.169.252", "169.254.169.252", False),
        ("10.64.0.5", "169.254.169.252", "", False),
        ("192.0.2.7", "10.0.0.2", "10.0.0.2", False),
        ("10.9.3.4", "10.0.0.2", "", True),
        ("", "", "169.254.169.254", False),
    ],
)
def test_strangers_are_not_served(source: str, local: str, original: str, admitted: bool) -> None:
    assert EXPOSURE.admits(source, local, original) is admitted


def test_pod_ranges_narrow_who_may_be_redirected() -> None:
    narrow = Exposure(EXPOSURE.metadata, (), networks(["10.64.0.0/24"]))
    assert narrow.admits("10.64.0.5", "169.254.169.252", "169.254.169.254")
    assert not narrow.admits("10.65.0.5", "169.254.169.252", "169.254.169.254")


def test_the_pod_ranges_of_the_policy_in_force_count() -> None:
    cell = Cell()
    proxy = Proxy(Setup(ServerAddress("192.0.2.1", 80), EXPOSURE), cell, Log(io.StringIO()), no_journal)
    seen = []
    for ranges in (None, (), ("10.64.0.0/24",), ("10.65.0.0/24",), ()):
        if ranges is not None:
            cell.swap(State(Filter(pod_ranges=ranges)))
        seen.append(proxy.admits("10.64.0.5", "169.254.169.252", "169.254.169.254"))
    assert seen == [True, True, True, False, True]


# Memory.


def cgroup(folder: Path, membership: str, files: dict[str, str]) -> Memory:
    (folder / "membership").write_text(membership)
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return Memory(str(folder), str(folder / "membership"))


def test_the_share_counts_what_cannot_be_reclaimed(tmp_path: Path) -> None:
    files = {
        "pod/memory.max": "100\n",
        "pod/memory.current": "95\n",
        "pod/memory.stat": "anon 50\nfile 30\nactive_file 5\ninactive_file 15\nsock 20\nslab 5\n",
    }
    assert cgroup(tmp_path, "0::/pod\n", files).share() == 0.75


def test_a_container_sees_its_cgroup_as_the_root(tmp_path: Path) -> None:
    found = cgroup(tmp_path, "0::/kubepods/x\n", {"memory.max": "100\n", "memory.current": "10\n"})
    assert found.share() == 0.1


def test_version_1_is_read_too(tmp_path: Path) -> None:
    files = {
        "memory/a/memory.limit_in_bytes": "200\n",
        "memory/a/memory.usage_in_bytes": "60\n",
        "memory/a/memory.stat": "total_rss 40\ntotal_active_file 4\ntotal_inactive_file 6\n",
    }
    assert cgroup(tmp_path, "4:memory:/a\n0::/\n", files).share() == 0.25


@pytest.mark.parametrize("files", [{}, {"memory.max": "max\n", "memory.current": "10\n"}, {"memory.max": "10\n"}])
def test_without_a_limit_there_is_no_pressure(tmp_path: Path, files: dict[str, str]) -> None:
    assert cgroup(tmp_path, "0::/\n", files).share() == 0.0
    assert Memory(str(tmp_path), str(tmp_path / "absent")).share() == 0.0


# Metrics.


def test_request_count_is_the_old_programs() -> None:
    counts = Counts()
    counts.request("deny", "Concealed", 403, 0.0)
    counts.request("forward", "Allowed", 200, 0.002)
    page = exposition(counts.samples()).decode()
    help_text = (
        "# HELP request_count Number of metadata proxy requests broken down by filter result of request and HTTP"
        " response code.\n# TYPE request_count counter\n"
    )
    assert help_text in page
    assert 'request_count{code="403",filter_result="filter_result_blocked"} 1\n' in page
    assert 'request_count{code="200",filter_result="filter_result_proxied"} 1\n' in page
    assert 'podgate_metadata_request_duration_seconds_bucket{le="0.0025"} 1\n' in page
    assert "podgate_metadata_request_duration_seconds_count 1\n" in page


# The access log.


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000.25
        self.planned: list[Callable[[], object]] = []

    def __call__(self) -> float:
        return self.now

    def later(self, _seconds: float, function: Callable[[], object]) -> None:
        self.planned.append(function)


def journal(descriptor: int, text: io.StringIO | None = None) -> tuple[Journal, Clock, Counts]:
    clock, counts = Clock(), Counts()
    log = Log(text or io.StringIO(), "text" if text else "json", clock)
    return Journal(log, counts, clock, clock.later, descriptor), clock, counts


def test_one_request_is_one_line_and_no_query_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "log"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    written, clock, _ = journal(descriptor)
    hostile = get("/computeMetadata/v1/%0a2026/01/01%20fake?alt=hidden-value")
    written.request(decision(get(f"{ZONE}?alt=hidden-value")), "10.0.0.1", 200, 0.00123)
    written.request(decision(hostile), "10.0.0.1", 403, 0.0)
    read = read_head(b"GARBAGE\r\n\r\n")
    assert isinstance(read, BadRequest)
    written.request(framing_refusal(read), "10.0.0.1", 400, 0.0)
    assert path.read_text() == ""
    clock.planned.pop()()
    os.close(descriptor)
    text = path.read_text()
    assert "hidden-value" not in text
    first, second, third = map(json.loads, text.splitlines())
    assert first == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "info",
        "message": "request",
        "source": "10.0.0.1",
        "method": "GET",
        "path": ZONE,
        "verdict": "forward",
        "reason": "Allowed",
        "rule": "gce/roots",
        "status": 200,
        "milliseconds": 1.2,
    }
    assert second["verdict"] == "deny"
    assert third["reason"] == "BadRequestLine"


def test_on_a_terminal_the_line_is_text() -> None:
    text = io.StringIO()
    written, _, _ = journal(2, text)
    written.request(decision(get(KUBE_ENV)), "10.0.0.1", 403, 0.0)
    assert "verdict=deny reason=Concealed rule=gce/kube-env status=403" in text.getvalue()


def test_a_flood_of_denials_is_some_lines_and_a_sum(tmp_path: Path) -> None:
    path = tmp_path / "log"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    written, clock, counts = journal(descriptor)
    denied, allowed = decision(get(KUBE_ENV)), decision(get())
    for _ in range(1000):
        written.request(denied, "10.0.0.1", 403, 0.0)
    written.request(denied, "10.0.0.2", 403, 0.0)
    written.request(allowed, "10.0.0.1", 200, 0.0)
    clock.now += 1
    written.second_over()
    written.flush()
    os.close(descriptor)
    lines = list(map(json.loads, path.read_text().splitlines()))
    shown = [line for line in lines if line["message"] == "request"]
    assert [line["source"] for line in shown].count("10.0.0.1") == journals.DENIALS_A_SECOND + 1
    assert {line["source"] for line in shown} == {"10.0.0.1", "10.0.0.2"}
    assert lines[-1]["message"] == "denials not logged"
    assert (lines[-1]["source"], lines[-1]["count"]) == ("10.0.0.1", 990)
    assert counts.unlogged == 990


def test_many_clients_do_not_make_the_account_of_floods_grow() -> None:
    written, _, _ = journal(2)
    denied = decision(get(KUBE_ENV))
    for number in range(5000):
        written._is_flood(f"10.0.{number // 256}.{number % 256}", 1)
    assert len(written._denied) <= 1025
    assert denied.status == 403


@pytest.mark.parametrize("catches_up", [True, False])
def test_at_the_end_a_reader_that_is_behind_is_waited_for_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch, *, catches_up: bool
) -> None:
    monkeypatch.setattr(journals, "LAST_SECONDS", 60.0 if catches_up else 0.01)
    reading, writing = os.pipe()
    written, _, _ = journal(writing)
    for _ in range(1000):
        written.request(decision(get()), "10.0.0.1", 200, 0.0)
    found: list[bytes] = []

    def read() -> None:
        while data := os.read(reading, 65536):
            found.append(data)

    reader = threading.Timer(0.05, read)
    if catches_up:
        reader.start()
    written.finish()
    os.close(writing)
    if catches_up:
        reader.join()
        assert b"".join(found).count(b"\n") == 1000
    os.close(reading)


def test_a_reader_that_stands_still_stops_nobody_and_lines_stay_whole() -> None:
    reading, writing = os.pipe()
    written, clock, counts = journal(writing)
    allowed = decision(get())
    for _ in range(5000):
        written.request(allowed, "10.0.0.1", 200, 0.0)
    written.flush()
    assert counts.dropped_lines > 0
    assert len(written._waiting) <= journals.MOST_BYTES
    os.set_blocking(reading, False)
    text = b""
    for _ in range(200):
        try:
            text += os.read(reading, 1 << 16)
        except BlockingIOError:
            if not written._waiting:
                break
        clock.planned.pop()()
    lines = text.decode().splitlines()
    assert all(json.loads(line)["status"] == 200 for line in lines)
    assert len(lines) + counts.dropped_lines == 5000
    os.close(reading)
    written.request(allowed, "10.0.0.1", 200, 0.0)
    written.flush()  # nobody reads any more
    os.close(writing)


def test_one_buffer_takes_the_longest_head() -> None:
    from podgate.features.metadata.head import MAX_HEAD

    assert READ_SIZE >= 2 * MAX_HEAD
