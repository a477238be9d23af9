"""Attention of packed rows on a processor: each document by itself, without a mask.

Documents of a row do not see each other. With a mask that says so, every pair of tokens of the row
is computed, and most of them are thrown away: with documents of 100 tokens in rows of 512, nine of
ten. Here each document has its own causal attention. Where it is not told where documents begin, it
is transformers' own with the mask.

Rows mean nothing to it, so that all of a batch may be one: then the output head is computed on each
labelled token, and not on each column that has a label in any row.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME: Final = "tunery_documents"  # in the configuration of a loaded model
KEYWORD: Final = "document_bounds"  # of a model's call: what `document_bounds` returns
# Families whose layers hand keywords on to their attention, each shown by a test.
FAMILIES: Final = frozenset({"llama", "qwen2", "qwen3", "mistral"})

UNUSED_MASK: Final = torch.empty(
    1, 1, 1, 1
)  # given one of four dimensions, transformers makes none

Bounds: TypeAlias = Sequence[Sequence[int]]


def use_document_attention(model: Any, device: torch.device) -> None:
    """Have a model take it, where its family is known to and it computes on a processor."""
    config = model.config
    if device.type != "cpu" or config.model_type not in FAMILIES:
        return
    if config._attn_implementation != "sdpa":
        return
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model.set_attn_implementation(NAME)


def document_bounds(model: Any, position_ids: Tensor) -> dict[str, Any]:
    """Keywords of a call on packed rows; none for a model without this attention.

    position_ids: int64 [rows, tokens], 0 where a document begins
    """
    if model.config._attn_implementation != NAME:
        return {}
    width = position_ids.shape[1]
    starts = [(row == 0).nonzero().squeeze(1).tolist() for row in position_ids]
    keywords: dict[str, Any] = {KEYWORD: [[*row, width] for row in starts]}
    return keywords | {"attention_mask": UNUSED_MASK} if _never_masks(model) else keywords


def join_rows(model: Any, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The batch in one row, where that changes nothing but the work; else as it is.

    batch: tensors [rows, tokens]; the first token of a row is no label
    """
    if not _never_masks(model):
        return dict(batch)
    return {name: tensor.reshape(1, -1) for name, tensor in batch.items()}


def _never_masks(model: Any) -> bool:
    """Whether every layer has this attention, and none a window, for which it would need a mask."""
    config = model.config
    has_window = getattr(config, "sliding_window", None) is not None
    return config._attn_implementation == NAME and not has_window


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attention as transformers asks for it: heads [rows, heads, tokens, width] to their output
    [rows, tokens, heads, width].
    """
    bounds: Bounds | None = options.pop(KEYWORD, None)
    window = options.get("sliding_window")
    if bounds is None or (window is not None and window < query.shape[2]):
        masked: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **options
        )
        return masked
    rows = []
    for row, cuts in enumerate(bounds):
        lengths = [end - start for start, end in pairwise(cuts)]
        # Parts of one split: the gradient of a slice is as large as the row, most of it zeros.
        whole = (heads[row, None] for heads in (query, key, value))
        parts = (torch.split(heads, lengths, dim=2) for heads in whole)
        documents = [
            scaled_dot_product_attention(
                queries,
                keys,
                values,
                dropout_p=dropout,
                is_causal=True,
                scale=scaling,
                enable_gqa=True,
            )
            for queries, keys, values in zip(*parts, strict=True)
        ]
        rows.append(torch.cat(documents, dim=2))
    return torch.cat(rows).transpose(1, 2).contiguous(), None
