"""What ranks tell each other, and the tables of the guide, which this arithmetic gives."""

from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from schemas.model import Base
from tests.unit.tunery.plan.samples import SMOL, job, tokens
from tunery.plan.estimate import estimate
from tunery.plan.exchange import exchange_ms, exchanged_bytes, reference_ms
from tunery.plan.hyperparameters import resolve
from tunery.plan.memory import memory_bytes

PAGE: Final = Path(__file__).resolve().parents[4] / "docs/how-to/many-gpus.md"
TOKENS: Final = 2_048
RANKS: Final = (2, 4)
LARGEST_BYTES: Final = 141 * 10**9  # of an H200: what does not fit has no ranks
# Weights, hidden size, layers, inner size and tokens, by the configurations that are published.
SHAPES: Final = {
    "Llama-3.2-1B": (1_235_814_400, 2_048, 16, 8_192, 128_256),
    "Qwen2.5-7B": (7_615_616_512, 3_584, 28, 18_944, 152_064),
    "Qwen2.5-14B": (14_770_033_664, 5_120, 48, 13_824, 152_064),
    "Qwen2.5-32B": (32_763_876_352, 5_120, 64, 27_648, 152_064),
    "Llama-3.1-70B": (70_553_706_496, 8_192, 80, 28_672, 128_256),
}
# With how many ranks.
METHODS: Final[tuple[tuple[dict[str, Any], int], ...]] = (
    ({"adaptation": "lora"}, 1),
    ({"adaptation": "lora", "recompute": True}, 1),
    ({"adaptation": "lora", "offload": True}, 1),
    ({"adaptation": "qlora", "recompute": True}, 1),
    ({"adaptation": "full", "recompute": True}, 1),
    ({"adaptation": "full", "recompute": True}, 8),
    ({"adaptation": "full", "shard_weights": True}, 8),
    ({"adaptation": "full", "shard_weights": True}, 32),
)


def base_of(name: str) -> Base:
    parameters, hidden, layers, inner, vocabulary = SHAPES[name]
    return replace(
        SMOL,
        parameters=parameters,
        hidden_size=hidden,
        layers=layers,
        inner_size=inner,
        vocabulary=vocabulary,
    )


def memory_row(name: str) -> str:
    """Of the table of memory: what one device needs for a row of a micro-batch, rank 16, bf16."""
    base, cells = base_of(name), []
    for method, ranks in METHODS:
        asked: dict[str, Any] = {
            "max_length": TOKENS,
            "batch_size": 1,
            "rank": 16,
            "precision": "bf16",
            "dropout": 0,
        }
        hyper, _ = resolve(asked | method, base, None, 1, "cuda")
        cells.append(f"{memory_bytes(base, hyper, 'cuda', ranks=ranks) / 1e9:,.0f} GB")
    return f"| {name} | {' | '.join(cells)} |"


def exchange_row(name: str) -> str:
    """Of the table of what is told: its size, and how long it takes two and four ranks."""
    base, cells = base_of(name), []
    for adaptation in ("qlora", "full"):  # LoRA trains as many weights as QLoRA
        asked = {"rank": 16, "adaptation": adaptation, "batch_size": 1, "max_length": TOKENS}
        hyper, _ = resolve(asked, base, None, 1, "cuda")
        cells.append(f"{exchanged_bytes(base, hyper) / 1e9:,.2f} GB")
        for ranks in RANKS:
            needed = memory_bytes(base, replace(hyper, recompute=True), "cuda", ranks=ranks)
            took = f"{exchange_ms(base, hyper, ranks, 'cuda') / 1e3:,.2f} s"
            cells.append(took if needed <= LARGEST_BYTES else "–")
    return f"| {name} | {' | '.join(cells)} |"


def test_the_guide_has_the_memory_of_each_size_and_method() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    for name in SHAPES:
        assert memory_row(name) in lines


def test_the_guide_has_what_ranks_tell_each_other() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    for name in SHAPES:
        assert exchange_row(name) in lines


def test_ranks_tell_each_other_four_bytes_of_each_weight_that_is_trained() -> None:
    lora, _ = resolve({"rank": 8}, SMOL, None, 1)
    twice, _ = resolve({"rank": 16}, SMOL, None, 1)
    full, _ = resolve({"adaptation": "full"}, SMOL, None, 1)
    assert exchanged_bytes(SMOL, twice) == 2 * exchanged_bytes(SMOL, lora)
    assert exchanged_bytes(SMOL, full) == 4 * SMOL.parameters
    took = {ranks: exchange_ms(SMOL, full, ranks, "cpu") for ranks in (1, 2, 4)}
    assert took[1] == 0 < took[2] == took[4], "each adds a part"
    wide = replace(full, precision="fp32")
    on_gpus = {ranks: exchange_ms(SMOL, wide, ranks, "cuda") for ranks in (2, 4)}
    assert on_gpus[2] > on_gpus[4] > took[2], "it is copied from devices and back"
    assert exchange_ms(SMOL, replace(full, precision="bf16"), 2, "cpu") < took[2]


def test_the_time_that_ranks_need_for_it_is_in_the_estimate() -> None:
    """Of short steps of all weights it is most of the time."""
    asked: dict[str, Any] = {
        "adaptation": "full",
        "n_epochs": 1,
        "batch_size": 4,
        "max_length": 128,
    }
    hyper, _ = resolve(asked, SMOL, tokens(100_000), 1)
    alone, shared = (estimate(job(hyper, slots=slots), tokens(100_000)) for slots in (1, 4))
    exchanges_ms = alone.steps * exchange_ms(SMOL, hyper, 4, "cpu")
    assert shared.train_gpu_ms > alone.train_gpu_ms + 4 * exchanges_ms > alone.train_gpu_ms


def test_rows_that_need_a_reference_pass_once_more_where_weights_are_in_shares() -> None:
    asked: dict[str, Any] = {"adaptation": "full", "method": "dpo", "shard_weights": True}
    dpo, _ = resolve(asked, SMOL, None, 1)
    orpo, whole = replace(dpo, method="orpo"), replace(dpo, shard_weights=False)
    assert dpo.shard_weights
    assert reference_ms(SMOL, orpo, 2, "cpu", 100) == reference_ms(SMOL, whole, 2, "cpu", 100) == 0
    took = {rows: reference_ms(SMOL, dpo, 2, "cpu", rows) for rows in (1, 2, 200)}
    assert took[1] == took[2] == pytest.approx(took[200] / 100, rel=0.05), "two ranks, two at once"
    assert reference_ms(SMOL, dpo, 2, "cuda", 2) > 0
    alone, needing = (estimate(job(each, slots=2), tokens(100_000)) for each in (orpo, dpo))
    assert needing.train_gpu_ms > alone.train_gpu_ms
