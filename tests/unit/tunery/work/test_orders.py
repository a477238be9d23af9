"""Orders to processes that have trained, as lines."""

import msgspec
import pytest

from tunery.work.orders import Order, decode_order, encode_order

ORDER = Order(spec="a b.json", folder="/w/1")


def test_an_order_is_one_line_and_comes_back() -> None:
    line = encode_order(ORDER)
    assert (line.count(b"\n"), line[-1:]) == (1, b"\n")
    assert decode_order(line) == ORDER


def test_bad_input_an_order_with_other_fields_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="module"):
        decode_order(b'{"spec": "a.json", "folder": "/w", "module": "os"}')
