"""One list and watch as a state machine, one thing after another, without I/O; whole histories stand beside this."""

import pytest

from podgate.kubeapi.answers import Refusal
from podgate.kubeapi.frames import Batch, Bookmark, Broken, Gone, ListPage, Put
from podgate.model.kinds.config import ConfigMap
from podgate.model.problems import Problem
from podgate.sources.kube.standing import Standing
from podgate.sources.kube.watching import Retrying, Watching
from tests.support.watchings import (
    EXPIRED,
    FORBIDDEN,
    MISSING,
    NO_STREAM,
    asks,
    end,
    fresh,
    listed,
    names,
    put,
    ref,
)


def test_a_stream_counts_when_its_end_is_marked() -> None:
    watching = fresh()
    assert asks(watching) == "stream"
    assert watching.batch(Batch((put("a"), Bookmark(), put("b")), "3")) is False
    assert (watching.answered, names(watching)) == (False, set())
    assert watching.batch(end("5", Gone(ref("a")))) is True
    assert (watching.answered, names(watching)) == (True, {"b"})
    assert asks(watching) == "since 5"


def test_the_stream_goes_on_as_a_watch() -> None:
    watching = listed("a")
    assert watching.batch(Batch((put("b"), Gone(ref("a")), put("a", "2"), Gone(ref("b"))), "8")) is True
    assert names(watching) == {"a"}
    assert watching.objects[ref("a")].data == {"v": "2"}
    watching.ended()
    assert asks(watching) == "since 8"


def test_pages_count_with_the_last() -> None:
    watching = fresh()
    asks(watching)
    watching.refused(Refusal(422, "Invalid"))
    assert asks(watching) == "page"
    assert watching.page(ListPage((put("a"),), "4", "t")) is False
    assert (watching.pause(1), asks(watching)) == (0, "page t")
    assert watching.page(ListPage((put("b"),), "4")) is True
    assert names(watching) == {"a", "b"}
    assert asks(watching) == "since 4"


@pytest.mark.parametrize(
    ("no", "for_good"),
    [(Refusal(400), True), (Refusal(422), True), (NO_STREAM, True), (Refusal(500), False)],
)
@pytest.mark.parametrize("inside", [False, True], ids=["answer", "frame"])
def test_a_server_that_cannot_stream_is_asked_for_pages_at_once(no: Refusal, for_good: bool, inside: bool) -> None:
    watching = fresh()
    asks(watching)
    if inside:
        watching.batch(Batch((put("a"), no)))
        assert watching.over
    else:
        watching.refused(no)
    assert watching.pause(1) == 0
    assert asks(watching) == "page"
    watching.page(ListPage((put("b"),), "4"))
    assert names(watching) == {"b"}
    watching.refused(EXPIRED)
    assert asks(watching) == ("page" if for_good else "stream")


@pytest.mark.parametrize("no", [Refusal(429), Refusal(503), Refusal(401), EXPIRED], ids=lambda no: str(no.code))
def test_other_refusals_wait(no: Refusal) -> None:
    watching = fresh()
    asks(watching)
    watching.refused(no)
    assert watching.pause(0) > 0


def test_an_expired_version_means_a_new_list_and_objects_stay_until_it_is_whole() -> None:
    watching = listed("a", "b")
    before = watching.objects[ref("b")]
    asks(watching)
    watching.batch(Batch((EXPIRED,)))
    assert watching.over
    assert asks(watching) == "stream"
    watching.batch(Batch((put("b"),), "9"))
    assert names(watching) == {"a", "b"}
    watching.lost("cut")
    assert asks(watching) == "page"
    watching.page(ListPage((put("b"), put("c")), "9"))
    assert names(watching) == {"b", "c"}
    assert watching.objects[ref("b")] is before


