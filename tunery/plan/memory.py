"""Peak memory of one training slot, by engine and by what a step keeps: each constant is counted
or measured.

The trainer keeps all activations for the backward pass, unless the job recomputes them
(`recompute`), and gives every labelled position its logits. A test trains
such shapes and compares their peak with this: `tests/integration/tunery/ml/test_memory.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from schemas.dataset import BaseTokens
from schemas.model import Base
from schemas.training import Device, HyperParameters, OptimizerName
from schemas.units import PPM, divide_up
from tunery.plan.methods import REWARD
from tunery.plan.micro_batches import rows_at_once
from tunery.work.spec import Engine, Hyper

# LoRA on all linear layers has about 1.6 × parameters / hidden size parameters per rank
# (measured 1.3 for SmolLM2-135M, 1.34 for Llama-3.1-8B with their embeddings counted).
LORA_TENTHS: Final = 16
GRADIENT_BYTES: Final = 4  # fp32, as the masters are
LORA_BYTES: Final = 16  # fp32 master, gradient, two Adam moments; the adapter itself comes on top
# A trained weight whose states are sharded: the same four. FSDP2 makes the run's type from the
# weight in fp32 when a layer is gathered.
SHARED_BYTES: Final = 16
# Gradients that DeepSpeed sends at once. Its default of 5e8 takes 1 GB of a device, also for an
# adapter of 50 MB.
BUCKET_VALUES: Final = 50_000_000
# A weight, where all are trained: gradient, two moments; master, unless the weight is fp32.
FULL_BYTES: Final[Mapping[str, int]] = {"bf16": 16, "fp32": 12}
# Moments of a trained weight. In eight bits a scale of 8 bytes for 256 weights comes on top, and
# adapters of fewer than 4,096 values keep 8 bytes each: some megabytes.
MOMENT_BYTES: Final[Mapping[OptimizerName, int]] = {"adamw": 8, "adamw_8bit": 2, "muon": 4}
# A value of the table of tokens, while bitsandbytes steps it on a processor: its gradient, its
# update and what that is divided by, in fp32.
EIGHT_BIT_STEP_BYTES: Final[Mapping[Device, int]] = {"cpu": 12, "cuda": 0}
LAYER_PARAMETERS_PER_HIDDEN_SQUARED: Final = 12
INNER_PER_HIDDEN: Final = 3  # width of the inner layer, where the base's record does not say
VOCABULARY: Final = 131_072  # number of tokens, where the base's record does not say
# What autograd keeps of one token in one layer, in values of the weights' type per unit of width
# (queries, keys, values, output, inputs of adapters; inside: gate, activation, product, input of
# the adapter) and in bytes (two norms in fp32). Dropout keeps its noise and its output for each of
# seven adapters.
HIDDEN_VALUES: Final = 8
INNER_VALUES: Final = 4
# Those of a hidden width that ranks divide with tensor parallelism: queries, keys, values, output.
DIVIDED_VALUES: Final = 4
NORM_BYTES: Final = 16
# On an accelerator Liger's kernels keep neither the activation nor a copy of the inputs of norms in
# fp32 (measured on an H200: 50 KB of a token and layer of 4,096; 48 by these).
FUSED_FAMILIES: Final = frozenset({"llama", "mistral", "qwen2", "qwen3"})
FUSED_INNER_VALUES: Final = 1
FUSED_NORM_BYTES: Final = 8
# DoRA keeps the outputs of the base and of the adapter, of each layer.
DORA_HIDDEN: Final = 10
DORA_INNER: Final = 4
DROPOUT_INPUTS: Final = 6  # of the hidden width; the seventh has the inner width
# A pair of tokens in each head, where attention is computed without SDPA: its weight in fp32,
# and in the weights' type or what it was before it was capped. While one layer is at work, the
# score, its mask and gradients are there, too.
PAIR_BYTES: Final = 8
PAIR_BYTES_AT_WORK: Final = 16
# One logit: fp32 log-probabilities and two gradients of them (measured 11.8 to 12.9).
LOGIT_BYTES: Final = 12
# On an accelerator TRL's loss of plain answers never has all logits at once: of a label, what it
# keeps for each unit of width (measured 30).
FUSED_LABEL_BYTES: Final = 30
# Memory of a layer's activations for each 100 bytes of them. On a CPU glibc does not give all of
# what a step freed to the next one: up to 0.5 times more was measured in bf16, 0.3 to 0.9 in fp32.
# On an accelerator fused kernels keep less (an H100 was measured: docs/how-to/gpu-machine.md).
KEPT_PERCENT: Final[Mapping[Device, Mapping[str, int]]] = {
    "cpu": {"bf16": 110, "fp32": 150},
    "cuda": {"bf16": 78, "fp32": 118},
}
# With recompute one layer is at work, but glibc keeps what those before it freed (measured: 6.3).
LAYERS_AT_WORK: Final[Mapping[Device, int]] = {"cpu": 6, "cuda": 1}
# A value that dropout saw, times the width of a weight: its noise and its output; on an
# accelerator a byte of noise, and some.
DROPOUT_WIDTHS: Final[Mapping[Device, int]] = {"cpu": 2, "cuda": 1}
# Each weight where all are trained: what AdamW needs while it computes all of them at once. It
# was measured on an H100; PyTorch's fused kernel, which trains since, should need none of it there.
STEP_BYTES: Final[Mapping[Device, int]] = {"cpu": 0, "cuda": 4}
# Each weight that several ranks train: what it was before their first steps, which they take
# twice, in the machine's memory. DeepSpeed has a master beside each weight, also in fp32.
REPEATED_BYTES: Final = 4
SHARD_BYTES: Final = 6  # of a token of the training file: the file and a byte of labels
# 1,000 weights in NF4: half a byte each, and for 64 a scale of a byte and some (QLoRA, §3).
FOUR_BIT_BYTES: Final = 516
WIDTH: Final[Mapping[str, int]] = {"bf16": 2, "fp32": 4}
# "auto" takes bf16 where the processor multiplies it: on a CPU the larger one is counted.
AUTO_PRECISION: Final[Mapping[Device, str]] = {"cpu": "fp32", "cuda": "bf16"}
CONTEXT_BYTES: Final = 650_000_000  # CUDA's own of each process, which PyTorch does not count
DEEPSPEED_BYTES: Final = 80_000_000  # of DeepSpeed in a process
# Buckets of gradients at once. Stage 3 puts what it sends together a second time (its
# `reduce_scatter_coalesced`); gloo, which has no reduce-scatter of its own, reduces a copy of that.
BUCKETS_OF_STAGE_3: Final[Mapping[Device, int]] = {"cpu": 3, "cuda": 2}
QUANTISING_BYTES: Final = 54_000_000  # of bitsandbytes in a process that quantises
LAYERS_GATHERED: Final = 2  # in flight with weights in shares: one computes, one is prefetched
# process, libraries, allocator; on an accelerator: context, work space of its libraries
OVERHEAD_BYTES: Final[Mapping[Device, int]] = {
    "cpu": 900_000_000,
    "cuda": CONTEXT_BYTES + 160_000_000,
}


# A replica keeps this many models, each with the keys and values of so many tokens in 16 bits; the
# weights, in 32 bits at most, are shared. As the engine's settings are unless they are changed.
MODELS_KEPT: Final = 4
TOKENS_KEPT: Final = 4 * 4_096


@dataclass(frozen=True)
class _Kept:
    """Activations that a row of a micro-batch keeps from its forward to its backward pass."""

    tokens: int
    labels: int  # number of tokens for which logits are computed
    pairs: int  # number of token pairs that an attention mask covers


def replica_bytes(base: Base) -> int:
    """Most memory of a replica of a serving pool: the base model, contexts, process."""
    tokens = MODELS_KEPT * min(TOKENS_KEPT, 4 * base.context_length)
    context = 2 * WIDTH["bf16"] * base.layers * base.hidden_size * tokens
    return WIDTH["fp32"] * base.parameters + context + OVERHEAD_BYTES["cpu"]


def memory_bytes(
    base: Base,
    hyper: HyperParameters,
    device: Device,
    tokens: BaseTokens | None = None,
    ranks: int = 1,
) -> int:
    """Return the peak memory of one slot: weights, optimizer, one micro-batch, rows, process.

    tokens: tokens of the training file; None: rows have their maximum length, the file is not
        counted
    ranks: size of the process group; the engine decides what the ranks share
    """
    precision = precision_of(hyper, device)
    in_file = 0 if tokens is None else tokens.tokens
    row = hyper.max_length if tokens is None else min(hyper.max_length, max(1, in_file))
    kept = _Kept(row, row, row * row)
    if hyper.method == "reinforcement":
        kept = _rollouts(hyper, row, tokens)
    if (parts := hyper.context_parallel) > 1:
        own = divide_up(row, parts)
        kept = _Kept(own, own, own * row)
    at_once = rows_at_once(hyper) * _row_bytes(base, kept, precision, hyper, device)
    trained = _trained_bytes(base, hyper, device, ranks)
    besides = OVERHEAD_BYTES[device]
    if device == "cpu":
        besides += SHARD_BYTES * in_file
        besides += QUANTISING_BYTES if Hyper.from_log(hyper).needs_bitsandbytes else 0
        besides += DEEPSPEED_BYTES if hyper.engine == "deepspeed" else 0
    return base_bytes(base, hyper, device, ranks) + trained + at_once + besides


def memory_of_variants(
    base: Base,
    hypers: Sequence[HyperParameters],
    device: Device,
    tokens: BaseTokens | None = None,
    ranks: int = 1,
) -> int:
    """Peak memory of one slot in which trainings take turns: each has weights and an optimizer of
    its own, the base is there once, and one micro-batch at a time.
    """
    trained = [_trained_bytes(base, hyper, device, ranks) for hyper in hypers]
    whole = [memory_bytes(base, hyper, device, tokens, ranks) for hyper in hypers]
    besides = max(all_of_it - own for all_of_it, own in zip(whole, trained, strict=True))
    return besides + sum(trained)


def precision_of(hyper: HyperParameters, device: Device) -> str:
    """The type of weights, as far as a plan knows it."""
    if hyper.precision == "fp8":  # of products alone
        return "bf16"
    return AUTO_PRECISION[device] if hyper.precision == "auto" else hyper.precision


def _trained_bytes(base: Base, hyper: HyperParameters, device: Device, ranks: int) -> int:
    """Return bytes of trained weights, their gradients and the optimizer's state."""
    engine, trained = Engine.from_log(hyper, ranks), trained_weights(base, hyper)
    width = _width(hyper, device)
    at_once = hyper.adaptation == "full" and hyper.optimizer == "adamw"
    step = STEP_BYTES[device] if at_once else 0
    repeated = REPEATED_BYTES if device == "cpu" else 0
    if engine.name == "single" or (engine.name == "fsdp2" and engine.weights == "copied"):
        each = LORA_BYTES + width
        if hyper.adaptation == "full":
            each = FULL_BYTES[precision_of(hyper, device)] + step
            each += width if hyper.best_checkpoint else 0
        if engine.name != "single":  # one all-reduce of all gradients in their own buffer
            each += GRADIENT_BYTES + repeated
        return each * trained - _moments_saved(base, hyper, device)
    # FSDP2's shards and those of ZeRO: weights in fp32, sums of gradients and moments.
    best = width if hyper.best_checkpoint and hyper.adaptation == "full" else 0
    repeated += width if device == "cpu" and engine.name == "deepspeed" else 0
    each = SHARED_BYTES + repeated + step + best
    layers = layers_weights(base)
    tables = base.parameters - layers if hyper.adaptation == "full" else 0
    # Ranks that divide the matrices of layers have the same shares of the tables of tokens.
    copies = trained + (engine.tensor_parallel - 1) * tables
    share = divide_up(each * copies, sharing(hyper, ranks))
    if _leaves_device(engine, device):
        share = 0
    if engine.name == "deepspeed":
        bucket = width * (BUCKET_VALUES if device == "cuda" else min(BUCKET_VALUES, trained))
        share += bucket * (1 if engine.weights == "copied" else BUCKETS_OF_STAGE_3[device])
    if engine.weights == "copied":  # ZeRO-1 and -2: gradients in the run's type until they are cut
        return share + width * trained
    # Gradients of a micro-batch until they are added: of a layer, and of the tables of tokens.
    layer = divide_up(layers, _layers(base) * engine.tensor_parallel)
    whole = min(trained, tables + layer)
    return share + (width + GRADIENT_BYTES) * whole


