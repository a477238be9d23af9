"""How often an epoch sees the rows of a weighted file."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.units import PPM
from tunery.data.mixing import times_seen

TRAINS = st.lists(st.booleans(), min_size=1, max_size=60)
WEIGHTS = st.integers(1_000, 10 * PPM)


@given(trains=TRAINS, weight_ppm=WEIGHTS, key=st.text(max_size=8))
def test_rows_that_train_are_seen_as_often_as_the_weight_says(
    trains: list[bool], weight_ppm: int, key: str
) -> None:
    rows = np.array(trains)
    times = times_seen(rows, weight_ppm, key)
    assert not times[~rows].any()
    count = int(rows.sum())
    if count:
        wanted = (count * weight_ppm + PPM // 2) // PPM
        assert times.sum() == max(1, wanted)
        of_rows = times[rows]
        assert of_rows.max() - of_rows.min() <= 1
    assert times.tolist() == times_seen(rows, weight_ppm, key).tolist()


@given(trains=TRAINS, weights=st.tuples(WEIGHTS, WEIGHTS))
def test_a_larger_weight_never_drops_a_row(trains: list[bool], weights: tuple[int, int]) -> None:
    smaller, larger = (times_seen(np.array(trains), weight, "k") for weight in sorted(weights))
    assert (smaller <= larger).all()


@pytest.mark.parametrize(("weight_ppm", "seen"), [(PPM, 10), (3 * PPM, 30), (300_000, 3)])
def test_other_files_and_seeds_draw_other_rows(weight_ppm: int, seen: int) -> None:
    drawn = [times_seen(np.full(10, True), weight_ppm, key) for key in ("42:a", "42:b", "7:a")]
    assert {int(times.sum()) for times in drawn} == {seen}
    differ = len({tuple(times.tolist()) for times in drawn}) > 1
    assert differ == (seen % 10 != 0)
