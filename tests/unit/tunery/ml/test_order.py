from hypothesis import given
from hypothesis import strategies as st

from tunery.ml.order import plan_steps, row_order, rows_of_step, sample_rows

SEEDS = st.integers(min_value=0, max_value=2**32 - 1)


@given(SEEDS, st.integers(min_value=0, max_value=50), st.integers(min_value=0, max_value=200))
def test_every_row_once_an_epoch(seed: int, epoch: int, rows: int) -> None:
    assert sorted(row_order(seed, epoch, rows)) == list(range(rows))


def test_the_order_is_fixed_for_ever() -> None:
    assert row_order(42, 0, 8) == [3, 6, 0, 7, 2, 1, 5, 4]
    assert row_order(42, 1, 8) != row_order(42, 0, 8)
    assert row_order(43, 0, 8) != row_order(42, 0, 8)


@given(
    st.lists(st.integers(min_value=1, max_value=512), min_size=1, max_size=40),
    st.integers(min_value=1, max_value=4),
    st.integers(min_value=1, max_value=9),
    SEEDS,
)
def test_committed_tokens_add_up(
    row_tokens: list[int], n_epochs: int, rows_per_step: int, seed: int
) -> None:
    plan = plan_steps(row_tokens, n_epochs=n_epochs, rows_per_step=rows_per_step, seed=seed)
    assert plan.total_steps == plan.steps_per_epoch * n_epochs
    assert plan.tokens_after(0) == 0
    assert plan.tokens_after(plan.total_steps) == plan.tokens_total == n_epochs * sum(row_tokens)
    assert plan.tokens_after(plan.steps_per_epoch) == sum(row_tokens)
    assert all(a < b for a, b in zip(plan.cumulative, plan.cumulative[1:], strict=False))


def test_fewer_steps_are_the_first_ones() -> None:
    whole = plan_steps([10, 20, 30, 40], n_epochs=2, rows_per_step=1, seed=3)
    few = plan_steps([10, 20, 30, 40], n_epochs=2, rows_per_step=1, seed=3, max_steps=5)
    assert few.cumulative == whole.cumulative[:5]
    assert few.tokens_total == few.tokens_after(5) < whole.tokens_total
    more = plan_steps([10, 20, 30, 40], n_epochs=2, rows_per_step=1, seed=3, max_steps=99)
    assert more == whole


def test_training_m6_a_sample_is_fixed_and_not_the_first_rows() -> None:
    assert sample_rows(3, 32) == [0, 1, 2]
    sample = sample_rows(1_000, 32)
    assert sample == sample_rows(1_000, 32) == sorted(set(sample))
    assert len(sample) == 32
    assert sum(row >= 500 for row in sample) in range(8, 25)


def test_the_rows_of_all_steps_are_those_of_the_epochs() -> None:
    steps = [rows_of_step(7, step, n_rows=5, rows_per_step=2) for step in range(1, 7)]
    assert [len(rows) for rows in steps] == [2, 2, 1, 2, 2, 1]
    assert [row for rows in steps[:3] for row in rows] == row_order(7, 0, 5)
    assert [row for rows in steps[3:] for row in rows] == row_order(7, 1, 5)
