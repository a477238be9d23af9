"""Time and holds: slots share the work, and a hold has a floor per slot."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas.training import HyperParameters
from simulator.control_plane.samples import HYPER
from tests.unit.tunery.plan.samples import SMOL, base_of
from tunery.plan.time import (
    EVAL_PASSES,
    HOLD_FACTOR,
    HOLD_MS_MIN,
    collectives_ms,
    eval_ms,
    hold_of,
    pass_ms,
    streamed_eval_ms,
    train_ms,
)


@given(count=st.integers(1, 10**9), slots=st.integers(1, 32))
def test_more_slots_never_take_longer_and_more_tokens_never_shorter(count: int, slots: int) -> None:
    def train_on(tokens: int, slots: int) -> int:
        return train_ms(SMOL, HYPER, tokens, slots, "cpu", labelled=tokens // 2)

    assert train_on(count, slots + 1) <= train_on(count, slots) <= train_on(count + 1, slots)
    assert eval_ms(SMOL, slots + 1, "cpu") <= eval_ms(SMOL, slots, "cpu")


@pytest.mark.parametrize(
    "slower",
    [
        {"recompute": True},
        {"packing": False},
        {"dora": True},
        {"adaptation": "qlora"},
        {"adaptation": "full"},
    ],
    ids=str,
)
def test_training_what_makes_a_step_slower_is_in_the_estimate(slower: dict[str, Any]) -> None:
    """Recompute and rows that are not packed were estimated as if they cost nothing."""

    def trained_ms(hyper: HyperParameters) -> int:
        return train_ms(SMOL, hyper, 10**6, 1, "cpu", labelled=10**5)

    usual = trained_ms(HYPER)
    hyper = replace(HYPER, **slower)
    assert 1.1 < trained_ms(hyper) / usual < 2
    both = replace(hyper, recompute=True, packing=False)
    assert trained_ms(both) > trained_ms(hyper)


def test_muon_takes_longer_by_its_products_whatever_the_tokens_of_a_step() -> None:
    base = replace(SMOL, layers=30, inner_size=1_536)

    def more_ms(**changes: Any) -> int:
        hyper = replace(HYPER, **changes)
        both = (replace(hyper, optimizer="muon"), hyper)
        muon, usual = (train_ms(base, each, 10**6, 1, "cpu", labelled=10**5) for each in both)
        return muon - usual

    assert more_ms(rank=32) > 2 * more_ms(rank=16) > 0, "of two matrices for each layer"
    assert more_ms(adaptation="full") > 100 * more_ms(rank=16)
    assert more_ms(batch_size=2 * HYPER.batch_size) == pytest.approx(more_ms() / 2, rel=0.01)


def test_offload_takes_as_long_as_its_copies_unless_micro_batches_hide_them() -> None:
    base = base_of("Qwen2.5-7B")
    hyper = replace(HYPER, precision="bf16", max_length=2_048, recompute=True, accumulation=1)

    def trained_ms(rows: int, *, offload: bool) -> int:
        own = replace(hyper, batch_size=rows, offload=offload)
        return train_ms(base, own, 2_048_000, 1, "cuda", labelled=0)

    assert trained_ms(4, offload=True) == trained_ms(4, offload=False)
    short_ms = trained_ms(1, offload=True)
    assert short_ms > 2 * trained_ms(1, offload=False)
    copies_ms = 1_000 * 2 * pass_ms(base, hyper, "cuda")
    assert copies_ms < short_ms < copies_ms + 60_000, "and the start"


def test_offload_makes_evaluations_longer() -> None:
    base = base_of("Qwen2.5-7B")
    assert streamed_eval_ms(base, HYPER, "cuda") == 0
    own = replace(HYPER, offload=True, precision="bf16")
    usual, graded = (streamed_eval_ms(base, own, "cuda", tokens) for tokens in (0, 3_000))
    assert usual == EVAL_PASSES * pass_ms(base, own, "cuda")
    assert graded == 2 * usual
    shares = replace(own, offload=False, shard_weights=True, adaptation="full")
    assert streamed_eval_ms(base, shares, "cuda") == 0, "one device has the memory for it"
    large = base_of("Llama-3.1-70B")
    both_sides = 2 * EVAL_PASSES * pass_ms(large, shares, "cuda")
    assert streamed_eval_ms(large, shares, "cuda") == both_sides


def test_collectives_of_a_step_follow_what_ranks_send() -> None:
    base = base_of("Llama-3.1-8B")
    full = replace(HYPER, adaptation="full", precision="bf16", engine="fsdp2", accumulation=8)
    shares = replace(full, shard_weights=True)
    assert collectives_ms(base, full, 1, "cuda") == 0
    gradients, gathers = 4 * base.parameters, 2 * 2 * base.parameters
    bytes_per_ms = 300_000_000
    copied = 2 * gradients * 7 / 8 / bytes_per_ms
    assert collectives_ms(base, full, 8, "cuda") == pytest.approx(copied, abs=1)
    sharded = (gathers + gradients) * 7 / 8 / bytes_per_ms
    assert collectives_ms(base, shares, 8, "cuda") == pytest.approx(sharded, abs=1)
    assert 150 < collectives_ms(base, shares, 8, "cuda") < 250, "12,700 ms before NCCL"
    rounds = replace(shares, accumulation=16)
    assert collectives_ms(base, rounds, 8, "cuda") == pytest.approx(2 * sharded, abs=1)
    assert collectives_ms(base, shares, 8, "cpu") > 1_000 * sharded, "gloo"


def test_first_hour_07_a_tiny_model_is_estimated_by_its_vocabulary() -> None:
    """The loss of 40,000 labelled tokens was half a minute that the estimate did not know."""
    tiny = replace(SMOL, parameters=3_200_000, vocabulary=49_152)
    none = train_ms(tiny, HYPER, 40_000, 1, "cpu", labelled=0)
    all_of_them = train_ms(tiny, HYPER, 40_000, 1, "cpu", labelled=40_000)
    assert 20_000 < all_of_them - none < 40_000


def test_a_hold_has_a_floor_per_slot() -> None:
    assert hold_of(1, 2) == 2 * HOLD_MS_MIN
    assert hold_of(HOLD_MS_MIN, 1) == HOLD_FACTOR * HOLD_MS_MIN
