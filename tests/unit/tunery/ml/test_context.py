"""Parts of rows: which tokens a rank has, and that attention of parts is that of whole rows."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.functional import scaled_dot_product_attention

from tunery.ml import context
from tunery.ml.attention import NAME, check_divisible
from tunery.ml.context import IGNORED, RowPart, attend_part, take_part
from tunery.work.exits import WorkError

pytestmark = pytest.mark.train

LENGTHS = (3, 9, 1, 5)  # of documents in a row of 18 tokens


def positions() -> torch.Tensor:
    return torch.cat([torch.arange(length) for length in LENGTHS])[None]


def parts_of(batch: dict[str, Any], count: int, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    monkeypatch.setattr(dist, "get_world_size", lambda _: count)
    parts = []
    for rank in range(count):
        monkeypatch.setattr(dist, "get_rank", lambda _, rank=rank: rank)
        parts.append(take_part(batch, None))
    return parts


@pytest.mark.parametrize("count", [2, 4])
def test_each_token_is_in_one_part_with_its_position_and_what_follows_it(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = sum(LENGTHS)
    ids = torch.arange(100, 100 + tokens)[None]
    batch = {"input_ids": ids, "labels": ids.clone(), "position_ids": positions()}
    batch["labels"][positions() == 0] = IGNORED  # what begins a document is no label
    seen: dict[int, tuple[int, int]] = {}
    pairs = []
    for own, part in parts_of(batch, count, monkeypatch):
        assert own["labels"].shape[1] == own["input_ids"].shape[1] + 1
        row = zip(
            part.tokens,
            own["position_ids"][0].tolist(),
            own["labels"][0, 1:].tolist(),
            strict=True,
        )
        seen |= {index: (position, label) for index, position, label in row}
        pairs.append(sum(index + 1 for index in part.tokens))
    assert sorted(seen) == list(range(tokens + -tokens % (2 * count)))
    for index in range(tokens):
        follows = int(batch["labels"][0, index + 1]) if index + 1 < tokens else IGNORED
        assert seen[index] == (int(positions()[0, index]), follows)
    assert all(label == IGNORED for index, (_, label) in seen.items() if index >= tokens)
    assert len({*pairs}) == 1, "all ranks have as many pairs of tokens, were it one document"


def test_a_model_with_a_window_is_refused_with_what_works() -> None:
    config = SimpleNamespace(_attn_implementation=NAME, sliding_window=4096, model_type="mistral")
    with pytest.raises(WorkError, match="rows of mistral are not divided") as refused:
        check_divisible(SimpleNamespace(config=config))
    assert refused.value.advice == "Set context_parallel to 1."


def varlen_attn(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *sizes: Any,
    window_size: tuple[int, int],
    **options: Any,
) -> torch.Tensor:
    """torch's function for GPUs as it is documented: the last query of each document sees all."""
    of_queries, of_keys, longest_queries, longest_keys = sizes
    assert window_size == (-1, 0)
    outputs = []
    for begins, keys in zip(pairwise(of_queries), pairwise(of_keys), strict=True):
        count, seen = int(begins[1] - begins[0]), int(keys[1] - keys[0])
        assert count <= longest_queries
        assert seen <= longest_keys
        mask = torch.ones(count, seen, dtype=torch.bool).tril(seen - count)
        heads = [query[slice(*begins)], key[slice(*keys)], value[slice(*keys)]]
        q, k, v = (each.transpose(0, 1)[None] for each in heads)
        output = scaled_dot_product_attention(q, k, v, attn_mask=mask, **options)
        outputs.append(output[0].transpose(0, 1))
    return torch.cat(outputs)


@pytest.mark.parametrize("kernel", ["documents", "at_once"])
def test_attention_of_parts_is_that_of_the_whole_row_and_so_are_its_gradients(
    kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With grouped queries, as of two ranks; and as a GPU's kernel is called."""
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", varlen_attn)
    monkeypatch.setattr(context, "_attend_documents", getattr(context, f"_attend_{kernel}"))
    torch.manual_seed(1)
    tokens, cuts = 20, [0, 3, 12, 13, 18, 20]
    query, key, value = (
        torch.randn(1, heads, tokens, 8, requires_grad=True) for heads in (4, 2, 2)
    )
    same = torch.cat([torch.full((b - a,), a) for a, b in pairwise(cuts)])
    mask = (same[:, None] == same) & torch.ones(tokens, tokens, dtype=torch.bool).tril()
    whole = scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=True)
    wanted = torch.autograd.grad(whole.square().sum(), (query, key, value))

    width = tokens // 4
    chunks = [
        (range(at * width, (at + 1) * width), range((3 - at) * width, (4 - at) * width))
        for at in range(2)
    ]
    indices = [torch.tensor([*first, *second]) for first, second in chunks]

    def gathered(heads: torch.Tensor, *_: Any) -> torch.Tensor:
        source = key if heads.data_ptr() in of_keys else value
        return torch.cat([source[:, :, of_rank] for of_rank in indices])

    monkeypatch.setattr(context, "all_gather_single", gathered)
    total = torch.zeros(())
    for chunk, of_rank in zip(chunks, indices, strict=True):
        keys = key[:, :, of_rank].contiguous()
        of_keys = {keys.data_ptr()}
        part = RowPart(None, chunk, tuple(cuts))
        output = attend_part(query[:, :, of_rank], keys, value[:, :, of_rank], part, None)
        torch.testing.assert_close(output, whole[:, :, of_rank].transpose(1, 2))
        total = total + output.square().sum()
    for got, want in zip(torch.autograd.grad(total, (query, key, value)), wanted, strict=True):
        torch.testing.assert_close(got, want)
