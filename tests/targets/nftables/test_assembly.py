"""Code as bytes: what no bytes stand for is an error. That the kernel reads the others as meant: tests/kernel."""

import pytest

from podgate.linux.netlink import attribute_list, attributes, string
from podgate.targets.nftables.assembly import assembled, rule_comment
from podgate.targets.nftables.code import Bitwise, Code, Compare, Go, Immediate, Lookup, Meta, Payload

NONE: dict[str, tuple[Code, str]] = {
    "a register above the last one": ((Meta("mark", 16),), "16 is no register: they are 0 to 15"),
    "a register below the first one": ((Compare(-1, b"\0"),), "-1 is no register"),
    "operands of two lengths": ((Bitwise(0, b"\xff", bytes(2), 0),), "the mask has 1 bytes and the other operand 2"),
    "a verdict that is none": ((Go("go on"),), "'go on' is not a verdict"),
    "a jump to nowhere": ((Go("jump"),), "'jump' is not a verdict"),
}


@pytest.mark.parametrize(("code", "message"), NONE.values(), ids=NONE)
def test_what_cannot_be_said_is_an_error(code: Code, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        assembled(code)


def test_a_rule_is_a_list_of_names_and_data() -> None:
    code = (Payload("network", 16, 4, 0), Lookup("keep", 0), Go("accept"))
    found = [attributes(value) for _, value in attribute_list(assembled(code))]
    assert [string(each[1]) for each in found] == ["payload", "lookup", "immediate"]
    payload = attributes(found[0][2])
    assert {kind: int.from_bytes(value, "big") for kind, value in payload.items()} == {1: 8, 2: 1, 3: 16, 4: 4}


def test_equal_code_gives_equal_bytes_and_other_code_others() -> None:
    assert assembled((Immediate(b"\1", 0),)) == assembled((Immediate(b"\1", 0),))
    assert assembled((Immediate(b"\1", 0),)) != assembled((Immediate(b"\1", 1),))


def test_a_comment_has_its_length_and_a_closing_zero() -> None:
    assert rule_comment("why [1a2b]") == b"\0\x0bwhy [1a2b]\0"
