"""Orders of warm processes, as lines."""

import msgspec
import pytest

from tunery.work.warm import WARM_MODULES, Order, decode_order, encode_order

ORDER = Order(module="tunery.ml.train", spec="a b.json", folder="/w/1")


def test_an_order_is_one_line_and_comes_back() -> None:
    line = encode_order(ORDER)
    assert (line.count(b"\n"), line[-1:]) == (1, b"\n")
    assert decode_order(line) == ORDER


def test_bad_input_no_other_module_can_be_ordered() -> None:
    assert WARM_MODULES == ("tunery.ml.train", "tunery.ml.score")
    line = encode_order(ORDER).replace(b"tunery.ml.train", b"os")
    with pytest.raises(msgspec.ValidationError, match="module"):
        decode_order(line)
