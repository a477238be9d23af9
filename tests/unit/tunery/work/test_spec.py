"""Hyper-parameters of the log in the units of the training loop."""

import pytest

from schemas.training import HyperParameters
from tunery.work.spec import Engine, Hyper, Weights


def test_integers_of_the_log_become_the_nearest_floats() -> None:
    hyper = HyperParameters(
        n_epochs=2,
        batch_size=3,
        learning_rate_ppb=1_300_001,
        rank=4,
        alpha=8,
        dropout_ppm=50_000,
        warmup_ppm=62_500,
        weight_decay_ppm=1,
        max_length=128,
        seed=5,
        accumulation=3,
    )
    assert Hyper.from_log(hyper) == Hyper(
        n_epochs=2,
        batch_size=1,
        accumulation=3,
        learning_rate=0.001300001,
        rank=4,
        alpha=8,
        dropout=0.05,
        warmup=0.0625,
        weight_decay=1e-6,
        max_length=128,
        seed=5,
    )


@pytest.mark.parametrize(("stage", "weights"), [(3, "copied"), (2, "sharded")])
def test_review2_d2_a_stage_of_zero_and_weights_do_not_contradict_each_other(
    stage: int, weights: Weights
) -> None:
    with pytest.raises(ValueError, match="zero_stage 3 shards weights"):
        Engine(name="deepspeed", zero_stage=stage, weights=weights)  # type: ignore[arg-type]  # 1 to 3
    assert Engine(name="deepspeed", zero_stage=3, weights="sharded").is_sharded
