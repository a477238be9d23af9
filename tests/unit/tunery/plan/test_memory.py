"""Peak memory grows with whatever takes memory, and fits what was measured."""

from typing import Any

import pytest
from msgspec.structs import replace

from schemas.model import Base
from schemas.training import Adaptation, Device, EngineName, HyperParameters
from schemas.units import PPM
from tests.unit.tunery.plan.samples import PROOF, SMOL, tokens
from tunery.plan.hyperparameters import resolve
from tunery.plan.memory import (
    CONTEXT_BYTES,
    LOGIT_BYTES,
    PAIR_BYTES,
    SHARD_BYTES,
    VOCABULARY,
    layers_bytes,
    memory_bytes,
    memory_of_variants,
    trained_weights,
)
from tunery.plan.micro_batches import rows_at_once


def test_memory_of_the_measured_run_is_estimated_near_its_resident_set() -> None:
    """2.2 GB were measured for 135 M parameters on two cores."""
    whole = replace(SMOL, layers=30, inner_size=1536, vocabulary=49_152)
    hyper, _ = resolve({"precision": "bf16"}, SMOL, tokens(20_480), 1)
    assert 1_800_000_000 <= memory_bytes(whole, hyper, "cpu") <= 2_600_000_000


def test_training_m5_memory_grows_with_batch_precision_dropout_and_the_file() -> None:
    """Finding M5: one figure for every batch and precision."""
    whole = replace(SMOL, layers=30, inner_size=1536, vocabulary=49_152)
    hyper, _ = resolve({"precision": "bf16", "dropout": 0}, SMOL, tokens(20_480), 1)
    least = memory_bytes(whole, hyper, "cpu")
    for more in (
        {"batch_size": 2},
        {"precision": "fp32"},
        {"dropout_ppm": 50_000},
        {"dora": True},
        {"modules_to_save": ("lm_head",)},
        {"rank_pattern": (("q_proj", 64),)},
    ):
        assert memory_bytes(whole, replace(hyper, **more), "cpu") > least, more
    assert memory_bytes(whole, replace(hyper, recompute=True), "cpu") < least
    divided = replace(hyper, batch_size=4, accumulation=4)
    assert memory_bytes(whole, divided, "cpu") == least
    file = memory_bytes(whole, hyper, "cpu", tokens(10**9)) - least
    assert file == SHARD_BYTES * 10**9


def test_training_m5_attention_without_sdpa_keeps_each_pair_of_tokens_in_each_head() -> None:
    """The estimate left this memory out: with rows of 8,192 tokens nearly all of Gemma 2's."""
    base = replace(SMOL, layers=30, inner_size=1536, vocabulary=49_152)
    hyper, _ = resolve({"precision": "bf16", "max_length": 2048}, base, None, 1)
    hyper = replace(hyper, max_length=2048)
    eager = replace(base, eager_heads=8)
    more = memory_bytes(eager, hyper, "cuda") - memory_bytes(base, hyper, "cuda")
    rows = rows_at_once(hyper)
    assert more > rows * 30 * 8 * 2048**2 * PAIR_BYTES
    again = replace(hyper, recompute=True)
    assert memory_bytes(eager, again, "cuda") < memory_bytes(eager, hyper, "cuda") / 2


def test_bases_layers_that_keep_more_than_is_usual_are_estimated_by_their_proof() -> None:
    """On processors, where it was counted: a GPU may have kernels that keep less."""
    base = replace(SMOL, layers=30, inner_size=1536, vocabulary=49_152)
    hyper, _ = resolve({"precision": "fp32", "max_length": 2048, "dropout": 0}, base, None, 1)

    def more(kept: float, device: Device) -> float:
        proven = replace(base, proof=replace(PROOF, kept_ppm=int(kept * PPM)))
        return memory_bytes(proven, hyper, device) - memory_bytes(base, hyper, device)

    assert (more(0.0, "cpu"), more(0.8, "cpu"), more(3.0, "cuda")) == (0, 0, 0)
    usual = rows_at_once(hyper) * layers_bytes(base, hyper.max_length)
    assert more(3.0, "cpu") == pytest.approx(2 * usual * 1.5, rel=0.01)  # what glibc keeps


