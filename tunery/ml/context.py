"""Context parallelism: each of several ranks computes a part of every row.

A row, that is all rows of a micro-batch one after the other, is cut into twice as many chunks as
there are ranks; rank r of n computes chunks r and 2n - 1 - r, so that all have about as many pairs
of tokens to attend. Each layer gathers the keys and values of the whole row, as the training of
Llama 3 did (arXiv:2407.21783, §3.3.2): documents may be cut anywhere, and with grouped queries keys
and values are small. torch's own ring attention takes no documents, and no processors.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor

# torch's own notice of deprecation names this one in place of its public `all_gather`.
from torch.distributed._functional_collectives import all_gather_single
from torch.nn.functional import pad, scaled_dot_product_attention

IGNORED: Final = -100  # label of a token that carries no loss
# Where a document begins, and where its tokens in a chunk begin and end.
Span: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True)
class RowPart:
    """The tokens of a row that this rank computes."""

    ranks: Any  # process group of the ranks that compute the row
    chunks: tuple[range, range]
    cuts: tuple[int, ...]  # where documents of the whole row begin, and its end

    @property
    def tokens(self) -> list[int]:
        """Positions of these tokens in the row."""
        return [*self.chunks[0], *self.chunks[1]]


def take_part(batch: Mapping[str, Tensor], ranks: Any) -> tuple[dict[str, Tensor], RowPart]:
    """This rank's tokens of a batch, and what is to be predicted after each.

    batch: `input_ids`, `labels`, `position_ids`, each int64 [rows, tokens]
    Returns tensors [1, own tokens]; `labels` has one more, before them: it is shifted already.
    """
    count, rank = dist.get_world_size(ranks), dist.get_rank(ranks)
    ids, labels, positions = (
        batch[name].reshape(1, -1) for name in ("input_ids", "labels", "position_ids")
    )
    more = -ids.shape[1] % (2 * count)  # a document of padding
    ids, labels = pad(ids, (0, more)), pad(labels, (0, more + 1), value=IGNORED)
    positions = torch.cat([positions, torch.arange(more, device=ids.device)[None]], dim=1)
    begins = (positions[0] == 0).nonzero().squeeze(1).tolist()
    width = ids.shape[1] // (2 * count)
    chunks = [range(at * width, (at + 1) * width) for at in (rank, 2 * count - 1 - rank)]
    part = RowPart(ranks, (chunks[0], chunks[1]), (*begins, ids.shape[1]))
    own = torch.tensor(part.tokens, device=ids.device)
    return {
        "input_ids": ids[:, own],
        "labels": pad(labels[:, own + 1], (1, 0), value=IGNORED),
        "position_ids": positions[:, own],
    }, part


def attend_part(
    query: Tensor, key: Tensor, value: Tensor, part: RowPart, scaling: float | None
) -> Tensor:
    """Attention of this rank's tokens, heads [1, heads, own tokens, width], to all before them in
    their documents. Returns [1, own tokens, heads, width].
    """
    keys, values = (_whole_row(heads, part.ranks) for heads in (key, value))
    attend = _attend_documents if query.device.type == "cpu" else _attend_at_once
    outputs = [
        attend(queries, keys, values, [*_spans(chunk, part.cuts)], scaling)
        for queries, chunk in zip(query.chunk(2, dim=2), part.chunks, strict=True)
    ]
    return torch.cat(outputs, dim=2).transpose(1, 2).contiguous()


def _whole_row(heads: Tensor, ranks: Any) -> Tensor:
    """Gather the chunks of all ranks, in the order of the row. Gradients are added up."""
    first, last = all_gather_single(heads.contiguous(), 0, ranks).chunk(2, dim=2)
    chunks = torch.cat([first, last.flip(0)])  # [chunks, heads, tokens, width]
    return chunks.transpose(0, 1).flatten(1, 2)[None]


def _spans(chunk: range, cuts: Sequence[int]) -> Iterator[Span]:
    """The documents of a chunk."""
    for start, end in pairwise(cuts):
        first, last = max(start, chunk.start), min(end, chunk.stop)
        if first < last:
            yield start, first, last


def _attend_documents(
    queries: Tensor, keys: Tensor, values: Tensor, spans: Sequence[Span], scaling: float | None
) -> Tensor:
    outputs = []
    for start, first, last in spans:
        own = slice(first - spans[0][1], last - spans[0][1])
        seen = torch.ones(last - first, last - start, dtype=torch.bool).tril(first - start)
        outputs.append(
            scaled_dot_product_attention(
                queries[:, :, own],
                keys[:, :, start:last],
                values[:, :, start:last],
                attn_mask=seen,
                scale=scaling,
                enable_gqa=True,
            )
        )
    return torch.cat(outputs, dim=2)


def _attend_at_once(
    queries: Tensor, keys: Tensor, values: Tensor, spans: Sequence[Span], scaling: float | None
) -> Tensor:
    """torch's kernel for documents of several lengths, each of which ends with its last query."""
    from torch.nn.attention.varlen import varlen_attn

    end = spans[-1][2]
    of_queries = [first for _, first, _ in spans] + [end]
    of_keys = [start for start, _, _ in spans] + [end]
    cuts = [
        torch.tensor([edge - edges[0] for edge in edges], dtype=torch.int32, device=queries.device)
        for edges in (of_queries, of_keys)
    ]
    longest = [
        max(last - first for first, last in pairwise(edges)) for edges in (of_queries, of_keys)
    ]
    seen = slice(of_keys[0], end)
    output = varlen_attn(
        queries[0].transpose(0, 1),
        keys[0, :, seen].transpose(0, 1),
        values[0, :, seen].transpose(0, 1),
        cuts[0],
        cuts[1],
        longest[0],
        longest[1],
        scale=scaling,
        window_size=(-1, 0),
        enable_gqa=True,
    )
    assert isinstance(output, Tensor)  # noqa: S101  # nothing else was asked for
    return output.transpose(0, 1)[None]


PART: Final = "tunery_row_part"  # of a model within `sharing`


@contextmanager
def sharing(causal: Any, batch: Mapping[str, Tensor], ranks: Any) -> Iterator[dict[str, Tensor]]:
    """Its block computes this rank's part of a batch, which it gets, by the causal model."""
    own, part = take_part(batch, ranks)
    setattr(causal, PART, part)
    try:
        yield own
    finally:
        delattr(causal, PART)
