"""How long training and evaluation will take, and the GPU time held for them.

Every rate names its measurement or its source; the hold is an upper bound.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from schemas.benchmark import Benchmark, BenchmarkKind
from schemas.model import Base
from schemas.training import Device, HyperParameters
from schemas.units import PPM, GpuMs, Ms, Tokens, divide_up
from tunery.plan.memory import GRADIENT_BYTES, WIDTH, precision_of, streamed_bytes, trained_weights
from tunery.plan.micro_batches import rows_at_once
from tunery.work.spec import MEASURED_TOKENS_MAX, Engine

# LoRA trains at 4 FLOPs per parameter and token: forward 2, backward 2 (frozen weights need no
# weight gradients). For one slot (two cores) 313 packed tokens a second were measured on
# SmolLM2-135M in bf16: 3.2 ms a token. Without the passes over its vocabulary for the labelled half
# of them that is 2.9 ms for 4 × 135 M, so 0.19 TFLOP/s.
FLOPS_PER_PARAMETER: Final = 4
FLOPS_PER_MS: Final[Mapping[Device, int]] = {
    "cpu": 188_000_000,
    # 40 % of an H100's 989 TFLOP/s dense bf16 would be 395; published LoRA rates are about half
    # of that with recompute (8 k tokens/s for an 8 B model), so 200.
    "cuda": 200_000_000_000,
}
# The loss of a labelled token passes over the logits of the whole vocabulary at any width of
# the model: 1.2 ms of CPU for 49,152 of them on two cores, half of it in wall time (measured; width
# 64 and 128, fp32, forward and backward). Most of a step of a tiny model is this. On a GPU it is
# below a hundredth of the layers.
LOGITS_PER_MS: Final[Mapping[Device, int]] = {"cpu": 77_000, "cuda": 200_000_000}
# Time of a training by that of LoRA on packed rows, in tenths; several multiply. Rough: recompute
# repeats the forward pass, and QLoRA took 4 to 35 % more on an A100 in the tables of Qwen-7B. How
# much they are on a machine, `bench.adaptation` measures.
RECOMPUTE_TENTHS: Final = 14
UNPACKED_TENTHS: Final = 13
DORA_TENTHS: Final = 15
# Gradients of all weights are computed: 6 FLOPs per parameter and token instead of 4. On a CPU the
# optimizer's pass over them comes on top: 84 tokens a second against 150 to 158 in fp32, 134
# against 273 to 315 in bf16 (measured, SmolLM2-135M, one core).
FULL_TENTHS: Final[Mapping[Device, int]] = {"cpu": 20, "cuda": 15}
QLORA_TENTHS: Final[Mapping[Device, int]] = {"cpu": 12, "cuda": 13}
# Muon makes the update of a matrix orthogonal by 5 steps of Newton and Schulz, each of 4 FLOPs for
# the square of its narrower width by the wider, and 2 for the cube of the narrower.
ORTHOGONAL_STEPS: Final = 5
# 5 GFLOP/s of a processor without bf16 were measured, on two cores with other work; the hold has
# room for a third of this rate.
ORTHOGONAL_FLOPS_PER_MS: Final[Mapping[Device, int]] = {
    "cpu": 10_000_000,
    "cuda": FLOPS_PER_MS["cuda"],
}
LAYER_MATRICES: Final = 7
# To a device and back: PCIe 4.0 moves 31.5 GB/s over 16 lanes in theory. Not measured.
BUS_BYTES_PER_MS: Final = 20_000_000
# Bus bandwidth of collectives, as nccl-tests count it. gloo over loopback, two ranks: 166 MB/s for
# 67 MB (measured beside other work on two threads of one core). NCCL over NVLink 4: what is
# published for 8 H100 is 300 to 480 GB/s; not measured. Links between nodes are not known here.
COLLECTIVE_BYTES_PER_MS: Final[Mapping[Device, int]] = {"cpu": 166_000, "cuda": 300_000_000}
PASSES: Final = 2  # of a micro-batch over the layers: forward and backward
# Passes of an evaluation, each of which copies all layers where the base does not fit the device:
# rough, some 250 items in parts, and one for each token that is written.
EVAL_PASSES: Final = 1_000
EVAL_DEVICE_BYTES: Final = 80_000_000_000  # of the usual device, which a spec does not name
MINUTE_MS: Final = 60_000
# Imports, the packing self-check and the first step; 11 to 22 s with the training of nine jobs of
# 2,000 to 6,000 tokens (measured, two cores).
START_UP_MS: Final = 8_000
START_UP_MS_MAX: Final = MINUTE_MS  # on a busy machine with a cold disk
LOAD_PARAMETERS_PER_MS: Final = 250_000  # bf16 weights at 0.5 GB/s, a slow disk
# Scoring base and adapter on 249 items and a small holdout: 23 to 78 s with the start for 135 M
# parameters on one slot, 32 s in the middle.
EVAL_FLOPS_PER_PARAMETER: Final = 25_000 * FLOPS_PER_MS["cpu"] // 135_000_000
# Own prompts are answered with up to 128 tokens instead of 40: twice the decoding of an evaluation,
# which is about a third of it.
OWN_PROMPTS_FLOPS_PER_PARAMETER: Final = EVAL_FLOPS_PER_PARAMETER * 3 // 10
# To write a token takes as long as to train on so many; rough: a pass for each, of one prompt's
# answers at a time.
WRITING_FACTOR: Final = 3
# Prompts that validate are answered, so few of them are: rows, and prompts of each.
GRADED_ROWS_MAX: Final = 4
GRADED_PROMPTS_MAX: Final = 8
# The file of a benchmark has about 3 bytes a token with its JSON; answers are at most this long.
BYTES_PER_TOKEN: Final = 3
WRITTEN_TOKENS: Final[Mapping[BenchmarkKind, int]] = {
    "choices": 0,
    "shares": 0,
    "numbers": 256,
    "safety": 80,
}
# Use must never exceed a hold, so it is generous: what is not used is released at the end.
HOLD_FACTOR: Final = 3
# How far the newest jobs may move a hold: small ones teach little about large ones.
PACE_PPM_MIN: Final = PPM // 2
PACE_PPM_MAX: Final = 8 * PPM
START_FACTOR: Final = 3
START_MS_MIN: Final = 10 * MINUTE_MS
# Per slot, for training and for evaluation each: a busy machine starts slowly, and perhaps twice.
HOLD_MS_MIN: Final = 4 * MINUTE_MS
# The same where no job has shown yet how fast the pool is. Of 8 minutes for both the demo, which
# loses its machine, had used 5.1 with two thirds of its steps, on a busy machine.
FIRST_HOLD_MS_MIN: Final = 10 * MINUTE_MS
# What a training leaves of them to the evaluation at least.
EVAL_MS_MIN: Final = 2 * START_UP_MS_MAX
# What a step takes besides its tokens: 0.3 s alone, 1.3 s at a load of five processes a core (the
# tiny model of the tests).
STEP_MS: Final = 300


def train_ms(
    base: Base,
    hyper: HyperParameters,
    tokens: Tokens,
    slots: int,
    device: Device,
    *,
    labelled: Tokens,
) -> Ms:
    """Expected time of training on `tokens`, the same ones counted once for each epoch.

    labelled: those of them that the loss counts.
    """
    flops, divisor = tokens * FLOPS_PER_PARAMETER * base.parameters, FLOPS_PER_MS[device] * slots
    for is_so, tenths in (
        (hyper.recompute, RECOMPUTE_TENTHS),
        (not hyper.packing, UNPACKED_TENTHS),
        (hyper.dora, DORA_TENTHS),
        (hyper.adaptation == "qlora", QLORA_TENTHS[device]),
        (hyper.adaptation == "full", FULL_TENTHS[device]),
    ):
        if is_so:
            flops, divisor = flops * tenths, divisor * 10
    loss_ms = divide_up(labelled * base.vocabulary, LOGITS_PER_MS[device] * slots)
    layers_ms = divide_up(flops, divisor)
    if hyper.offload:  # copied while others compute: in the forward and in the backward pass
        micro_batches = divide_up(tokens, rows_at_once(hyper) * hyper.max_length * slots)
        layers_ms = max(layers_ms, PASSES * micro_batches * pass_ms(base, hyper, device))
    return _start_ms(base) + layers_ms + loss_ms + _muon_ms(base, hyper, tokens, device)


def _muon_ms(base: Base, hyper: HyperParameters, tokens: Tokens, device: Device) -> Ms:
    """Expected time that all steps of Muon take beyond AdamW's."""
    if hyper.optimizer != "muon":
        return 0
    steps = divide_up(tokens, hyper.batch_size * hyper.max_length)
    wide = max(base.inner_size, base.hidden_size)
    is_whole = hyper.adaptation == "full"
    narrow = base.hidden_size if is_whole else hyper.rank
    matrices = base.layers * LAYER_MATRICES * (1 if is_whole else 2)  # A and B
    flops = ORTHOGONAL_STEPS * (4 * narrow**2 * wide + 2 * narrow**3)
    return divide_up(steps * matrices * flops, ORTHOGONAL_FLOPS_PER_MS[device])