@pytest.mark.parametrize("tables", [1, 2])
def test_training_qlora_keeps_the_layers_in_four_bits_and_the_tables_as_they_are(
    tables: int,
) -> None:
    """Llama-3.1-8B's shape, and the same with tied tables: its layers have 6.98 billion weights."""
    hidden, vocabulary, layers = 4096, 128_256, 6_979_584_000
    base = replace(SMOL, hidden_size=hidden, inner_size=14_336, layers=32, vocabulary=vocabulary)
    base = replace(base, parameters=layers + tables * hidden * vocabulary)
    hyper, _ = resolve({"precision": "bf16"}, base, None, 1)
    least = memory_bytes(base, hyper, "cuda")
    saved = least - memory_bytes(base, replace(hyper, adaptation="qlora"), "cuda")
    assert saved == pytest.approx(layers * (2 - 0.516), rel=1e-3)


@pytest.mark.parametrize(("precision", "each"), [("bf16", 22), ("fp32", 20)])
def test_training_full_needs_its_gradients_and_moments_of_every_weight(
    precision: str, each: int
) -> None:
    """On an accelerator also four bytes of each for the step itself."""
    hyper, _ = resolve({"precision": precision, "adaptation": "full"}, SMOL, None, 1)
    small = replace(SMOL, layers=30)
    larger = replace(small, parameters=small.parameters + 10**9)
    needed = [memory_bytes(base, hyper, "cuda") for base in (small, larger)]
    assert needed[1] - needed[0] == each * 10**9
    best = replace(hyper, best_checkpoint=True)
    assert memory_bytes(small, best, "cuda") > needed[0]


def test_offload_leaves_two_layers_and_the_tables_on_the_device() -> None:
    base = replace(LLAMA_8B, layers=32)
    asked: dict[str, Any] = {"precision": "bf16", "recompute": True, "engine": "fsdp2"}
    shares, _ = resolve(asked | {"shard_weights": True}, base, None, 1)
    moved = replace(shares, offload=True)
    saved = memory_bytes(base, shares, "cuda", ranks=8) - memory_bytes(base, moved, "cuda", ranks=8)
    adapter = trained_weights(base, shares)
    assert saved == pytest.approx((2 * base.parameters + 16 * adapter) / 8, rel=1e-3)
    alone = memory_bytes(base, replace(moved, shard_weights=False), "cuda")
    assert alone == memory_bytes(base, moved, "cuda", ranks=8), "what is in flight, and no share"
    same = memory_bytes(base, shares, "cpu", ranks=8)
    assert memory_bytes(base, moved, "cpu", ranks=8) == same, "the machine's memory is the slot's"


def test_memory_grows_with_rank_length_and_parameters() -> None:
    hyper, _ = resolve(None, SMOL, tokens(20_480), 1)
    least = memory_bytes(SMOL, hyper, "cuda")
    assert memory_bytes(SMOL, replace(hyper, rank=2 * hyper.rank), "cuda") > least
    assert memory_bytes(SMOL, replace(hyper, max_length=2 * hyper.max_length), "cuda") > least
    assert memory_bytes(replace(SMOL, parameters=2 * SMOL.parameters), hyper, "cuda") > least


def test_method_reward_needs_no_logits() -> None:
    hyper, _ = resolve({"method": "dpo", "max_length": 512}, SMOL, tokens(20_480), 1)
    logits = 512 * VOCABULARY * LOGIT_BYTES * hyper.batch_size
    of_answers, of_rewards = (
        memory_bytes(SMOL, replace(hyper, method=method), "cpu") for method in ("dpo", "reward")
    )
    assert of_answers - of_rewards == logits


