from hypothesis import given
from hypothesis import strategies as st

from tunery.ml.order import plan, row_order

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
    made = plan(row_tokens, n_epochs=n_epochs, rows_per_step=rows_per_step, seed=seed)
    assert made.total_steps == made.steps_per_epoch * n_epochs
    assert made.tokens_after(0) == 0
    assert made.tokens_after(made.total_steps) == made.tokens_total == n_epochs * sum(row_tokens)
    assert made.tokens_after(made.steps_per_epoch) == sum(row_tokens)
    assert all(a < b for a, b in zip(made.cumulative, made.cumulative[1:], strict=False))