def collectives_ms(base: Base, hyper: HyperParameters, ranks: int, device: Device) -> Ms:
    """Expected time of a step for what its ranks send each other, as if nothing hid it.

    Copied weights: one all-reduce of the gradients in fp32. Shares: for each round of micro-batches
    an all-gather of all weights in either pass, and a reduce-scatter of the gradients. Divided
    matrices: of those a rank's part alone, and four all-reduces of hidden states in each layer.
    Divided rows: keys and values of each layer in either pass, as wide as the model.
    """
    if ranks == 1:
        return 0
    gradients = GRADIENT_BYTES * trained_weights(base, hyper)
    moved = 2 * gradients  # an all-reduce is a reduce-scatter and an all-gather
    if Engine.from_log(hyper, ranks).is_sharded:
        weights = WIDTH[precision_of(hyper, device)] * base.parameters
        in_row = hyper.tensor_parallel * hyper.context_parallel
        rounds = divide_up(hyper.accumulation * in_row, ranks)
        moved = divide_up(rounds * (PASSES * weights + gradients), hyper.tensor_parallel)
        if hyper.tensor_parallel > 1:
            states = rows_at_once(hyper) * hyper.max_length * base.hidden_size * base.layers
            width = WIDTH[precision_of(hyper, device)]
            moved += rounds * 2 * PASSES * 2 * states * width
    if hyper.context_parallel > 1:
        rounds = divide_up(hyper.accumulation * hyper.context_parallel, ranks)
        row = rows_at_once(hyper) * hyper.max_length * base.hidden_size * base.layers
        moved += rounds * PASSES * 2 * row * WIDTH[precision_of(hyper, device)]
    return divide_up(moved * (ranks - 1), COLLECTIVE_BYTES_PER_MS[device] * ranks)


