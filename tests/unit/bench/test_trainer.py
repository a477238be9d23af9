"""Benchmark of the trainer: input of both sides, and figures from our events."""

from pathlib import Path

import pytest

from bench.trainer import CAPACITY, documents, of_training, write_shard
from tests.unit.tunery.work.samples import CHECKPOINTED, EVENTS
from tunery.work.events import Finished, Started, StepCompleted


def test_documents_are_the_same_each_time_and_fit_a_row() -> None:
    rows = documents(50)
    assert rows == documents(50)
    assert all(8 <= len(row) <= CAPACITY for row in rows)


@pytest.mark.train
def test_the_shard_holds_each_document_once(tmp_path: Path) -> None:
    from tunery.ml.packed import read_rows

    rows = documents(50)
    write_shard(rows, tmp_path / "shard.safetensors")
    packed = read_rows([str(tmp_path / "shard.safetensors")], vocabulary=50_000)
    assert packed.n_sequences == len(rows)
    assert sum(packed.row_tokens) == sum(map(len, rows))
    assert max(packed.row_tokens) <= CAPACITY


def test_figures_leave_out_the_first_step() -> None:
    started = next(event for event in EVENTS if isinstance(event, Started))
    finished = next(event for event in EVENTS if isinstance(event, Finished))
    step = next(event for event in EVENTS if isinstance(event, StepCompleted))
    steps = [
        StepCompleted(
            step=number,
            total_steps=3,
            epoch=1.0,
            loss=step.loss,
            grad_norm=1.0,
            learning_rate=1e-3,
            mean_token_accuracy=None,
            tokens=number,
            tokens_total=3,
            tokens_per_s=speed,
            memory_bytes=1_000,
        )
        for number, speed in ((1, 1.0), (2, 100.0), (3, 200.0))
    ]
    figures = of_training([started, *steps, CHECKPOINTED, finished])
    assert (figures["tokens_s"], figures["peak_bytes"]) == (150.0, 1_000)
    assert figures["stall_ms"] == CHECKPOINTED.write_ms
