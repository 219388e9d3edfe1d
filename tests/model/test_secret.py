"""A Secret never shows its bytes, whatever is done with it."""

import copy
import json
import pickle

import pytest

from podgate.model.secret import Secret

BYTES = b"a very secret token"


@pytest.mark.parametrize(
    "show", [str, repr, "{}".format, "{!r}".format, lambda secret: f"{secret}", lambda secret: str([secret])]
)
def test_no_way_of_printing_shows_the_bytes(show: object) -> None:
    assert callable(show)
    text = show(Secret(BYTES))
    assert "secret token" not in text
    assert "Secret(sha256:" in text


def test_only_reveal_gives_the_bytes() -> None:
    assert Secret(BYTES).reveal() == BYTES
    assert not hasattr(Secret(BYTES), "__dict__")
    with pytest.raises(TypeError):
        json.dumps(Secret(BYTES))
    for copying in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="reveal"):
            copying(Secret(BYTES))


def test_secrets_are_compared_by_their_bytes() -> None:
    assert Secret(BYTES) == Secret(bytes(bytearray(BYTES)))
    assert Secret(BYTES) != Secret(b"another")
    assert Secret(BYTES) != BYTES
    assert len({Secret(BYTES), Secret(BYTES), Secret(b"another")}) == 2
    assert Secret(BYTES).digest() != Secret(b"another").digest()
