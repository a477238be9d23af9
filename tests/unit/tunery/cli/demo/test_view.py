from hypothesis import given
from hypothesis import strategies as st

from tunery.cli.demo.view import BARS, SPARK_WIDTH, spark


@given(st.lists(st.floats(0.01, 10), min_size=1, max_size=200))
def test_a_curve_fits_and_shows_its_extremes(values: list[float]) -> None:
    drawn = spark(values)
    assert len(drawn) == min(len(values), SPARK_WIDTH)
    assert set(drawn) <= set(BARS)
    if len(values) <= SPARK_WIDTH and max(values) > min(values):
        assert drawn[values.index(max(values))] == BARS[-1]
        assert drawn[values.index(min(values))] == BARS[0]
