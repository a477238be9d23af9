"""A base model, and shards of made-up tokens."""

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from tests.bases import Base, tiny_base
from tests.unit.tunery.ml.trainings import HYPER, ROWS, STEPS
from tunery.work.spec import TrainSpec


@pytest.fixture(autouse=True)
def own_process_group() -> Iterator[None]:
    """An engine of one process leaves its group, and the next test may join another one."""
    yield
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_initialized():
        dist.destroy_process_group()


@pytest.fixture(scope="session")
def tiny() -> Base:
    return tiny_base()


@pytest.fixture
def make_shard(tmp_path: Path) -> Callable[..., Path]:
    """Write a shard: rows of documents of token ids; the second half of each is labelled.

    pairs: of two documents in turn, the first is the preferred answer. labels: likewise, but each
    document is an answer by itself, with the label true or false. item: of prompts, whose end is
    marked, what a grader reads.
    """
    import torch
    from safetensors.torch import save_file

    def make(
        rows: Sequence[Sequence[Sequence[int]]],
        name: str = "train",
        *,
        pairs: bool = False,
        labels: bool = False,
        item: bytes = b"",
    ) -> Path:
        documents = [list(document) for row in rows for document in row]
        mask = [int(2 * at >= len(doc)) for doc in documents for at in range(len(doc))]
        tensors = {
            "input_ids": torch.tensor([t for doc in documents for t in doc], dtype=torch.int32),
            "loss_mask": torch.tensor(mask, dtype=torch.uint8),
            "seq_lengths": torch.tensor([len(doc) for doc in documents], dtype=torch.int32),
            "row_lengths": torch.tensor([len(row) for row in rows], dtype=torch.int32),
        }
        if pairs or labels:
            roles = ([1, 2] if pairs else [3, 4]) * (len(documents) // 2)
            tensors["seq_roles"] = torch.tensor(roles, dtype=torch.uint8)
        if item:
            count = len(documents)
            ends = [at == len(doc) - 1 for doc in documents for at in range(len(doc))]
            tensors["loss_mask"] = torch.tensor(ends, dtype=torch.uint8)
            tensors["seq_roles"] = torch.full((count,), 5, dtype=torch.uint8)
            tensors["item_lengths"] = torch.full((count,), len(item), dtype=torch.int32)
            tensors["item_bytes"] = torch.tensor(list(item * count), dtype=torch.uint8)
        path = tmp_path / f"{name}.safetensors"
        save_file(tensors, path)
        return path

    return make


@pytest.fixture
def documents() -> Callable[[int, int], list[list[list[int]]]]:
    """`documents(rows, per_row)`: rows of documents of 5 to 14 tokens, always the same."""

    def make(rows: int, per_row: int) -> list[list[list[int]]]:
        return [
            [
                [100 + (row * 31 + doc * 17 + at * 7) % 900 for at in range(5 + (row + doc) % 10)]
                for doc in range(per_row)
            ]
            for row in range(rows)
        ]

    return make


@pytest.fixture
def spec(
    tiny: tuple[Path, str],
    make_shard: Callable[..., Path],
    documents: Callable[[int, int], list[list[list[int]]]],
    tmp_path: Path,
) -> TrainSpec:
    return TrainSpec(
        base_dir=str(tiny[0]),
        base_id="tiny-llama",
        base_sha256=tiny[1],
        train_shards=(str(make_shard(documents(ROWS, 3))),),
        valid_shards=(str(make_shard(documents(2, 2), "valid")),),
        out_dir=str(tmp_path / "out"),
        hyper=HYPER,
        precision="fp32",
        threads=1,
        checkpoint_every_steps=1,
        keep_checkpoints=STEPS,
    )


def _pairs(count: int, seed: int) -> list[list[list[int]]]:
    """Rows of two pairs each; the answers of a pair have one prompt of four tokens."""

    def answer(number: int, side: int) -> list[int]:
        prompt = [300 + number * 13 % 500 + at for at in range(4)]
        return prompt + [100 + (number * 37 + side * 411 + at * 29) % 900 for at in range(4)]

    numbers = range(seed, seed + 2 * count, 2)
    return [[answer(n + k, side) for k in (0, 1) for side in (0, 1)] for n in numbers]


def _preferring(spec: TrainSpec, make_shard: Callable[..., Path], kind: str) -> TrainSpec:
    hyper = msgspec.structs.replace(
        HYPER, method="dpo", beta=0.1, learning_rate=1e-3, dropout=0.0, warmup=0.0
    )
    return msgspec.structs.replace(
        spec,
        train_shards=(str(make_shard(_pairs(ROWS, 0), kind, **{kind: True})),),
        valid_shards=(str(make_shard(_pairs(2, 100), f"valid-{kind}", **{kind: True})),),
        hyper=hyper,
    )


@pytest.fixture
def pairs_spec(spec: TrainSpec, make_shard: Callable[..., Path]) -> TrainSpec:
    """Rows of two pairs each; the answers of a pair have one prompt of four tokens."""
    return _preferring(spec, make_shard, "pairs")


@pytest.fixture
def reward_spec(pairs_spec: TrainSpec) -> TrainSpec:
    """A training of a reward model on these pairs."""
    hyper = msgspec.structs.replace(pairs_spec.hyper, method="reward", beta=0.0)
    return msgspec.structs.replace(pairs_spec, hyper=hyper)


@pytest.fixture
def labels_spec(spec: TrainSpec, make_shard: Callable[..., Path]) -> TrainSpec:
    """Rows of four answers each, with the labels true and false in turn."""
    preferring = _preferring(spec, make_shard, "labels")
    hyper = msgspec.structs.replace(preferring.hyper, method="kto")
    return msgspec.structs.replace(preferring, hyper=hyper)


@pytest.fixture
def prompts_spec(
    spec: TrainSpec,
    make_shard: Callable[..., Path],
    documents: Callable[[int, int], list[list[list[int]]]],
) -> TrainSpec:
    """Rows of two prompts each; an answer is worth more, the more it is like their word."""
    grader = {
        "type": "text_similarity",
        "evaluation_metric": "fuzzy_match",
        "input": "{{sample.output_text}}",
        "reference": "{{item.word}}",
    }
    item = b'{"word": "eeeeeeeeeeeeeeee"}'
    hyper = msgspec.structs.replace(
        HYPER,
        method="reinforcement",
        beta=0.04,
        num_generations=4,
        max_completion_length=6,
        learning_rate=1e-3,
        dropout=0.0,
        warmup=0.0,
    )
    return msgspec.structs.replace(
        spec,
        train_shards=(str(make_shard(documents(ROWS, 2), "prompts", item=item)),),
        valid_shards=(str(make_shard(documents(2, 1), "valid-prompts", item=item)),),
        hyper=hyper,
        grader=msgspec.json.encode(grader).decode(),
    )