def pass_ms(base: Base, hyper: HyperParameters, device: Device) -> Ms:
    """Expected time of copying all layers to a device once, which `offload` does in each pass."""
    return divide_up(streamed_bytes(base, hyper, device), BUS_BYTES_PER_MS)


def streamed_eval_ms(base: Base, hyper: HyperParameters, device: Device, graded: Tokens = 0) -> Ms:
    """Return the extra time of an evaluation where the base does not fit the device.

    graded: tokens, see `eval_ms`
    """
    passes = EVAL_PASSES + graded // WRITING_FACTOR
    copied_bytes = streamed_bytes(base, hyper, device)
    is_too_large = hyper.shard_weights and copied_bytes > EVAL_DEVICE_BYTES
    if not hyper.offload and not is_too_large:
        return 0
    sides = 2 if hyper.adaptation == "full" else 1  # the base, and the model that was trained
    return sides * passes * pass_ms(base, hyper, device)


def eval_ms(
    base: Base, slots: int, device: Device, *, own_prompts: bool = False, graded: Tokens = 0
) -> Ms:
    """Expected time of one evaluation.

    own_prompts: it answers prompts of the tenant. graded: `graded_tokens` and `measured_tokens` of
    either side.
    """
    own = OWN_PROMPTS_FLOPS_PER_PARAMETER if own_prompts else 0
    own += 2 * FLOPS_PER_PARAMETER * graded
    flops = (EVAL_FLOPS_PER_PARAMETER + own) * base.parameters
    return _start_ms(base) + divide_up(flops, FLOPS_PER_MS[device] * slots)