def test_method_reinforcement_keeps_a_mask_of_each_answer_and_logits_of_answers_alone() -> None:
    """Not a mask between all tokens of all answers: a tiny base was said to need 85,730 GB."""
    hyper, _ = resolve(
        {
            "method": "reinforcement",
            "num_generations": 8,
            "max_completion_length": 256,
            "max_length": 512,
            "batch_size": 1,
        },
        SMOL,
        None,
        1,
    )
    answers = memory_bytes(SMOL, hyper, "cpu")
    rows, _ = resolve({"max_length": 768, "batch_size": 8}, SMOL, None, 1)
    assert answers < memory_bytes(SMOL, rows, "cpu")
    prompts = replace(tokens(4_096), trainable_tokens=64)  # of 64 tokens each
    many = replace(hyper, batch_size=8)
    assert memory_bytes(SMOL, many, "cpu", prompts) < 100 * memory_bytes(SMOL, hyper, "cpu")


#: As families without Liger's kernels are computed, which all were when this was measured.
LLAMA_1B = replace(
    SMOL,
    family="unfused",
    parameters=1_174_472_704,
    hidden_size=2048,
    inner_size=8192,
    layers=16,
    vocabulary=49_152,
    context_length=4096,
)
LLAMA_8B = replace(
    LLAMA_1B, parameters=7_382_503_424, hidden_size=4096, inner_size=14_336, layers=32
)
#: Eight layers of an 8B, as Liger computes them.
FUSED = replace(LLAMA_8B, family="llama", layers=8, parameters=2_147_553_280)
#: Most that PyTorch reserved on an H100 in two steps on rows that were labelled throughout
#: (2026-11-26, PyTorch 2.11, CUDA 13, models of `bench.shapes`), in bytes. CUDA's own comes on top.
MEASURED_ON_H100: list[tuple[str, Base, dict[str, Any], int]] = [
    ("lora, 2 rows", LLAMA_1B, {"batch_size": 2}, 4_452_253_696),
    ("lora, 8 rows", LLAMA_1B, {"batch_size": 8}, 9_661_579_264),
    ("long rows", LLAMA_1B, {"batch_size": 2, "max_length": 2048}, 9_665_773_568),
    ("recompute", LLAMA_1B, {"batch_size": 8, "recompute": True}, 3_651_141_632),
    ("qlora", LLAMA_1B, {"batch_size": 8, "adaptation": "qlora"}, 8_222_932_992),
    ("dropout", LLAMA_1B, {"batch_size": 4, "dropout_ppm": 50_000}, 7_371_489_280),
    ("dora", LLAMA_1B, {"batch_size": 4, "dora": True}, 9_309_257_728),
    ("fp32", LLAMA_1B, {"batch_size": 4, "precision": "fp32"}, 14_071_889_920),
    ("full", LLAMA_1B, {"batch_size": 4, "adaptation": "full"}, 27_307_016_192),
    ("8b", LLAMA_8B, {"batch_size": 4, "max_length": 1024}, 40_919_629_824),
    (
        "8b, qlora",
        LLAMA_8B,
        {"batch_size": 4, "max_length": 1024, "adaptation": "qlora"},
        30_482_104_320,
    ),
    # On an H200, 2026-11-28, PyTorch 2.11, Liger 0.8.5, half of each document labelled.
    ("fused", FUSED, {"batch_size": 2, "max_length": 4096}, 15_070_000_000),
]


@pytest.mark.parametrize(
    ("base", "changes", "reserved"),
    [pytest.param(*row, id=name) for name, *row in MEASURED_ON_H100],
)
def test_training_m5_memory_of_a_gpu_is_estimated_near_what_was_measured(
    base: Base, changes: dict[str, Any], reserved: int
) -> None:
    hyper = HyperParameters(
        n_epochs=1,
        learning_rate_ppb=1_000_000,
        rank=16,
        alpha=32,
        warmup_ppm=0,
        weight_decay_ppm=0,
        seed=11,
        **{"precision": "bf16", "max_length": 512, "dropout_ppm": 0, **changes},
    )
    measured = reserved + CONTEXT_BYTES
    assert memory_bytes(base, hyper, "cuda") == pytest.approx(measured, rel=0.1)


