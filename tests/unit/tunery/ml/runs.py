"""The state of an attempt without a model: what the parts around the training loop look at."""

import io
import time
from pathlib import Path

from msgspec.structs import replace

from tests.unit.tunery.ml.trainings import HYPER
from tunery.ml.events import EventWriter
from tunery.ml.order import plan_steps
from tunery.ml.packed import PackedRow, PackedRows
from tunery.ml.training_run import TrainingRun
from tunery.work.spec import Hyper, TrainSpec


def a_run(
    out_dir: Path,
    hyper: Hyper = HYPER,
) -> TrainingRun:
    """Six rows of four tokens, two rows a step, two epochs: six steps."""
    import torch

    ids = torch.arange(4, dtype=torch.int32)
    rows = PackedRows([PackedRow(ids, ids > 1, (4,)) for _ in range(6)])
    spec = TrainSpec(
        base_dir="base",
        base_id="tiny-llama",
        base_sha256="0" * 64,
        train_shards=(),
        out_dir=str(out_dir),
        hyper=replace(hyper),
        checkpoint_every_steps=100,
        checkpoint_each_epoch=False,
    )
    return TrainingRun(
        spec=spec,
        hyper=spec.hyper,
        rows=rows,
        valid=rows,
        plan=plan_steps(
            rows.row_tokens, n_epochs=hyper.n_epochs, rows_per_step=2, seed=hyper.seed, max_steps=0
        ),
        fingerprint={"base": "0" * 64},
        environment={"threads": "1"},
        events=EventWriter(io.BytesIO(), time.monotonic()),
        must_stop=lambda: False,
    )
