"""Several tests at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunery.gate.decision import adjust


def test_holm_known_values() -> None:
    """The example of R's manual: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm")."""
    assert adjust((0.01, 0.04, 0.03, 0.005)) == pytest.approx((0.03, 0.06, 0.06, 0.02))
    assert adjust(()) == ()
    assert adjust((0.2,)) == (0.2,)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_keeps_the_order_and_lies_between_p_and_bonferroni(p_values: list[float]) -> None:
    adjusted = adjust(p_values)
    for p, after in zip(p_values, adjusted, strict=True):
        assert p <= after <= min(1.0, max(p_values) if after > len(p_values) * p else 1.0)
    ranked = sorted(zip(p_values, adjusted, strict=True))
    assert [after for _, after in ranked] == sorted(adjusted)