def test_what_came_before_a_refusal_in_one_batch_counts() -> None:
    watching = listed("a")
    asks(watching)
    assert watching.batch(Batch((put("b"), Refusal(500)), "7")) is True
    assert names(watching) == {"a", "b"}
    # Its version does not: the event comes once more, and changes nothing.
    assert asks(watching) == "since 5"
    assert watching.batch(Batch((put("b"),), "7")) is False


def test_a_list_that_is_slower_than_the_history_comes_in_one_piece() -> None:
    watching = fresh()
    asks(watching)
    watching.refused(NO_STREAM)
    asks(watching)
    watching.page(ListPage((put("a"),), "4", "t"))
    asks(watching)
    watching.refused(EXPIRED)
    request = watching.request(0)
    assert "limit" not in request.parameters()
    watching.page(ListPage((put("b"),), "6"))
    assert names(watching) == {"b"}


def test_a_bookmark_moves_the_version_and_changes_nothing() -> None:
    watching = listed("a")
    assert watching.batch(Batch((Bookmark(),), "77")) is False
    assert asks(watching) == "since 77"


def test_failures_wait_longer_and_longer_but_not_for_ever() -> None:
    watching = listed("a")
    pauses = []
    for _ in range(12):
        asks(watching)
        watching.lost("gone")
        pauses.append(watching.pause(1))
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (Retrying().first, Retrying().longest)
    assert watching.pause(0) == Retrying().longest / 2
    asks(watching)
    watching.batch(Batch((Bookmark(),), "6"))
    watching.ended()
    assert watching.pause(1) == Retrying().between


def test_a_server_that_ends_empty_watches_at_once_does_not_make_us_spin() -> None:
    watching = listed("a")
    for _ in range(5):
        asks(watching)
        watching.ended()
    assert watching.pause(0) > 1


def test_the_servers_wish_to_wait_is_heard() -> None:
    watching = listed("a")
    asks(watching)
    watching.refused(Refusal(429, retry_after=20))
    assert watching.pause(0) == 20
    asks(watching)
    assert watching.pause(0) < 1


@pytest.mark.parametrize(("no", "why"), [(FORBIDDEN, "forbidden"), (MISSING, "not installed")])
def test_a_kind_is_absent_when_it_was_refused_twice(no: Refusal, why: str) -> None:
    watching = fresh()
    asks(watching)
    assert (watching.refused(no), watching.answered) == (False, False)
    asks(watching)
    assert watching.refused(no) is True
    assert (watching.answered, watching.absent) == (True, why)
    assert watching.trouble.startswith(f"cannot watch ConfigMap: {why}")
    assert watching.pause(1) == Retrying().longest
    asks(watching)
    assert watching.batch(end("5")) is True
    assert (watching.absent, watching.listed, watching.trouble) == (None, True, "")


def test_a_kind_that_was_listed_is_doubted_longer() -> None:
    watching = listed("a")
    for _ in range(Retrying().doubted_listed - 1):
        asks(watching)
        assert watching.refused(FORBIDDEN) is False
    assert names(watching) == {"a"}
    asks(watching)
    assert watching.refused(FORBIDDEN) is True
    assert (watching.absent, names(watching)) == ("forbidden", set())


def test_a_kind_of_which_no_version_is_told_is_followed_all_the_same() -> None:
    watching = listed("a")
    for _ in range(Retrying().doubted_listed):
        assert watching.asks == "version"
        watching.request(0)
        assert watching.refused(FORBIDDEN) is False
    assert (watching.asks, watching.pause(1) > 0) == ("watch", True)
    assert watching.request(0).parameters()["resourceVersion"] == "5"
    watching.batch(Batch((put("b"),), "6", "6"))
    assert names(watching) == {"a", "b"}
    watching.ended()
    assert watching.asks == "watch"
    # Where the watch is refused as well, the kind is absent as soon as it was always.
    asks(watching)
    for _ in range(Retrying().doubted_listed):
        watching.request(0)
        watching.refused(FORBIDDEN)
    assert watching.absent == "forbidden"


# A store that was restored to an older state: it is asked where it stands before each watch.


