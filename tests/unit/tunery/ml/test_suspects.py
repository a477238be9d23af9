from pathlib import Path

import pytest
import torch

from tunery.ml.objectives import Supervised
from tunery.ml.packed import PackedRow, PackedRows
from tunery.ml.suspects import documents_of, highest_losses, quoted

pytestmark = pytest.mark.train

BROKEN = 7_777


def row(*documents: list[int]) -> PackedRow:
    """All tokens but the first of each document are labels."""
    ids = torch.tensor([token for document in documents for token in document], dtype=torch.int32)
    first = torch.tensor([at == 0 for document in documents for at in range(len(document))])
    return PackedRow(ids, ~first, tuple(map(len, documents)))


def test_documents_of_a_row_are_kept_apart() -> None:
    packed = row([1, 2, 3], [4, 5])
    assert [part.input_ids.tolist() for part in documents_of(packed)] == [[1, 2, 3], [4, 5]]
    assert [part.is_label.tolist() for part in documents_of(packed)] == [
        [False, True, True], [False, True],
    ]  # fmt: skip


def test_what_is_no_number_comes_first_and_says_how_it_begins(tiny: tuple[Path, str]) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(tiny[0], dtype=torch.float32)
    with torch.no_grad():
        weight = model.get_output_embeddings().weight.detach().clone()
        model.get_input_embeddings().weight[BROKEN] = torch.nan
        model.get_output_embeddings().weight = torch.nn.Parameter(weight)
    rows = PackedRows([row([5, 6, 7], [9, 10]), row([8, 9], [11, BROKEN, 12]), row([1, 2])])
    state = torch.get_rng_state()
    suspects = highest_losses(Supervised(packing=True), model, rows, [0, 1], torch.device("cpu"))
    assert torch.equal(torch.get_rng_state(), state), "it would change what follows"
    assert suspects[0].row == 1
    assert suspects[0].part.input_ids.tolist() == [11, BROKEN, 12]
    losses = [suspect.loss for suspect in suspects[1:]]
    assert losses == sorted(losses, reverse=True)
    assert {suspect.row for suspect in suspects} == {0, 1}
    tokenizer = AutoTokenizer.from_pretrained(tiny[0])
    begins = " ".join(tokenizer.decode([11, BROKEN, 12], skip_special_tokens=True).split())
    assert quoted(suspects[:1], tokenizer) == f"row 1 (nan) “{begins}”"
    assert suspects[0].label == "row 1 (nan)"