@pytest.mark.parametrize("engine", ["fsdp2", "deepspeed"])
@pytest.mark.parametrize("adaptation", ["lora", "qlora", "full"])
def test_ranks_divide_what_is_sharded_and_nothing_else(
    engine: EngineName, adaptation: Adaptation
) -> None:
    base = replace(LLAMA_8B, layers=32)
    asked: dict[str, Any] = {"adaptation": adaptation, "precision": "bf16", "engine": engine}
    shares, _ = resolve(asked | {"shard_weights": True}, base, None, 1, "cuda")
    needed = {n: memory_bytes(base, shares, "cuda", ranks=n) for n in (1, 2, 4, 8)}
    frozen = {"lora": 2.0, "qlora": 0.6, "full": 4.0}[adaptation] * base.parameters
    divided = frozen + 16 * trained_weights(base, shares)  # of all weights the step needs four more
    for fewer, more in ((2, 4), (4, 8)):
        expected = divided * (1 / fewer - 1 / more)
        assert needed[fewer] - needed[more] == pytest.approx(expected, rel=0.05)
    within = replace(shares, shards=8)
    assert memory_bytes(base, within, "cuda", ranks=32) == needed[8], "of each node"
    copies = replace(shares, shard_weights=False)
    sizes = [memory_bytes(base, copies, "cuda", ranks=n) for n in (2, 8)]
    assert (sizes[0] == sizes[1]) == (engine == "fsdp2"), "ZeRO-2 divides moments all the same"


def test_a_copy_needs_a_buffer_for_the_sum_of_its_gradients() -> None:
    hyper, _ = resolve({"precision": "bf16"}, SMOL, None, 1, "cuda")
    more = memory_bytes(SMOL, hyper, "cuda", ranks=2) - memory_bytes(SMOL, hyper, "cuda")
    assert more == 4 * trained_weights(SMOL, hyper)


def test_variants_share_the_base_and_one_micro_batch() -> None:
    """Each has an adapter of its own, and the largest micro-batch is that of one of them."""
    narrow, _ = resolve({"rank": 8, "batch_size": 1}, SMOL, tokens(20_480), 1)
    wide, _ = resolve({"rank": 64, "batch_size": 4}, SMOL, tokens(20_480), 1)
    whole = [memory_bytes(SMOL, hyper, "cpu") for hyper in (narrow, wide)]
    assert memory_of_variants(SMOL, [narrow], "cpu") == whole[0]
    together = memory_of_variants(SMOL, [narrow, wide], "cpu")
    adapter = memory_of_variants(SMOL, [wide, narrow, narrow], "cpu") - together
    assert together == whole[1] + adapter
    assert 0 < adapter < whole[0] // 10


LLAMA_1B = replace(
    SMOL,
    parameters=1_235_814_400,
    hidden_size=2_048,
    inner_size=8_192,
    layers=16,
    vocabulary=128_256,
)


@pytest.mark.parametrize(("optimizer", "saved"), [("adamw_8bit", 6), ("muon", 4)])
def test_other_optimizers_need_less_for_moments_of_all_but_the_table_of_tokens(
    optimizer: str, saved: int
) -> None:
    table = LLAMA_1B.vocabulary * LLAMA_1B.hidden_size
    for adaptation, step in (("lora", 0), ("full", 4)):  # what AdamW needs at once on a GPU
        asked = {"adaptation": adaptation, "precision": "bf16"}
        usual, _ = resolve(asked, LLAMA_1B, None, 1, "cuda")
        other = replace(usual, optimizer=optimizer)
        trained = trained_weights(LLAMA_1B, usual)
        smaller = trained - (table if adaptation == "full" else 0)
        less = memory_bytes(LLAMA_1B, usual, "cuda") - memory_bytes(LLAMA_1B, other, "cuda")
        assert less == pytest.approx(saved * smaller + step * trained, rel=1e-3)


def test_experts_of_a_mixture_are_no_matrices_that_muon_takes() -> None:
    mixture = replace(LLAMA_1B, parameters=8 * LLAMA_1B.parameters)
    usual, _ = resolve({"adaptation": "full", "precision": "bf16"}, mixture, None, 1, "cpu")
    muon = replace(usual, optimizer="muon")
    saved = memory_bytes(mixture, usual, "cpu") - memory_bytes(mixture, muon, "cpu")
    assert saved < 4 * LLAMA_1B.parameters * 1.1