def follows(*changed: Put[ConfigMap] | Gone, version: str = "9") -> Watching:
    """Give a watch of one object, `a`, that heard of these changes and was cut."""
    watching = listed("a")
    watching.batch(Batch(changed, version, version))
    watching.lost("cut")
    assert watching.asks == "version"
    return watching


def test_it_is_asked_for_the_object_that_changed_last() -> None:
    request = follows(put("b"), put("c")).request(0)
    assert request.path == "/api/v1/namespaces/default/configmaps"
    # Without a resource version: a server whose memory is late must not be believed.
    assert request.parameters() == {"fieldSelector": "metadata.name=c"}


def test_a_store_that_stands_where_it_did_is_followed_at_once() -> None:
    watching = follows(put("b"))
    assert watching.request(0).parameters()["fieldSelector"] == "metadata.name=b"
    assert watching.stands(Standing("9", {"b": "9"})) is False
    assert (watching.pause(1), watching.asks) == (0, "watch")
    assert watching.request(0).parameters()["resourceVersion"] == "9"
    # And asked again before the next one.
    watching.lost("cut")
    assert watching.asks == "version"


def test_an_older_store_means_a_new_list_and_objects_stay_until_it_is_whole() -> None:
    watching = follows(put("b"))
    watching.request(0)
    assert watching.stands(Standing("7")) is False
    assert watching.trouble == (
        "ConfigMap was followed to version 9, and is at 7 now with an older state, as after a restore of the API's "
        "store: all is listed anew"
    )
    assert names(watching) == {"a", "b"}
    assert watching.pause(1) <= Retrying().between
    assert asks(watching) == "stream"
    assert watching.batch(end("7", put("a"))) is True
    assert (names(watching), watching.trouble) == ({"a"}, "")
    watching.ended()
    assert asks(watching) == "since 7"


def test_a_list_in_pages_is_followed_without_a_question() -> None:
    watching = fresh()
    asks(watching)
    watching.refused(Refusal(422, "Invalid"))
    asks(watching)
    watching.page(ListPage((put("b"),), "4"))
    assert watching.asks == "watch"


@pytest.mark.parametrize("no", [Refusal(401), Refusal(429, retry_after=7), Refusal(500), Refusal(503), Refusal(504)])
def test_while_no_version_is_told_nothing_is_followed(no: Refusal) -> None:
    watching = follows(put("b"))
    for _ in range(20):
        watching.request(0)
        watching.refused(no)
        assert (watching.asks, watching.pause(0) >= max(Retrying().first / 2, no.retry_after)) == ("version", True)
    assert names(watching) == {"a", "b"}
    assert watching.trouble.startswith(f"cannot watch ConfigMap: {no.code}")


def test_silence_is_a_lost_connection_once_and_a_new_list_twice() -> None:
    watching = listed("a")
    asks(watching)
    watching.silent("nothing was heard")
    assert asks(watching) == "since 5"
    watching.silent("nothing was heard")
    assert asks(watching) == "page"


def test_a_broken_object_keeps_its_value_until_it_is_mended_or_gone() -> None:
    problem = Problem(ref("a"), "error", "Invalid", "data", "no")
    watching = listed("a")
    asks(watching)
    assert watching.batch(Batch((Broken(problem),), "6")) is True
    assert (names(watching), watching.faults) == ({"a"}, {ref("a"): problem})
    watching.refused(EXPIRED)
    asks(watching)
    watching.batch(Batch((Broken(problem), Bookmark(initial_end=True)), "8"))
    assert (names(watching), watching.faults) == ({"a"}, {ref("a"): problem})
    assert watching.batch(Batch((put("a", "2"),), "9")) is True
    assert watching.faults == {}


def test_one_cut_is_no_trouble_and_two_are() -> None:
    watching = listed("a")
    asks(watching)
    watching.lost("reset by peer")
    assert watching.trouble == ""
    asks(watching)
    watching.lost("reset by peer")
    assert watching.trouble == "cannot watch ConfigMap: reset by peer"
