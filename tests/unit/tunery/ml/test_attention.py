"""Attention of packed rows: each document by itself is what the mask says, in fewer products."""

from pathlib import Path
from typing import Any

import pytest

from tests.bases import write_family

pytestmark = pytest.mark.train
LENGTHS = ((5, 1, 9, 3), (12, 6))


def packed(lengths: tuple[tuple[int, ...], ...]) -> dict[str, Any]:
    import torch

    positions = [torch.cat([torch.arange(length) for length in row]) for row in lengths]
    ids = torch.arange(sum(map(len, positions))).view(len(lengths), -1) % 90 + 5
    return {"input_ids": ids, "position_ids": torch.stack(positions), "use_cache": False}


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "mistral"])
def test_documents_alone_have_the_logits_and_gradients_of_the_mask(
    family: str, tmp_path: Path
) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    from tunery.ml.attention import FAMILIES, NAME, document_bounds, use_document_attention

    assert family in FAMILIES
    folder = write_family(family, tmp_path / family)
    batch = packed(LENGTHS)
    results = []
    for alone in (False, True):
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        assert document_bounds(model, batch["position_ids"]) == {}
        if alone:
            use_document_attention(model, torch.device("cpu"))
            assert model.config._attn_implementation == NAME
        bounds = document_bounds(model, batch["position_ids"])
        assert bool(bounds) == alone
        logits = model(**batch, **bounds).logits
        logits.square().mean().backward()
        gradient = model.get_input_embeddings().weight.grad
        results.append((logits.detach(), gradient))
    torch.testing.assert_close(results[1][0], results[0][0], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(results[1][1], results[0][1], atol=1e-6, rtol=1e-3)


def test_bases_documents_of_gpt_oss_stay_apart_in_every_layer(tmp_path: Path) -> None:
    import torch

    from tests.families import write_tiny
    from tunery.ml.attention import WITHOUT_POSITIONS, use_document_attention
    from tunery.ml.model import load_base
    from tunery.ml.small_models import SMALL_SCALE

    assert {"gpt_oss"} == WITHOUT_POSITIONS
    folder = write_tiny("gpt_oss", tmp_path / "base", scale=SMALL_SCALE)
    cpu = torch.device("cpu")
    model = load_base(str(folder), torch.float32, cpu, four_bits=False).eval()
    window = model.config.sliding_window
    lengths = (window + 9, 7, 30)
    batch = packed((lengths,))
    with torch.no_grad():
        alone = [
            model(input_ids=ids, position_ids=torch.arange(ids.shape[1])[None]).logits
            for ids in batch["input_ids"].split(lengths, dim=1)
        ]
        use_document_attention(model, cpu)
        together = model(**batch).logits
        written = model.generate(batch["input_ids"][:, :9], max_new_tokens=2, do_sample=False)
    torch.testing.assert_close(together, torch.cat(alone, dim=1), atol=1e-4, rtol=1e-4)
    assert written.shape == (1, 11)


@pytest.mark.parametrize("window", [None, 8])
def test_labels_of_several_rows_have_the_losses_of_each_row_alone(
    window: int | None, tmp_path: Path
) -> None:
    """One row of logits for each label; layers with a window keep rows and their mask."""
    import torch
    from transformers import AutoModelForCausalLM

    from tunery.ml.attention import NAME, use_document_attention
    from tunery.ml.loss import label_loss
    from tunery.ml.packed import IGNORED

    folder = write_family("mistral", tmp_path / "mistral")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, sliding_window=window)
    use_document_attention(model, torch.device("cpu"))
    assert model.config._attn_implementation == NAME
    batch = {name: tensor for name, tensor in packed(LENGTHS).items() if name != "use_cache"}
    is_label = (batch["position_ids"] > 0) & (batch["input_ids"] % 3 > 0)
    batch["labels"] = torch.where(is_label, batch["input_ids"], IGNORED)
    batch["sequences"] = torch.arange(2)[:, None].expand_as(batch["labels"])
    scored: list[int] = []
    model.lm_head.register_forward_hook(
        lambda _, inputs, output: scored.append(output[..., 0].numel())
    )
    together = label_loss(model, batch)
    alone = [
        label_loss(model, {name: tensor[[row]] for name, tensor in batch.items()})
        for row in range(len(LENGTHS))
    ]
    torch.testing.assert_close(together.nll, torch.cat([loss.nll for loss in alone]))
    assert together.sequences is not None
    assert together.sequences.tolist() == sorted(together.sequences.tolist())
    labels = int(is_label.sum())
    assert (scored[0] == labels) == (window is None)
    assert sum(scored[1:]) == labels


@pytest.mark.gpu
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "mistral"])
def test_on_a_gpu_documents_at_once_have_the_logits_and_gradients_of_the_mask(
    family: str, tmp_path: Path
) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    from tunery.ml.attention import NAME, document_bounds, use_document_attention
    from tunery.ml.model import use_fused_kernels

    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    gpu = torch.device("cuda")
    folder = write_family(family, tmp_path / family)
    batch = packed(LENGTHS)
    tensors = {name: batch[name].to(gpu) for name in ("input_ids", "position_ids")}
    results = []
    for kind in ("exact", "mask", "at once", "fused"):  # the last one changes those after it
        dtype = torch.float32 if kind == "exact" else torch.bfloat16
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(gpu)
        if kind == "fused":
            use_fused_kernels(model)
        if kind in ("at once", "fused"):
            use_document_attention(model, gpu)
            assert model.config._attn_implementation == NAME
        bounds = document_bounds(model, tensors["position_ids"])
        logits = model(**tensors, use_cache=False, **bounds).logits
        logits.square().mean().backward()
        gradient = model.get_input_embeddings().weight.grad
        results.append((logits.detach().float(), gradient.float()))
    exact, *others = results
    for which in (0, 1):
        usual, *errors = (
            float((other[which] - exact[which]).norm() / exact[which].norm()) for other in others
        )
        assert max(errors) < 2 * usual + 1e-3
