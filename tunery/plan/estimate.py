"""The estimate of one job: steps, tokens, GPU time, memory and price.

The gateway shows it before a job is submitted; the `job` decider takes its hold from the same one.
"""

from typing import Final

from msgspec.structs import replace

from schemas.dataset import BaseTokens
from schemas.envelope import Reason
from schemas.model import Base
from schemas.reasons import refusing
from schemas.session import SessionTerms
from schemas.submission import Budget, Estimate, JobSpec, Pace
from schemas.training import HyperParameters, LeaseHardware
from schemas.units import PPM, GpuMs, Micro, Tokens
from tunery.plan.memory import memory_of_variants
from tunery.plan.methods import NEED_REFERENCE, REWARD
from tunery.plan.packing import mixed, packed, steps_of_epoch
from tunery.plan.price import dearest_micro, hourly_micro, price_micro
from tunery.plan.time import (
    EVAL_MS_MIN,
    FIRST_HOLD_MS_MIN,
    HOLD_FACTOR,
    HOLD_MS_MIN,
    STEP_MS,
    benchmark_tokens,
    collectives_ms,
    eval_ms,
    graded_tokens,
    hold_of,
    measured_tokens,
    rollout_tokens,
    sampling_ms,
    streamed_eval_ms,
    train_ms,
)

EVAL_SLOTS: Final = 1  # it is one process, whatever the training was
AS_EXPECTED: Final = Pace(train_ppm=PPM, eval_ppm=PPM)


def without_rows(base: Base) -> BaseTokens:
    """Return the tokens of no file."""
    return BaseTokens(
        base_id=base.base_id,
        base_sha256=base.sha256,
        tokens=0,
        trainable_tokens=0,
        longest_row_tokens=0,
    )


def estimate(spec: JobSpec, tokens: BaseTokens) -> Estimate:
    """Return the expected use of one job in GPU-milliseconds (slots × elapsed), hold, memory and
    price.

    Time, steps and tokens of variants that run one after the other add up.
    tokens: tokens of the training file; the spec has those of further files
    """
    if spec.session is not None:
        return _session_estimate(spec, spec.session)
    tokens = mixed(tokens, spec.mixture)
    base, slots, device = spec.base, spec.slots, spec.device
    hypers = tuple(variant.hyper for variant in spec.variants) or (spec.hyper,)
    if spec.length_policy == "split" and tokens.longest_row_tokens > spec.hyper.max_length:
        # each part begins with the last token before it
        repeated = tokens.tokens // (spec.hyper.max_length - 1)
        tokens = replace(tokens, tokens=tokens.tokens + repeated)
    each = [_training(spec, hyper, tokens) for hyper in hypers]
    trained, steps, train = (sum(figures) for figures in zip(*each, strict=True))
    evaluate = max(_evaluation(spec, hyper) for hyper in hypers)
    pace = spec.pace or AS_EXPECTED
    floor_ms = HOLD_MS_MIN if spec.pace else FIRST_HOLD_MS_MIN
    if spec.evaluation is not None:
        trained = steps = train = hold = 0
    else:
        hold = hold_of(train, slots, pace.train_ppm, floor_ms)
        hold = max(hold, HOLD_FACTOR * slots * steps * STEP_MS)
    hold += hold_of(evaluate, EVAL_SLOTS, pace.eval_ppm, floor_ms)
    price = spec.price
    return Estimate(
        tokens=trained,
        steps=steps,
        train_gpu_ms=train,
        eval_gpu_ms=evaluate,
        hold_gpu_ms=hold,
        memory_bytes=memory_of_variants(base, hypers, device, tokens, slots),
        price_micro=_expected_micro(spec, train, evaluate, trained),
        price_max_micro=price_micro(price, hold * dearest_micro(price, device), trained),
        currency=price.currency,
    )


def _session_estimate(spec: JobSpec, session: SessionTerms) -> Estimate:
    """Return the most that a session's commands may use, as they are not known in advance."""
    base, price, gpu_ms = spec.base, spec.price, spec.slots * session.max_ms
    return Estimate(
        tokens=session.max_tokens,
        steps=0,
        train_gpu_ms=gpu_ms,
        eval_gpu_ms=0,
        hold_gpu_ms=gpu_ms,
        memory_bytes=memory_of_variants(base, (spec.hyper,), spec.device, ranks=spec.slots),
        price_micro=_expected_micro(spec, gpu_ms, 0, session.max_tokens),
        price_max_micro=price_micro(
            price, gpu_ms * dearest_micro(price, spec.device), session.max_tokens
        ),
        currency=price.currency,
    )