def _moments_saved(base: Base, hyper: HyperParameters, device: Device) -> int:
    """Return by how many bytes moments, and what steps them, are smaller than AdamW's."""
    trained = trained_weights(base, hyper)
    table = (base.vocabulary or VOCABULARY) * base.hidden_size
    at_work = 0
    if hyper.adaptation != "full":
        usual = trained - _whole_layers(base, hyper)
    elif hyper.optimizer == "adamw_8bit":
        usual, at_work = trained - table, EIGHT_BIT_STEP_BYTES[device] * table
    else:  # Muon's matrices; experts of a mixture are none
        inner = base.inner_size or INNER_PER_HIDDEN * base.hidden_size
        matrices = _layers(base) * base.hidden_size * (4 * base.hidden_size + 3 * inner)
        usual = min(layers_weights(base), matrices)
    return (MOMENT_BYTES["adamw"] - MOMENT_BYTES[hyper.optimizer]) * max(0, usual) - at_work


def sharing(hyper: HyperParameters, ranks: int) -> int:
    return min(hyper.shards or ranks, ranks)


def _leaves_device(engine: Engine, device: Device) -> bool:
    """Return whether shards and optimizer states are in host memory instead of device memory."""
    return engine.cpu_offload and device == "cuda"


def trained_weights(base: Base, hyper: HyperParameters) -> int:
    """Number of trained weights: all, or those of the adapter and of whole layers."""
    if hyper.adaptation == "full":
        return base.parameters
    rank = max((hyper.rank, *(rank for _, rank in hyper.rank_pattern)))
    adapter = LORA_TENTHS * rank * base.parameters // (10 * max(base.hidden_size, 1))
    return adapter + _whole_layers(base, hyper)


