"""Micro-batches divide the rows of a step without remainder."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from simulator.control_plane.samples import HYPER
from tunery.plan.micro_batches import (
    halvings,
    rows_at_once,
    shared_among,
    with_at_most,
    with_rows_at_once,
    with_smaller_micro_batches,
)


def test_training_m12_rows_at_once_are_halved_down_to_one() -> None:
    hyper, sizes = replace(HYPER, batch_size=12), [12]
    while (smaller := with_smaller_micro_batches(hyper)) is not None:
        hyper = smaller
        sizes.append(rows_at_once(hyper))
    assert sizes == [12, 6, 3, 1]
    assert halvings(replace(HYPER, batch_size=12)) == 3


@given(st.integers(1, 256), st.integers(1, 300))
def test_training_m12_a_step_has_the_same_rows_however_it_is_divided(batch: int, rows: int) -> None:
    whole = replace(HYPER, batch_size=batch)
    divided = with_rows_at_once(whole, rows)
    assert divided.batch_size == batch
    assert rows_at_once(divided) * divided.accumulation == batch
    assert rows_at_once(divided) <= rows
    assert halvings(divided) <= halvings(whole) <= 8


@given(st.integers(1, 256), st.integers(1, 256), st.integers(1, 64))
def test_every_rank_has_a_part_of_a_step_if_there_are_enough_rows(
    batch: int, rows: int, ranks: int
) -> None:
    hyper = with_rows_at_once(replace(HYPER, batch_size=batch), rows)
    shared = shared_among(hyper, ranks)
    assert (shared is None) == (batch < ranks)
    if shared is None:
        return
    assert shared.batch_size == batch
    assert shared.accumulation >= max(ranks, hyper.accumulation)
    busiest = rows_at_once(shared) * -(-shared.accumulation // ranks)
    assert busiest == -(-batch // ranks), "no other division is faster"
    if ranks == 1:
        assert shared == hyper


def test_micro_batches_that_are_small_enough_stay_as_they_are() -> None:
    divided = replace(HYPER, batch_size=12, accumulation=4)
    assert with_at_most(divided, 3) is with_at_most(divided, 100) is divided
    assert rows_at_once(with_at_most(divided, 2)) == 2
