"""Hyper-parameters of the log in the units of the training loop."""

from schemas.training import HyperParameters
from tunery.work.spec import Hyper


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