def _rollouts(hyper: HyperParameters, row: int, tokens: BaseTokens | None) -> _Kept:
    """Return what a packed row of prompts keeps: each prompt with each of its answers, in its own
    row.
    """
    of_file = 1 if tokens is None else max(1, tokens.tokens)
    prompts = 1 if tokens is None else divide_up(row * tokens.trainable_tokens, of_file)
    prompts = max(1, prompts)
    answers, longest = prompts * hyper.num_generations, hyper.max_completion_length
    width = divide_up(row, prompts) + longest
    return _Kept(answers * width, answers * longest, answers * width * width)


def base_bytes(base: Base, hyper: HyperParameters, device: Device, ranks: int = 1) -> int:
    """The weights that compute, in the type of the run.

    With weights in shares: a rank's share of what is frozen (`_trained_bytes` has that of what is
    trained), the layers that are gathered, and the tables of tokens, which stay gathered through a
    micro-batch. With QLoRA layers have four bits.
    """
    engine, width = Engine.from_log(hyper, ranks), _width(hyper, device)
    layers = layers_weights(base)
    tables = width * (base.parameters - layers)
    in_layers = width * layers
    if hyper.adaptation == "qlora":
        in_layers = layers * FOUR_BIT_BYTES // 1_000
    if engine.weights == "copied":
        return tables + in_layers
    layer = divide_up(in_layers, _layers(base) * engine.tensor_parallel)
    gathered = tables + LAYERS_GATHERED * layer
    if hyper.adaptation == "full" or _leaves_device(engine, device):
        return gathered
    copies = engine.tensor_parallel * tables + in_layers
    return divide_up(copies, sharing(hyper, ranks)) + gathered


