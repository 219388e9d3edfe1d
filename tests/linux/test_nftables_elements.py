"""Elements on the wire: what is encoded is what the kernel would list, in messages that it can take."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podgate.linux.netlink import attribute, attribute_list, nested
from podgate.linux.nftables_elements import Shape, decode_elements, encode_elements
from podgate.model.machine import Family
from tests.support.nftables_states import Elements, intervals, services, verdicts

KEY_BYTES: Final[dict[Family, int]] = {"ip": 4, "ip6": 16}


def listed(elements: Elements, shape: Shape) -> bytes:
    return bytes(4) + nested(3, *encode_elements(sorted(elements.items()), shape))


@pytest.mark.parametrize("family", ["ip", "ip6"])
@given(data=st.data())
def test_elements_survive_the_wire(family: Family, data: st.DataObject) -> None:
    for kind in (intervals(family), verdicts(family)):
        shape = Shape(KEY_BYTES[family], is_interval=True)
        elements = data.draw(kind)
        assert dict(decode_elements([listed(elements, shape)], shape)) == dict(elements)
    shape = Shape(KEY_BYTES[family] + 8, is_concatenation=True)
    elements = data.draw(services(family))
    assert dict(decode_elements([listed(elements, shape)], shape)) == dict(elements)


@given(data=st.data())
def test_the_order_of_a_listing_does_not_matter(data: st.DataObject) -> None:
    shape = Shape(4, is_interval=True)
    elements = data.draw(intervals("ip"))
    (_, value), *_ = attribute_list(listed(elements, shape), 4)
    items = [attribute(kind | 0x8000, item) for kind, item in attribute_list(value)]
    shuffled = bytes(4) + nested(3, *data.draw(st.permutations(items)))
    assert dict(decode_elements([shuffled], shape)) == dict(elements)


def test_an_interval_that_reaches_the_end_has_one_end() -> None:
    shape = Shape(4, is_interval=True)
    (encoded,) = encode_elements([(b"\x0a\0\0\0\xff\xff\xff\xff", b"")], shape)
    assert len(encoded) == 16
    (encoded,) = encode_elements([(b"\x0a\0\0\0\x0a\xff\xff\xff", b"")], shape)
    assert encoded[16 + 20 :] == b"\x0b\0\0\0"


def test_timeouts_and_comments_of_others_do_not_hide_the_value() -> None:
    plain = Shape(4)
    key = nested(1, attribute(1, b"\x01\x02\x03\x04"))
    timeout = attribute(4, (5000).to_bytes(8, "big"))
    comment = attribute(6, b"\0\x04hey\0")
    body = bytes(4) + nested(3, nested(1, key, timeout, comment))
    assert list(decode_elements([body], plain)) == [(b"\x01\x02\x03\x04", b"")]


def test_the_catch_all_element_has_an_empty_key() -> None:
    shape = Shape(4, is_interval=True)
    body = bytes(4) + nested(3, *encode_elements([(b"", "drop")], shape))
    assert list(decode_elements([body], shape)) == [(b"", "drop")]


def test_an_interval_of_concatenations_keeps_both_keys_in_one_element() -> None:
    shape = Shape(8, is_interval=True, is_concatenation=True)
    key = bytes(range(16))
    encoded = list(encode_elements([(key, b"")], shape))
    assert len(encoded) == 1
    assert list(decode_elements([bytes(4) + nested(3, *encoded)], shape)) == [(key, b"")]
