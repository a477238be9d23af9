"""Attention of packed rows: each document by itself, without a mask.

Documents of a row do not see each other. With a mask that says so, every pair of tokens of the row
is computed, and most of them are thrown away: with documents of 100 tokens in rows of 512, nine of
ten. Here each document has its own causal attention: on a processor one after the other, on an
accelerator all at once, by the kernel of FlashAttention for sequences of several lengths (Dao,
arXiv:2307.08691), whose gradients are added in a fixed order. Where it does not know where
documents begin, it is transformers' own with the mask.

Rows mean nothing to it, so that all of a batch may be one: then the output head is computed on each
labelled token, and not on each column that has a label in any row.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import create_masks_for_generate, sdpa_mask

from tunery.ml.context import PART, RowPart, attend_part
from tunery.ml.kernels import kernels_of
from tunery.work.exits import WorkError

NAME: Final = "tunery_documents"  # in the configuration of a loaded model
KEYWORD: Final = "document_bounds"  # of a model's call: what `document_bounds` returns
# Families whose layers hand keywords on to their attention, each shown by a test.
FAMILIES: Final = frozenset({"llama", "qwen2", "qwen3", "mistral"})

# Families that do not tell transformers where documents begin when it makes their masks.
WITHOUT_POSITIONS: Final = frozenset({"gpt_oss"})
UNUSED_MASK: Final = torch.zeros(1, 1, 1, 1)  # transformers takes it as it is, and makes none
# What the kernel for accelerators is built for.
KERNEL_HEAD_WIDTH_MAX: Final = 256


@dataclass(frozen=True)
class Joined:
    """Documents of all rows, one row after the other, on an accelerator."""

    cuts: Tensor  # int32 [documents + 1], tokens before each, and all
    longest: int  # tokens of the longest document


Bounds: TypeAlias = Sequence[Sequence[int]] | Joined | RowPart


def use_document_attention(model: Any, device: torch.device) -> None:
    """Make a model use this attention, if its family supports it and its device has a kernel."""
    config = model.config
    if config.model_type in WITHOUT_POSITIONS:
        model.get_decoder().register_forward_pre_hook(_give_masks, with_kwargs=True)
    if config.model_type not in FAMILIES or config._attn_implementation != "sdpa":
        return
    if device.type != "cpu" and not _has_kernel(model, device):
        return
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model.set_attn_implementation(NAME)


def _give_masks(decoder: Any, inputs: Any, named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Add the masks that transformers makes where it knows where documents begin."""
    positions = named.get("position_ids")
    continues = named.get("use_cache") or named.get("past_key_values") is not None
    if positions is None or continues or named.get("attention_mask") is not None:
        return inputs, named
    like_embeddings = torch.empty(*positions.shape, 0, dtype=decoder.dtype, device=positions.device)
    masks = create_masks_for_generate(
        decoder.config, like_embeddings, None, past_key_values=None, position_ids=positions
    )
    return inputs, named | {"attention_mask": masks}


def document_bounds(model: Any, position_ids: Tensor) -> dict[str, Any]:
    """Keywords of a call on packed rows; none for a model without this attention.

    position_ids: int64 [rows, tokens], 0 where a document begins
    """
    if model.config._attn_implementation != NAME:
        return {}
    part: RowPart | None = getattr(causal_of(model), PART, None)
    keywords: dict[str, Any] = {KEYWORD: part or _bounds(position_ids)}
    return keywords | {"attention_mask": UNUSED_MASK} if never_masks(model) else keywords


def check_divisible(model: Any) -> None:
    """Raises WorkError("user") for a model whose rows several ranks cannot compute together."""
    if not never_masks(model):
        message = f"rows of {model.config.model_type} are not divided: its attention needs a mask"
        raise WorkError("user", message, "Set context_parallel to 1.")


def causal_of(model: Any) -> Any:
    """The causal model itself, without what PEFT has around it."""
    return model.get_base_model() if hasattr(model, "peft_config") else model


def _bounds(position_ids: Tensor) -> Bounds:
    if position_ids.device.type != "cpu":
        begins = (position_ids.reshape(-1) == 0).nonzero().squeeze(1)
        end = begins.new_tensor([position_ids.numel()])
        cuts = torch.cat([begins, end]).to(torch.int32)
        return Joined(cuts, int(cuts.diff().max()))
    width = position_ids.shape[1]
    starts = [(row == 0).nonzero().squeeze(1).tolist() for row in position_ids]
    return [[*row, width] for row in starts]


def join_rows(model: Any, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The batch in one row, where that changes nothing but the work; else as it is.

    batch: tensors [rows, tokens]; the first token of a row is no label
    """
    if not never_masks(model):
        return dict(batch)
    return {name: tensor.reshape(1, -1) for name, tensor in batch.items()}


def _has_kernel(model: Any, device: torch.device) -> bool:
    """Return whether FlashAttention supports the model: bfloat16, no dropout, a recent device."""
    config = model.config
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return (
        model.dtype == torch.bfloat16
        and width <= KERNEL_HEAD_WIDTH_MAX
        and not getattr(config, "attention_dropout", 0.0)
        and torch.backends.cuda.is_flash_attention_available()
        and kernels_of(device).flash
    )


def never_masks(model: Any) -> bool:
    """Return whether all layers use this attention without a sliding window, which needs a mask."""
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
    if isinstance(bounds, RowPart):
        return attend_part(query, key, value, bounds, scaling), None
    if isinstance(bounds, Joined):
        return attend_at_once(query, key, value, bounds, scaling), None
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


def attend_at_once(
    query: Tensor, key: Tensor, value: Tensor, documents: Joined, scaling: float | None
) -> Tensor:
    """All documents of all rows; shapes as of `attend`."""
    rows, _, tokens, _ = query.shape
    joined = [heads.transpose(1, 2).flatten(0, 1) for heads in (query, key, value)]
    output: Tensor = _AtOnce.apply(*joined, documents.cuts, documents.longest, scaling)
    return output.view(rows, tokens, *output.shape[1:])


class _AtOnce(torch.autograd.Function):
    """torch's own operators, with a backward pass whose sums have a fixed order."""

    @staticmethod
    def forward(
        context: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        cuts: Tensor,
        longest: int,
        scaling: float | None,
    ) -> Tensor:
        """Heads [tokens, heads, width]."""
        output: Tensor
        output, normaliser, *random, _ = torch.ops.aten._flash_attention_forward(
            query, key, value, cuts, cuts, longest, longest, 0.0, True, False, scale=scaling
        )
        context.save_for_backward(query, key, value, output, normaliser, cuts, *random)
        context.longest, context.scaling = longest, scaling
        return output

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, output, normaliser, cuts, *random = context.saved_tensors
        longest = context.longest
        with _fixed_order():
            of_inputs = torch.ops.aten._flash_attention_backward(
                gradients[0].contiguous(),
                *(query, key, value, output, normaliser, cuts, cuts, longest, longest),
                *(0.0, True, *random),
                scale=context.scaling,
            )
        return (*of_inputs, None, None, None)


@contextmanager
def _fixed_order() -> Iterator[None]:
    """The kernel adds in a fixed order only where torch is to refuse what it cannot repeat."""
    only_warns = torch.is_deterministic_algorithms_warn_only_enabled()
    is_asked = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(is_asked, warn_only=only_warns)
