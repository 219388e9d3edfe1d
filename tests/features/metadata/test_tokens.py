"""IMDSv2 tokens: good for who asked, until they end, and never crowded out by others."""

from podgate.features.metadata.tokens import MAX_TOKENS, MAX_TOKENS_EACH, Tokens, digest


def key(number: int) -> bytes:
    return digest(b"%d" % number)


def test_a_token_is_its_owners_until_it_ends() -> None:
    tokens = Tokens().with_token(key(1), "a/pod", until=10.0, now=0.0)
    assert tokens.is_of(key(1), "a/pod", now=9.9)
    assert not tokens.is_of(key(1), "a/pod", now=10.0)
    assert not tokens.is_of(key(1), "b/pod", now=1.0)
    assert not tokens.is_of(key(2), "a/pod", now=1.0)
    assert not Tokens().is_of(key(1), "a/pod", now=1.0)


def test_a_token_that_is_asked_for_again_is_its_new_owners() -> None:
    tokens = Tokens().with_token(key(1), "a", 10.0, 0.0).with_token(key(1), "b", 10.0, 1.0)
    assert not tokens.is_of(key(1), "a", 2.0)
    assert tokens.is_of(key(1), "b", 2.0)


def test_tokens_that_have_ended_are_forgotten() -> None:
    tokens = Tokens().with_token(key(1), "a", 1.0, 0.0).with_token(key(2), "a", 9.0, 2.0)
    assert list(tokens.by_digest) == [key(2)]


def test_one_client_crowds_out_its_own_tokens_only() -> None:
    tokens = Tokens().with_token(key(0), "other", 10.0, 0.0)
    for number in range(1, MAX_TOKENS_EACH + 3):
        tokens = tokens.with_token(key(number), "greedy", 10.0, 0.0)
    assert tokens.is_of(key(0), "other", 1.0)
    assert not tokens.is_of(key(2), "greedy", 1.0)
    assert tokens.is_of(key(3), "greedy", 1.0)
    assert len(tokens.by_digest) == MAX_TOKENS_EACH + 1


def test_the_table_is_bounded() -> None:
    full = Tokens(
        {key(number): Tokens().with_token(b"", str(number), 10.0, 0.0).by_digest[b""] for number in range(MAX_TOKENS)}
    )
    more = full.with_token(key(MAX_TOKENS), "x", 10.0, 0.0)
    assert len(more.by_digest) == MAX_TOKENS
    assert not more.is_of(key(0), "0", 1.0)
    assert len(full.by_digest) == MAX_TOKENS
