from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tunery.ml.loss import label_loss
from tunery.ml.objectives import Supervised, mean_scores
from tunery.ml.packed import PackedRows, read_rows

pytestmark = pytest.mark.train
Documents = Callable[[int, int], list[list[list[int]]]]
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model(tiny: tuple[Path, str]) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(tiny[0], dtype=torch.float32).eval()


@pytest.fixture
def rows(make_shard: Callable[..., Path], documents: Documents) -> PackedRows:
    return read_rows([str(make_shard(documents(3, 4)))], vocabulary=49_152)


def test_the_mean_is_over_labels_and_leaves_the_generators_alone(
    model: Any, rows: PackedRows
) -> None:
    state = torch.get_rng_state()
    first = mean_scores(Supervised(packing=True), model, rows, rows_max=1, device=CPU)
    assert torch.equal(torch.get_rng_state(), state)
    with torch.no_grad():
        assert first.loss == pytest.approx(float(label_loss(model, rows.batch([0])).nll.mean()))
    assert mean_scores(Supervised(packing=True), model, rows, rows_max=9, device=CPU) != first


def test_first_hour_12_the_accuracy_is_over_labels(model: Any, rows: PackedRows) -> None:
    means = mean_scores(Supervised(packing=True), model, rows, rows_max=1, device=CPU)
    with torch.no_grad():
        scored = label_loss(model, rows.batch([0]))
    assert means.loss == pytest.approx(float(scored.nll.mean()))
    accuracy = float(scored.correct.double().mean())
    assert means.figures == {"mean_token_accuracy": pytest.approx(accuracy)}


def test_training_a_batch_without_labels_has_no_means(model: Any, rows: PackedRows) -> None:
    unlabelled = PackedRows(
        [type(row)(row.input_ids, torch.zeros_like(row.is_label), row.lengths) for row in rows.rows]
    )
    means = mean_scores(Supervised(packing=False), model, unlabelled, rows_max=1, device=CPU)
    assert (means.loss, means.figures) == (None, {})
