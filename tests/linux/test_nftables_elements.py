"""Elements on the wire: what is encoded is what the kernel would list, in messages that it can take."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podgate.linux.netlink import attribute, attribute_list, nested
from podgate.linux.nftables_elements import (
    SetShape,
    decode_elements,
    element_at,
    element_lists,
    encode_elements,
    verdict_value,
)
from podgate.model.machine import Family
from tests.support.nftables_states import Elements, intervals, services, verdicts

KEY_BYTES: Final[dict[Family, int]] = {"ip": 4, "ip6": 16}


def listed(elements: Elements, shape: SetShape) -> bytes:
    return bytes(4) + nested(3, *encode_elements(sorted(elements.items()), shape))


@pytest.mark.parametrize("family", ["ip", "ip6"])
@given(data=st.data())
def test_elements_survive_the_wire(family: Family, data: st.DataObject) -> None:
    for kind in (intervals(family), verdicts(family)):
        shape = SetShape(KEY_BYTES[family], is_interval=True)
        elements = data.draw(kind)
        assert dict(decode_elements([listed(elements, shape)], shape)) == dict(elements)
    shape = SetShape(KEY_BYTES[family] + 8, is_concatenation=True)
    elements = data.draw(services(family))
    assert dict(decode_elements([listed(elements, shape)], shape)) == dict(elements)


@given(data=st.data())
def test_the_order_of_a_listing_does_not_matter(data: st.DataObject) -> None:
    shape = SetShape(4, is_interval=True)
    elements = data.draw(intervals("ip"))
    (_, value), *_ = attribute_list(listed(elements, shape), 4)
    items = [attribute(kind | 0x8000, item) for kind, item in attribute_list(value)]
    shuffled = bytes(4) + nested(3, *data.draw(st.permutations(items)))
    assert dict(decode_elements([shuffled], shape)) == dict(elements)


def test_an_interval_that_reaches_the_end_has_one_end() -> None:
    shape = SetShape(4, is_interval=True)
    (encoded,) = encode_elements([(b"\x0a\0\0\0\xff\xff\xff\xff", b"")], shape)
    assert len(encoded) == 16
    (encoded,) = encode_elements([(b"\x0a\0\0\0\x0a\xff\xff\xff", b"")], shape)
    assert encoded[16 + 20 :] == b"\x0b\0\0\0"


def test_timeouts_and_comments_of_others_do_not_hide_the_value() -> None:
    plain = SetShape(4)
    key = nested(1, attribute(1, b"\x01\x02\x03\x04"))
    timeout = attribute(4, (5000).to_bytes(8, "big"))
    comment = attribute(6, b"\0\x04hey\0")
    body = bytes(4) + nested(3, nested(1, key, timeout, comment))
    assert list(decode_elements([body], plain)) == [(b"\x01\x02\x03\x04", b"")]


def test_the_catch_all_element_has_an_empty_key() -> None:
    shape = SetShape(4, is_interval=True)
    body = bytes(4) + nested(3, *encode_elements([(b"", "drop")], shape))
    assert list(decode_elements([body], shape)) == [(b"", "drop")]


def test_an_interval_of_concatenations_keeps_both_keys_in_one_element() -> None:
    shape = SetShape(8, is_interval=True, is_concatenation=True)
    key = bytes(range(16))
    encoded = list(encode_elements([(key, b"")], shape))
    assert len(encoded) == 1
    assert list(decode_elements([bytes(4) + nested(3, *encoded)], shape)) == [(key, b"")]


ALIKE = st.integers(1, 20).flatmap(
    lambda size: st.integers(0, 9).flatmap(
        lambda data: st.tuples(
            st.just(SetShape(size, data_bytes=data)),
            st.dictionaries(
                st.binary(min_size=size, max_size=size), st.binary(min_size=data, max_size=data), min_size=1
            ),
        )
    )
)


@given(ALIKE)
def test_elements_that_are_laid_out_alike_are_written_and_read_as_others(
    case: tuple[SetShape, dict[bytes, bytes]],
) -> None:
    """There is a faster way for them; it gives the same bytes, and reads them back."""
    shape, elements = case
    pairs: list[tuple[bytes, bytes | str]] = list(elements.items())
    assert b"".join(element_lists(pairs, shape)) == nested(3, *encode_elements(pairs, shape))
    bodies = [bytes(4) + each for each in element_lists(pairs, shape)]
    assert dict(decode_elements(bodies, shape)) == elements


@given(
    st.dictionaries(
        st.binary(min_size=4, max_size=4), st.sampled_from([b"abcd", b"", "drop", "goto there"]), min_size=1
    )
)
def test_elements_of_several_layouts_are_read_one_by_one(elements: dict[bytes, bytes | str]) -> None:
    shape = SetShape(4, data_bytes=4)
    bodies = [bytes(4) + each for each in element_lists(list(elements.items()), shape)]
    assert dict(decode_elements(bodies, shape)) == elements


@pytest.mark.parametrize("data", [b"", b"12345678"])
def test_many_elements_are_split_into_lists_that_an_attribute_can_hold(data: bytes) -> None:
    shape = SetShape(12, data_bytes=len(data))
    pairs: list[tuple[bytes, bytes | str]] = [(number.to_bytes(12, "big"), data) for number in range(10_000)]
    lists = list(element_lists(pairs, shape))
    assert len(lists) > 1
    assert max(map(len, lists)) < 1 << 16
    assert list(decode_elements([bytes(4) + each for each in lists], shape)) == pairs


def test_a_key_of_another_length_is_left_to_the_kernel() -> None:
    """It names what it refuses; a message that is cut off would name nothing."""
    for key, shape in ((b"abc", SetShape(4)), (b"abcd", SetShape(4, is_interval=True))):
        (encoded,) = encode_elements([(key, b"")], shape)
        assert element_at(encoded, 0) == key


def test_the_element_at_a_place_of_a_message_is_found() -> None:
    pairs: list[tuple[bytes, bytes | str]] = [(b"aaaa", b"1234"), (b"bbbb", b"5678")]
    (listed,) = element_lists(pairs, SetShape(4, data_bytes=4))
    assert element_at(listed, 4) == b"aaaa"
    assert element_at(listed, 4 + 28) == b"bbbb"
    assert element_at(listed, 0) is None
    assert element_at(listed, 6) is None
    assert element_at(listed, len(listed)) is None


@pytest.mark.parametrize("word", ["nothing", "goto", "drop there", ""])
def test_what_is_no_verdict_is_an_error(word: str) -> None:
    with pytest.raises(ValueError, match="is not a verdict"):
        verdict_value(word)
