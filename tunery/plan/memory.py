"""Peak memory of one training slot, by what a step keeps: each constant is counted or measured.

The trainer keeps all activations for the backward pass, unless it is told to compute them again
(`recompute`), and gives every labelled position its logits. A test trains
such shapes and compares their peak with this: `tests/integration/tunery/ml/test_memory.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from schemas.dataset import BaseTokens
from schemas.model import Base
from schemas.training import Device, HyperParameters
from schemas.units import divide_up
from tunery.plan.methods import REWARD
from tunery.plan.micro_batches import rows_at_once

# LoRA on all linear layers has about 1.6 × parameters / hidden size parameters per rank
# (measured 1.3 for SmolLM2-135M, 1.34 for Llama-3.1-8B with their embeddings counted).
LORA_TENTHS: Final = 16
GRADIENT_BYTES: Final = 4  # fp32, as the masters are
LORA_BYTES: Final = 16  # fp32 master, gradient, two Adam moments; the adapter itself comes on top
# Of a weight, where all are trained: gradient, two moments; master, unless the weight is fp32.
FULL_BYTES: Final[Mapping[str, int]] = {"bf16": 16, "fp32": 12}
LAYER_PARAMETERS_PER_HIDDEN_SQUARED: Final = 12
INNER_PER_HIDDEN: Final = 3  # width of the inner layer, where the base's record does not say
VOCABULARY: Final = 131_072  # likewise
# What autograd keeps of one token in one layer, in values of the weights' type per unit of width
# (queries, keys, values, output, inputs of adapters; inside: gate, activation, product, input of
# the adapter) and in bytes (two norms in fp32). Dropout keeps its noise and its output for each of
# seven adapters.
HIDDEN_VALUES: Final = 8
INNER_VALUES: Final = 4
NORM_BYTES: Final = 16
# DoRA keeps the outputs of the base and of the adapter, of each layer.
DORA_HIDDEN: Final = 10
DORA_INNER: Final = 4
DROPOUT_INPUTS: Final = 6  # of the hidden width; the seventh has the inner width
# Of a pair of tokens in each head, where attention is computed without SDPA: its weight in fp32,
# and in the weights' type or what it was before it was capped. While one layer is at work, the
# score, its mask and gradients are there, too.
PAIR_BYTES: Final = 8
PAIR_BYTES_AT_WORK: Final = 16
# Of one logit: fp32 log-probabilities and two gradients of them (measured 11.8 to 12.9).
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
# Of a value that dropout saw, times the width of a weight: its noise and its output; on an
# accelerator a byte of noise, and some.
DROPOUT_WIDTHS: Final[Mapping[Device, int]] = {"cpu": 2, "cuda": 1}
# Of each weight where all are trained: what AdamW needs while it computes all of them at once.
STEP_BYTES: Final[Mapping[Device, int]] = {"cpu": 0, "cuda": 4}
SHARD_BYTES: Final = 6  # of a token of the training file: the file and a byte of labels
# Of 1,000 weights in NF4: half a byte each, and for 64 a scale of a byte and some (QLoRA, §3).
FOUR_BIT_BYTES: Final = 516
WIDTH: Final[Mapping[str, int]] = {"bf16": 2, "fp32": 4}
# "auto" takes bf16 where the processor multiplies it: on a CPU the larger one is counted.
AUTO_PRECISION: Final[Mapping[Device, str]] = {"cpu": "fp32", "cuda": "bf16"}
CONTEXT_BYTES: Final = 650_000_000  # CUDA's own of each process, which PyTorch does not count
QUANTISING_BYTES: Final = 54_000_000  # of bitsandbytes in a process, which QLoRA alone loads
LAYERS_STREAMED: Final = 2  # on the device at once with `offload`: one computes, one is copied
LAYERS_SHARDED: Final = 1  # with `shard_weights`: nothing is brought while a layer computes
SHARDED_BYTES: Final = 16  # of a weight in the rank that has it: master, sum of gradients, moments
# process, libraries, allocator; on an accelerator: context, work space of its libraries
OVERHEAD_BYTES: Final[Mapping[Device, int]] = {
    "cpu": 966_000_000,
    "cuda": CONTEXT_BYTES + 160_000_000,
}


# A replica keeps this many models, each with the keys and values of so many tokens in 16 bits; the
# weights, in 32 bits at most, are shared. As the engine's settings are unless they are changed.
MODELS_KEPT: Final = 4
TOKENS_KEPT: Final = 4 * 4_096


@dataclass(frozen=True)
class _Kept:
    """What a row of a micro-batch is from its forward pass to its backward pass.

    labels: tokens that are given logits
    pairs: of tokens that a mask is about
    """

    tokens: int
    labels: int
    pairs: int


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
    """Peak memory of one slot: weights, optimizer, one micro-batch, rows, process.

    tokens: of the training file; None: rows are as long as they may be, the file is not counted
    ranks: that share the optimizer, and with `shard_weights` the weights
    """
    precision = precision_of(hyper, device)
    in_file = 0 if tokens is None else tokens.tokens
    row = hyper.max_length if tokens is None else min(hyper.max_length, max(1, in_file))
    kept = _Kept(row, row, row * row)
    if hyper.method == "reinforcement":
        kept = _rollouts(hyper, row, tokens)
    at_once = rows_at_once(hyper) * _row_bytes(base, kept, precision, hyper, device)
    trained = _trained_bytes(base, hyper, device, ranks)
    besides = OVERHEAD_BYTES[device]
    if device == "cpu":
        besides += SHARD_BYTES * in_file
        besides += QUANTISING_BYTES if hyper.adaptation == "qlora" else 0
    return base_bytes(base, hyper, device) + trained + at_once + besides


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
    return AUTO_PRECISION[device] if hyper.precision == "auto" else hyper.precision


def _bytes_of_others(base: Base, hyper: HyperParameters, device: Device, ranks: int) -> int:
    """Of masters and moments that other ranks have: each has those of its share of the weights.

    Gradients are summed once a step: until then each rank has its own of all weights.
    """
    weights = trained_weights(base, hyper)
    share = _share(base, hyper, ranks)
    each = FULL_BYTES[precision_of(hyper, device)] - GRADIENT_BYTES
    if hyper.adaptation == "full":
        each += STEP_BYTES[device]
    return each * (weights - share)


def _share(base: Base, hyper: HyperParameters, ranks: int) -> int:
    """Trained weights that are dealt to a rank: whole tensors, none of which is larger than the
    table of tokens.
    """
    weights = trained_weights(base, hyper)
    largest = 0
    if hyper.adaptation == "full" or hyper.modules_to_save:
        largest = (base.vocabulary or VOCABULARY) * base.hidden_size
    return min(weights, max(largest, divide_up(weights, ranks)))


def _sharded_bytes(base: Base, hyper: HyperParameters, device: Device, ranks: int) -> int:
    """What a rank keeps of its own weights, and gradients of a micro-batch until they are handed
    over: of a layer, and of the tables of tokens.
    """
    own = (SHARDED_BYTES + STEP_BYTES[device]) * _share(base, hyper, ranks)
    layers = layers_weights(base)
    passing = base.parameters - layers + divide_up(layers, _layers(base))
    return own + (_width(hyper, device) + GRADIENT_BYTES) * passing


def _trained_bytes(base: Base, hyper: HyperParameters, device: Device, ranks: int) -> int:
    """What is trained, with its gradients and the state of its optimizer."""
    if hyper.shard_weights:
        return _sharded_bytes(base, hyper, device, ranks)
    width = _width(hyper, device)
    trained = (LORA_BYTES + width) * trained_weights(base, hyper)
    if hyper.adaptation == "full":
        trained = (FULL_BYTES[precision_of(hyper, device)] + STEP_BYTES[device]) * base.parameters
        if hyper.best_checkpoint:
            trained += width * base.parameters
    return trained - _bytes_of_others(base, hyper, device, ranks)


def trained_weights(base: Base, hyper: HyperParameters) -> int:
    """How many weights are trained: all, or those of the adapter and of layers as a whole."""
    if hyper.adaptation == "full":
        return base.parameters
    rank = max((hyper.rank, *(rank for _, rank in hyper.rank_pattern)))
    adapter = LORA_TENTHS * rank * base.parameters // (10 * max(base.hidden_size, 1))
    return adapter + _whole_layers(base, hyper)


def _rollouts(hyper: HyperParameters, row: int, tokens: BaseTokens | None) -> _Kept:
    """Of a packed row of prompts: each prompt with each of its answers, in a row of its own."""
    of_file = 1 if tokens is None else max(1, tokens.tokens)
    prompts = 1 if tokens is None else divide_up(row * tokens.trainable_tokens, of_file)
    prompts = max(1, prompts)
    answers, longest = prompts * hyper.num_generations, hyper.max_completion_length
    width = divide_up(row, prompts) + longest
    return _Kept(answers * width, answers * longest, answers * width * width)


def base_bytes(base: Base, hyper: HyperParameters, device: Device) -> int:
    """The weights of the base; with QLoRA its tables of tokens stay as wide as they are.

    With `offload` a device has those and two layers; a processor has the buffers of both on top.
    With `shard_weights` either has them and one layer.
    """
    width = _width(hyper, device)
    layers = layers_weights(base)
    if hyper.adaptation == "qlora":
        return width * (base.parameters - layers) + layers * FOUR_BIT_BYTES // 1_000
    if hyper.shard_weights:
        buffers = LAYERS_SHARDED * divide_up(layers, _layers(base))
        return width * (base.parameters - layers + buffers)
    if not hyper.offload:
        return width * base.parameters
    buffers = LAYERS_STREAMED * divide_up(layers, _layers(base))
    kept = base.parameters if device == "cpu" else base.parameters - layers
    return width * (kept + buffers)


def streamed_bytes(base: Base, hyper: HyperParameters, device: Device) -> int:
    """What a pass over all layers copies to a device with `offload` or `shard_weights`."""
    return _width(hyper, device) * layers_weights(base)


def layers_weights(base: Base) -> int:
    """Weights of all layers: all but the tables of tokens."""
    tables = (base.vocabulary or VOCABULARY) * base.hidden_size * (1 if _is_tied(base) else 2)
    return max(0, base.parameters - tables)


def _width(hyper: HyperParameters, device: Device) -> int:
    """Bytes of a weight."""
    return WIDTH[precision_of(hyper, device)]


def _layers(base: Base) -> int:
    """How many there are; where the base's record does not say, by its size and width."""
    hidden = max(base.hidden_size, 1)
    by_size = divide_up(base.parameters, LAYER_PARAMETERS_PER_HIDDEN_SQUARED * hidden * hidden)
    return base.layers or max(1, by_size)


def _is_tied(base: Base) -> bool:
    """Whether one table reads and writes tokens: then two leave too little for the layers.

    Queries and outputs are as wide as the model at least, keys and values may be much narrower.
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
    """What a packed row keeps from its forward pass to its backward pass."""
    width = WIDTH[precision]
    hidden = max(base.hidden_size, 1)
    inner = base.inner_size or INNER_PER_HIDDEN * hidden
    layers = _layers(base)
    token = hidden * (HIDDEN_VALUES * width + NORM_BYTES) + inner * INNER_VALUES * width
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
    if hyper.recompute:  # of the others, their inputs
        inputs = layers * kept.tokens * hidden * width
        return min(layers, LAYERS_AT_WORK[device]) * layer + inputs + at_work + logits
    return layers * layer + at_work + logits
