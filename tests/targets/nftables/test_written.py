"""Which rules in the kernel are those that podgate wrote."""

from podgate.targets.nftables.written import Written

TABLE, A, B, OTHER = 7, b"a", b"b", b"other"


def known() -> Written:
    written = Written()
    written.was_filled(TABLE, {"one": [A], "two": [B]}, None)
    return written


def test_without_memory_marks_are_believed_until_the_first_read() -> None:
    written = Written()
    assert written.has(TABLE, "one", A)
    written.was_read(TABLE, [A])
    assert written.has(TABLE, "one", A)
    assert not written.has(TABLE, "one", OTHER)
    written.was_read(TABLE, [OTHER])
    assert not written.has(TABLE, "one", OTHER), "a later read tells nothing about who wrote"


def test_a_rule_of_another_table_is_none_of_ours() -> None:
    assert known().has(TABLE, "one", A)
    assert not known().has(TABLE + 1, "one", A)


def test_only_chains_that_were_filled_bring_new_rules() -> None:
    """What others put into the second chain before we filled the first is not ours for that."""
    written = known()
    written.was_filled(TABLE, {"one": [b"c"], "two": [B, OTHER]}, {"one"})
    assert [written.has(TABLE, "one", b"c"), written.has(TABLE, "two", B)] == [True, True]
    assert not written.has(TABLE, "two", OTHER)
    assert not written.has(TABLE, "one", A)


def test_of_a_table_that_others_made_anew_only_filled_chains_are_ours() -> None:
    written = known()
    written.was_filled(TABLE + 1, {"one": [b"c"], "two": [B]}, {"one"})
    assert written.has(TABLE + 1, "one", b"c")
    assert not written.has(TABLE + 1, "two", B)


def test_a_doubted_chain_is_ours_again_when_it_was_filled() -> None:
    written = known()
    written.doubt("one")
    assert [written.has(TABLE, "one", A), written.has(TABLE, "two", B)] == [False, True]
    written.was_filled(TABLE, {"one": [A], "two": [B]}, {"two"})
    assert not written.has(TABLE, "one", A)
    written.was_filled(TABLE, {"one": [A], "two": [B]}, {"one"})
    assert written.has(TABLE, "one", A)


def test_what_is_forgotten_is_believed_but_for_doubted_chains() -> None:
    written = known()
    written.doubt("two")
    written.forget()
    assert written.has(TABLE, "one", OTHER)
    assert not written.has(TABLE, "two", B)