def _training(
    spec: JobSpec, hyper: HyperParameters, tokens: BaseTokens
) -> tuple[Tokens, int, GpuMs]:
    """Trained tokens, steps and time of one training.

    Steps and tokens are those that will run, where `packed` knows them; the time is that of all
    rows, as those that validate pass through the model as well.
    """
    base, slots, device = spec.base, spec.slots, spec.device
    plan = packed(tokens, hyper.max_length, spec.validation_fraction_ppm)
    trained = plan.tokens * hyper.n_epochs
    passed = tokens.tokens * hyper.n_epochs
    steps = steps_of_epoch(plan.packed_rows, hyper.batch_size) * hyper.n_epochs
    if hyper.max_steps:
        steps = min(steps, hyper.max_steps)
        longest = steps * hyper.batch_size * hyper.max_length
        trained, passed = min(trained, longest), min(passed, longest)
    if hyper.method in NEED_REFERENCE:  # one pass more, without gradients
        passed += tokens.tokens // 2
    if hyper.method == "kto":  # and one of mismatched answers, then and in each epoch
        passed += (passed + tokens.tokens) // 2
    labelled = passed * tokens.trainable_tokens // max(1, tokens.tokens)
    if hyper.method == REWARD:
        labelled = 0
    if hyper.method == "reinforcement":  # a prompt has one label
        passed = rollout_tokens(hyper, labelled, passed)
        labelled *= hyper.num_generations * hyper.max_completion_length
    train = slots * train_ms(base, hyper, passed, slots, device, labelled=labelled)
    train += slots * steps * collectives_ms(base, hyper, slots, device)
    if hyper.sample_every_steps:
        train += slots * sampling_ms(base, slots, device) * (steps // hyper.sample_every_steps)
    return trained, steps, train


def _evaluation(spec: JobSpec, hyper: HyperParameters) -> GpuMs:
    """Time of the evaluation of what a training leaves."""
    own = spec.prompts is not None
    graded = graded_tokens(hyper) if hyper.method == "reinforcement" else 0
    graded += measured_tokens(spec.measured_rows)
    graded += benchmark_tokens(spec.benchmarks, spec.benchmark_items)
    evaluate = eval_ms(spec.base, EVAL_SLOTS, spec.device, own_prompts=own, graded=graded)
    return EVAL_SLOTS * (evaluate + streamed_eval_ms(spec.base, hyper, spec.device, graded))


def eval_hold(spec: JobSpec, needs: Estimate) -> GpuMs:
    """The part of a job's hold that its training leaves to the evaluation."""
    if spec.session is not None:
        return 0
    pace_ppm = (spec.pace or AS_EXPECTED).eval_ppm
    return hold_of(needs.eval_gpu_ms, EVAL_SLOTS, pace_ppm, EVAL_MS_MIN)


def is_bounded_by_training(spec: JobSpec) -> bool:
    """Whether an evaluation is billed at most as much GPU time as its training.

    It is not where it answers what the tenant asks for besides the gate, and nothing was trained.
    """
    trains = spec.evaluation is None and spec.session is None
    return trains and spec.measures is None and spec.prompts is None


def corrected(spec: JobSpec, needs: Estimate) -> Estimate:
    """An estimate by the pace of such jobs: what is expected changes, and never above the hold."""
    pace = spec.pace or AS_EXPECTED
    eval_gpu_ms = min(needs.eval_gpu_ms * pace.eval_ppm // PPM, eval_hold(spec, needs))
    train_gpu_ms = min(needs.train_gpu_ms * pace.train_ppm // PPM, needs.hold_gpu_ms - eval_gpu_ms)
    return replace(
        needs,
        train_gpu_ms=train_gpu_ms,
        eval_gpu_ms=eval_gpu_ms,
        price_micro=_expected_micro(spec, train_gpu_ms, eval_gpu_ms, needs.tokens),
    )


def _expected_micro(spec: JobSpec, train_gpu_ms: GpuMs, eval_gpu_ms: GpuMs, tokens: int) -> Micro:
    price, expected_on = spec.price, LeaseHardware(device=spec.device)
    expected = train_gpu_ms * hourly_micro(price, "train", expected_on)
    if is_bounded_by_training(spec):
        eval_gpu_ms = min(eval_gpu_ms, train_gpu_ms)
    expected += eval_gpu_ms * hourly_micro(price, "eval", expected_on)
    return price_micro(price, expected, tokens)


def over_budget(budget: Budget | None, needs: Estimate) -> Reason | None:
    """Why a job cannot start under its budget; None when it can."""
    if budget is None:
        return None
    gpu_ms, amount = budget.max_gpu_ms, budget.max_amount_micro
    if gpu_ms is not None and gpu_ms < needs.hold_gpu_ms:
        return refusing("budget_gpu_hours", hold_gpu_ms=needs.hold_gpu_ms, budget_gpu_ms=gpu_ms)
    if amount is not None and amount < needs.price_max_micro:
        return refusing(
            "budget_amount",
            price_max_micro=needs.price_max_micro,
            currency=needs.currency,
            budget_micro=amount,
        )
    return None