def sampling_ms(base: Base, slots: int, device: Device) -> Ms:
    """Expected time of answering a job's prompts once during its training: 40 tokens each."""
    flops = OWN_PROMPTS_FLOPS_PER_PARAMETER * base.parameters // 4
    return divide_up(flops, FLOPS_PER_MS[device] * slots)


def rollout_tokens(hyper: HyperParameters, prompts: int, passed: Tokens) -> Tokens:
    """Return the equivalent length of a training on prompts: tokens of all answers, each written
    once.

    prompts: number of prompts in all epochs
    passed: tokens of these prompts
    """
    written = hyper.max_completion_length * (1 + WRITING_FACTOR)
    answered = hyper.num_generations * (passed + prompts * written)
    return answered + hyper.n_epochs * graded_tokens(hyper)


def graded_tokens(hyper: HyperParameters) -> int:
    """Tokens that an evaluation of a model's answers to prompts is as long as."""
    return GRADED_ROWS_MAX * GRADED_PROMPTS_MAX * hyper.max_completion_length * WRITING_FACTOR


def benchmark_tokens(benchmarks: Sequence[Benchmark], items_max: int) -> Tokens:
    """Tokens that an evaluation with benchmarks is as long as, on each side."""
    return sum(_tokens_of(benchmark, items_max) for benchmark in benchmarks)


def _tokens_of(benchmark: Benchmark, items_max: int) -> Tokens:
    items = min(benchmark.items, items_max)
    read = divide_up(benchmark.bytes * items, benchmark.items * BYTES_PER_TOKEN)
    written = WRITTEN_TOKENS[benchmark.kind] * WRITING_FACTOR
    return read + items * written


def measured_tokens(rows: int) -> int:
    """Training tokens that take as long as evaluating this number of measured rows on one side."""
    return rows * MEASURED_TOKENS_MAX * WRITING_FACTOR


def hold_of(gpu_ms: GpuMs, slots: int, pace_ppm: int = PPM, floor_ms: Ms = HOLD_MS_MIN) -> GpuMs:
    """Return the GPU time to hold for work that the formula expects to take `gpu_ms`: an upper
    bound.

    pace_ppm: recent actual duration of such work, in millionths of the formula.
    floor_ms: least time of each slot.
    """
    expected = gpu_ms * min(max(pace_ppm, PACE_PPM_MIN), PACE_PPM_MAX) // PPM
    return max(HOLD_FACTOR * expected, floor_ms * slots)


def start_ms_max(base: Base) -> Ms:
    """How long an attempt may take to start: files are hashed and loaded, by several times slower
    disks than the estimate's.
    """
    read_ms = base.parameters // LOAD_PARAMETERS_PER_MS
    return max(START_MS_MIN, START_FACTOR * (START_UP_MS_MAX + 2 * read_ms))


def _start_ms(base: Base) -> Ms:
    return START_UP_MS + base.parameters // LOAD_PARAMETERS_PER_MS
