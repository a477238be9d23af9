"""Orders of warm processes, as lines."""

import msgspec
import pytest

from tunery.work.warm import SCORE, WARM_MODULES, Order, decode_order, encode_order

ORDER = Order(module=SCORE, spec="a b.json", folder="/w/1")


def test_an_order_is_one_line_and_comes_back() -> None:
    line = encode_order(ORDER)
    assert (line.count(b"\n"), line[-1:]) == (1, b"\n")
    assert decode_order(line) == ORDER


def test_bad_input_no_other_module_can_be_ordered() -> None:
    assert all(module.startswith("tunery.ml.") for module in WARM_MODULES)
    line = encode_order(ORDER).replace(SCORE.encode(), b"os")
    with pytest.raises(msgspec.ValidationError, match="module"):
        decode_order(line)