def layers_bytes(base: Base, tokens: int) -> int:
    """Return what layers with adapters keep of one document in fp32, as autograd counts it."""
    inner = base.inner_size or INNER_PER_HIDDEN * base.hidden_size
    token = base.hidden_size * (HIDDEN_VALUES * WIDTH["fp32"] + NORM_BYTES)
    token += inner * INNER_VALUES * WIDTH["fp32"]
    return _layers(base) * tokens * (token + base.eager_heads * PAIR_BYTES * tokens)


def streamed_bytes(base: Base, hyper: HyperParameters, device: Device) -> int:
    """Return bytes that a pass over all layers gathers or copies to a device."""
    return _width(hyper, device) * layers_weights(base)


def layers_weights(base: Base) -> int:
    """Weights of all layers: all but the tables of tokens."""
    tables = (base.vocabulary or VOCABULARY) * base.hidden_size * (1 if _is_tied(base) else 2)
    return max(0, base.parameters - tables)


def _width(hyper: HyperParameters, device: Device) -> int:
    """Bytes of a weight."""
    return WIDTH[precision_of(hyper, device)]


def _layers(base: Base) -> int:
    """Number of layers; if the base's record lacks it, by size and width."""
    hidden = max(base.hidden_size, 1)
    by_size = divide_up(base.parameters, LAYER_PARAMETERS_PER_HIDDEN_SQUARED * hidden * hidden)
    return base.layers or max(1, by_size)


