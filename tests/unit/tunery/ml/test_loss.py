from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from tunery.ml.loss import EXACT_SAMPLE, check_packing, label_loss
from tunery.ml.packed import PackedRows, read_rows
from tunery.work.exits import WorkError

pytestmark = pytest.mark.train
Documents = Callable[[int, int], list[list[list[int]]]]


@pytest.fixture(scope="module")
def model(tiny: tuple[Path, str]) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(tiny[0], dtype=torch.float32).eval()


@pytest.fixture
def rows(make_shard: Callable[..., Path], documents: Documents) -> PackedRows:
    return read_rows([str(make_shard(documents(3, 4)))], vocabulary=49_152)


@pytest.mark.parametrize("indices", [[0], [0, 1, 2]])
def test_it_is_the_loss_of_the_full_head(model: Any, rows: PackedRows, indices: list[int]) -> None:
    batch = rows.batch(indices)
    with torch.no_grad():
        scored = label_loss(model, batch)
        logits = model(
            input_ids=batch["input_ids"], position_ids=batch["position_ids"], use_cache=False
        ).logits
    targets = batch["labels"][:, 1:]
    kept = targets != -100
    expected = cross_entropy(logits[:, :-1][kept], targets[kept], reduction="none")
    torch.testing.assert_close(scored.nll, expected)
    torch.testing.assert_close(scored.correct, logits[:, :-1][kept].argmax(-1) == targets[kept])


def test_a_batch_without_labels_has_no_losses(model: Any, rows: PackedRows) -> None:
    batch = rows.batch([0])
    batch["labels"].fill_(-100)
    assert label_loss(model, batch).nll.sum() == 0


def test_packed_documents_do_not_see_each_other(model: Any, rows: PackedRows) -> None:
    with torch.no_grad():
        difference = check_packing(lambda batch: label_loss(model, batch).nll, rows, exact=True)
    assert difference is not None
    assert 0 <= difference < 1e-5


def see_everything(model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """The classic mistake: an all-ones attention mask."""
    targets = batch["labels"][:, 1:]
    logits = model(
        input_ids=batch["input_ids"],
        position_ids=batch["position_ids"],
        attention_mask=torch.ones_like(batch["input_ids"]),
    ).logits[:, :-1]
    kept = targets != -100
    return cross_entropy(logits[kept], targets[kept], reduction="none")


def forget_positions(model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    width = batch["input_ids"].shape[1]
    return label_loss(model, {**batch, "position_ids": torch.arange(width)[None]}).nll


def keep_a_cache(model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Less known: with a cache, restarting positions are ignored."""
    targets = batch["labels"][:, 1:]
    logits = model(
        input_ids=batch["input_ids"], position_ids=batch["position_ids"], use_cache=True
    ).logits[:, :-1]
    kept = targets != -100
    return cross_entropy(logits[kept], targets[kept], reduction="none")


@pytest.mark.parametrize("mistake", [see_everything, forget_positions, keep_a_cache])
def test_contamination_is_refused(
    model: Any, rows: PackedRows, mistake: Callable[..., torch.Tensor]
) -> None:
    with torch.no_grad(), pytest.raises(WorkError, match="see each other"):
        check_packing(lambda batch: mistake(model, batch), rows, exact=True)


def test_training_m5_long_documents_are_checked_by_their_beginnings(
    make_shard: Callable[..., Path],
) -> None:
    """Two of 1,500 tokens were not checked, and passed."""
    long = [list(range(100, 1_600)), list(range(100, 1_600))]
    rows = read_rows([str(make_shard([long]))], vocabulary=2_000)
    widths: list[int] = []

    def losses(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        widths.append(batch["input_ids"].shape[1])
        return torch.full((int((batch["labels"] != -100).sum()),), float(len(widths)))

    with pytest.raises(WorkError, match="see each other"):
        check_packing(losses, rows, exact=True)
    assert widths == [2 * EXACT_SAMPLE[1], EXACT_SAMPLE[1], EXACT_SAMPLE[1]]


def test_a_model_that_gives_no_numbers_is_named(rows: PackedRows) -> None:
    with pytest.raises(WorkError, match="not a number"):
        check_packing(lambda batch: torch.tensor([torch.nan]), rows, exact=False)


def test_one_document_has_nothing_to_be_packed_with(make_shard: Callable[..., Path]) -> None:
    rows = read_rows([str(make_shard([[[1, 2, 3]]]))], vocabulary=10)
    assert check_packing(lambda batch: torch.zeros(1), rows, exact=True) is None
