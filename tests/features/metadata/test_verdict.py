"""Answers to clients that are refused: as the old proxy wrote them."""

from podgate.features.metadata.verdict import answer


def test_the_answer_is_text_and_has_no_flavor() -> None:
    assert answer(403, "This metadata endpoint is concealed", close=False) == (
        b"HTTP/1.1 403 Forbidden\r\n"
        b"Content-Type: text/plain; charset=utf-8\r\n"
        b"X-Content-Type-Options: nosniff\r\n"
        b"Content-Length: 36\r\n\r\n"
        b"This metadata endpoint is concealed\n"
    )


def test_a_405_names_methods_and_a_close_is_told() -> None:
    data = answer(405, "no", close=True, allow="GET, HEAD")
    assert b"\r\nAllow: GET, HEAD\r\nConnection: close\r\n\r\nno\n" in data


def test_the_answer_to_head_has_the_length_and_no_body() -> None:
    data = answer(403, "no", close=False, with_body=False)
    assert data.endswith(b"Content-Length: 3\r\n\r\n")


def test_a_message_with_odd_characters_stays_one_body() -> None:
    data = answer(403, "key `\udcff\r\n`", close=False)
    head, _, body = data.partition(b"\r\n\r\n")
    assert b"Content-Length: %d" % len(body) in head