def _is_tied(base: Base) -> bool:
    """Return whether input and output embeddings share one table.

    If two tables would leave too few parameters for the layers, they must be one. Queries and
    outputs are at least as wide as the model; keys and values may be much narrower.
    """
    hidden, inner = base.hidden_size, base.inner_size or INNER_PER_HIDDEN * base.hidden_size
    layers = base.layers * hidden * (2 * hidden + 3 * inner)
    return base.parameters - 2 * (base.vocabulary or VOCABULARY) * hidden < layers


def _whole_layers(base: Base, hyper: HyperParameters) -> int:
    """Parameters of `modules_to_save`, each as large as the table of tokens: few are larger."""
    return len(hyper.modules_to_save) * (base.vocabulary or VOCABULARY) * base.hidden_size


def _row_bytes(
    base: Base, kept: _Kept, precision: str, hyper: HyperParameters, device: Device
) -> int:
    """Return bytes that a packed row keeps from its forward pass to its backward pass."""
    width = WIDTH[precision]
    hidden = max(base.hidden_size, 1)
    inner = base.inner_size or INNER_PER_HIDDEN * hidden
    layers = _layers(base)
    divided = hidden * DIVIDED_VALUES * width + inner * INNER_VALUES * width
    token = hidden * ((HIDDEN_VALUES - DIVIDED_VALUES) * width + NORM_BYTES)
    token += divide_up(divided, hyper.tensor_parallel)
    if device == "cuda" and base.family in FUSED_FAMILIES:
        inside = divide_up(inner * FUSED_INNER_VALUES * width, hyper.tensor_parallel)
        token -= hidden * FUSED_NORM_BYTES + inside
    if device == "cpu" and base.proof is not None:  # not less: its small model may keep less
        token = token * max(PPM, base.proof.kept_ppm) // PPM
    if hyper.dora:
        token += (DORA_HIDDEN * hidden + DORA_INNER * inner) * width
    if hyper.dropout_ppm:
        token += (DROPOUT_INPUTS * hidden + inner) * DROPOUT_WIDTHS[device] * width
    # between documents; SDPA itself keeps nothing of a pair
    mask = width * kept.pairs + base.eager_heads * PAIR_BYTES * kept.pairs
    at_work = base.eager_heads * PAIR_BYTES_AT_WORK * kept.pairs
    # a reward is one number of an answer, and needs no logits
    labels = 0 if hyper.method == REWARD else kept.labels
    logits = labels * (base.vocabulary or VOCABULARY) * LOGIT_BYTES
    if device == "cuda" and hyper.method == "supervised" and hyper.packing:
        logits = min(logits, labels * hidden * FUSED_LABEL_BYTES)
    percent = KEPT_PERCENT[device][precision]
    layer = (kept.tokens * token * percent + mask * max(100, percent)) // 100
    # Keys and values of the tokens that other ranks compute.
    layer += (hyper.context_parallel - 1) * kept.tokens * 2 * hidden * width
    if hyper.recompute:  # of the others, their inputs
        inputs = layers * kept.tokens * hidden * width
        return min(layers, LAYERS_AT_WORK[device]) * layer + inputs + at_work + logits
    return layers * layer + at_work + logits
