"""One attempt at one training run, from verified inputs to a canonical adapter."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import torch
from msgspec.structs import replace
from transformers import AutoConfig

from schemas.training import drop_defaults
from tunery.ml import checkpoints, device, trained
from tunery.ml.beats import Beats
from tunery.ml.durable import digest_file
from tunery.ml.engines import TrainingEngine, check_engine, engine_environment, start_engine
from tunery.ml.events import EventWriter
from tunery.ml.kernels import unmeasured
from tunery.ml.language import load_tokenizer
from tunery.ml.loop import VALID_ROWS_MAX, TrainingLoop
from tunery.ml.loss import prove_packing
from tunery.ml.model import LoadBase, load_base, load_model
from tunery.ml.model_scores import model_scores_of
from tunery.ml.order import ORDER_VERSION, StepPlan, plan_steps
from tunery.ml.packed import PackedRows, read_rows
from tunery.ml.proofs import Proofs
from tunery.ml.ranks import ALONE, Ranks, digest_of
from tunery.ml.self_check import DIFFERENT, EQUAL, steps_repeat
from tunery.ml.training_run import TrainingRun
from tunery.platform.blobs.base_files import default_cache, matches
from tunery.platform.blobs.files import file_sha256
from tunery.work.events import Finished, Noted, Preempted, SkippedCandidate, Started
from tunery.work.exits import ExitCode, WorkError
from tunery.work.spec import HYPER_ADDED, Hyper, ResumeCandidate, TrainSpec

ADAPTER: Final = "adapter"
SELF_CHECK: Final = "self_check"  # in the environment of a run with several ranks
EXACT: Final = (
    "the self-check of this lease took its first steps twice, to the same bytes on every rank: an "
    "attempt that goes on with as many ranks and this software ends with the same bytes"
)
INEXACT: Final = (
    "the self-check of this lease took its first steps twice, and a rank came to other bytes: an "
    "attempt that goes on sees the same rows, and its last bits may differ"
)
# A shorter training of one slot loses less where its memory runs out than a trial step costs all
# of them. Ranks take it always: it also brings shards back that the packing proof has gathered.
TRIED_FROM_STEPS: Final = 20
# Knobs that change no result
MEMORY_ALONE: Final = {"recompute": False}
Loaded: TypeAlias = tuple[ResumeCandidate, checkpoints.CheckpointManifest]


def fine_tune(
    spec: TrainSpec,
    events: EventWriter,
    must_stop: Callable[[], bool],
    load: LoadBase = load_base,
) -> ExitCode:
    """Train until done or asked to stop: it asks before the first step, and after each.

    Raises WorkError for unusable inputs and runs that diverge, RankLost where a rank has ended.
    """
    # 1. Make the computation deterministic, meet the other ranks, and check the inputs' hashes.
    hyper = spec.hyper
    check_engine(spec.engine, hyper, spec.precision, spec.ranks)
    threads = device.make_deterministic(spec.threads, spec.ranks)
    torch_device = _device_of(spec)
    ranks = _ranks_of(spec, torch_device)
    checkpoints.prepare(Path(spec.out_dir))
    vocabulary = check_base(spec)["vocab_size"]
    rows = read_rows(spec.train_shards, vocabulary=vocabulary, all_labels=hyper.train_on_prompts)
    valid = _valid_rows(spec, vocabulary)
    _check_rows(rows, hyper)
    # 2. Find the newest checkpoint that verifies and belongs to this run.
    precision: str = device.precision_on(torch_device, spec.precision)
    fingerprint = _fingerprint(spec, hyper, precision)
    loaded, skipped = checkpoints.choose(
        spec.resume, lambda manifest: _objection(spec, fingerprint, manifest)
    )
    if loaded is not None:
        fingerprint["precision"] = precision = loaded[1].run["precision"]
    # 3. Load the model, and prove that packed documents do not influence each other.
    run = TrainingRun(
        spec=spec,
        hyper=hyper,
        rows=rows,
        valid=valid,
        plan=_plan(rows, hyper),
        fingerprint=fingerprint,
        environment=_environment(spec, ranks, torch_device, threads),
        events=events,
        must_stop=lambda: ranks.any(must_stop()),
        scores=model_scores_of(spec),
        ranks=ranks,
        beats=None if ranks is ALONE else Beats(events, ranks.number),
    )
    _check_ranks(run, loaded)
    model = load_model(spec, hyper, precision, torch_device, load)
    what = trained.described(model)  # an engine may leave each rank a part of it
    engine = start_engine(run, model, torch_device)
    proofs = Proofs(run)
    packing = proofs.of_packing(
        lambda: prove_packing(model, rows, torch_device, exact=precision == "fp32")
    )
    loop = TrainingLoop(run, engine, load_tokenizer(spec, model), torch_device)
    begins_at = loaded[1].step if loaded else 0
    if run.must_stop():
        events.emit(Preempted(step=begins_at))
        return ExitCode.PREEMPTED
    # 4. Take one step on the longest rows and undo it, if none like it was taken here; train.
    _try_longest_rows(run, loop, proofs, torch_device)
    notes = [what, *unmeasured(torch_device), *_check_repetition(run, loop)]
    events.emit(_started(run, loaded, skipped, packing))
    for note in notes:
        events.emit(Noted(step=begins_at, message=note))
    step = loop.train_to_end(Path(loaded[0].dir) if loaded else None)
    # 5. Write what was trained, or exit because it was asked to stop.
    if step < run.plan.total_steps and not run.has_stopped_early:
        events.emit(Preempted(step=step, checkpoint=run.saved.dir if run.saved else None))
        return ExitCode.PREEMPTED
    _finish(run, engine, step)
    return ExitCode.FINISHED


def _device_of(spec: TrainSpec) -> torch.device:
    """The device of this rank. Raises as `pick_device`."""
    if spec.engine.name == "single":
        return device.pick_device(spec.accelerators, spec.devices[0] if spec.devices else "")
    name = spec.devices[int(os.environ.get("RANK", "0"))] if spec.devices else ""
    return device.pick_device(spec.accelerators, name, int(os.environ.get("LOCAL_RANK", "0")))


def _ranks_of(spec: TrainSpec, torch_device: torch.device) -> Ranks:
    """Join the ranks of this training. Raises as `Ranks.join`."""
    if spec.engine.name == "single":
        return ALONE
    engine = spec.engine
    return Ranks.join(torch_device, spec.ranks, engine.tensor_parallel, engine.context_parallel)


def _environment(
    spec: TrainSpec, ranks: Ranks, torch_device: torch.device, threads: int
) -> dict[str, str]:
    """Facts that must be equal for a resume to be equal to the bit."""
    hyper = spec.hyper
    own = device.environment(
        torch_device, threads, hyper.batch_size, bitsandbytes=hyper.needs_bitsandbytes
    )
    return own | ranks.environment() | engine_environment(spec.engine)


def _check_ranks(run: TrainingRun, loaded: Loaded | None) -> None:
    """Raises WorkError("platform") if ranks differ in their inputs or in what they compute with."""
    begins_with = loaded[0].manifest_sha256 if loaded else ""
    facts = [
        run.fingerprint,
        run.environment,
        {"begins_with": begins_with},
    ]
    content = checkpoints.canonical_json(facts).encode()
    run.ranks.check_same("inputs or libraries", hashlib.sha256(content).digest())


def _check_repetition(run: TrainingRun, loop: TrainingLoop) -> list[str]:
    """Note in the environment whether the steps of several ranks repeat, and return it in words."""
    if run.ranks is ALONE:
        return []
    is_exact = steps_repeat(loop)
    run.environment[SELF_CHECK] = EQUAL if is_exact else DIFFERENT
    return [EXACT if is_exact else INEXACT]


def _try_longest_rows(
    run: TrainingRun, loop: TrainingLoop, proofs: Proofs, torch_device: torch.device
) -> None:
    """Try a step with the longest rows first. Raises what running out of memory raises."""
    if run.ranks is ALONE and run.plan.total_steps < TRIED_FROM_STEPS:
        return

    def attempt() -> int:
        before = device.memory_in_use(torch_device)
        loop.try_longest_rows()
        return max(0, device.peak_memory_bytes(torch_device) - before)

    if not run.hyper.packing:  # what it needs follows from single documents
        attempt()
        return
    chosen = [run.rows.rows[row] for row in run.rows.longest(run.hyper.batch_size)]
    size = {
        "tokens": len(chosen) * max(len(row.input_ids) for row in chosen),
        "labels": sum(int(row.is_label.sum()) for row in chosen),
        "answers": sum(row.references for row in chosen),
    }
    proofs.of_longest_rows(size, attempt, lambda: device.free_memory(torch_device))


def check_base(spec: TrainSpec) -> dict[str, Any]:
    """The language model's configuration, once its files are known to be the ones named."""
    try:
        sha256 = matches(Path(spec.base_dir), spec.base_sha256, default_cache())
    except FileNotFoundError as error:
        raise WorkError("bad_node", str(error), "Fetch the base model again.") from error
    if sha256 is not None:
        message = f"base {spec.base_id}: its files hash to {sha256}, not {spec.base_sha256}"
        raise WorkError("bad_node", message, "Fetch the base model again.")
    config: dict[str, Any] = AutoConfig.from_pretrained(spec.base_dir).get_text_config().to_dict()
    return config


def _valid_rows(spec: TrainSpec, vocabulary: int) -> PackedRows | None:
    """A sample of the validation split; None when it has no labels."""
    if not spec.valid_shards:
        return None
    every = read_rows(
        spec.valid_shards, vocabulary=vocabulary, all_labels=spec.hyper.train_on_prompts
    )
    rows = every.sample(VALID_ROWS_MAX)
    return rows if rows.n_labels else None


def _check_rows(rows: PackedRows, hyper: Hyper) -> None:
    if not rows.n_labels:
        raise WorkError(
            "bad_data",
            "no token of the training data is a label",
            "Give every conversation an assistant turn, and every prompt a completion.",
        )
    longest = max(rows.row_tokens)
    if longest > hyper.max_length:
        message = f"a packed row has {longest} tokens, more than max_length {hyper.max_length}"
        raise WorkError("bad_data", message, "Prepare the dataset again with this max_length.")


def _plan(rows: PackedRows, hyper: Hyper) -> StepPlan:
    return plan_steps(
        rows.row_tokens,
        n_epochs=hyper.n_epochs,
        rows_per_step=hyper.batch_size * hyper.accumulation,
        seed=hyper.seed,
        max_steps=hyper.max_steps,
    )


def _fingerprint(spec: TrainSpec, hyper: Hyper, precision: str) -> dict[str, str]:
    """Everything that must be equal for two attempts to belong to the same run.

    How a step is divided into micro-batches is no part of it, nor whether activations are computed
    again, or which engine shards weights: that follows the memory. Answers to prompts change
    nothing.
    """
    rows = hyper.batch_size * hyper.accumulation
    whole = replace(hyper, batch_size=rows, accumulation=1, **MEMORY_ALONE, sample_every_steps=0)
    fields = drop_defaults(msgspec.to_builtins(whole), HYPER_ADDED)
    grader = (
        {} if spec.grader is None else {"grader": hashlib.sha256(spec.grader.encode()).hexdigest()}
    )
    return {
        **grader,
        **({} if spec.start is None else {"start": spec.start.sha256}),
        "base": spec.base_sha256,
        "data": " ".join(file_sha256(Path(path)) for path in spec.train_shards),
        "hyper": msgspec.json.encode(fields, order="sorted").decode(),
        "order": str(ORDER_VERSION),
        "precision": precision,
    }


def _objection(
    spec: TrainSpec, fingerprint: dict[str, str], manifest: checkpoints.CheckpointManifest
) -> str | None:
    """Return why a checkpoint does not belong to this run. With "auto" its precision is adopted."""
    mine = dict(fingerprint)
    if spec.precision == "auto" and manifest.run.get("precision") in ("bf16", "fp32"):
        mine["precision"] = manifest.run["precision"]
    difference = checkpoints.first_difference(mine, manifest.run)
    return f"it belongs to another run: {difference}" if difference else None


def _started(
    run: TrainingRun,
    loaded: Loaded | None,
    skipped: tuple[SkippedCandidate, ...],
    packing: float | None,
) -> Started:
    changes: tuple[tuple[str, str, str], ...] = ()
    if loaded is not None:
        changes = checkpoints.differences(run.environment, loaded[1].environment)
    return Started(
        resumed_from_step=loaded[1].step if loaded else 0,
        loaded_manifest=loaded[0].manifest_sha256 if loaded else None,
        skipped=skipped,
        total_steps=run.plan.total_steps,
        tokens_total=run.plan.tokens_total,
        tokens=loaded[1].tokens if loaded else 0,
        hyper=run.hyper,
        precision=run.fingerprint["precision"],
        environment=run.environment,
        environment_changes=changes,
        rows=len(run.rows),
        labels=run.rows.n_labels,
        packing_difference_nats=packing,
    )


def _finish(run: TrainingRun, engine: TrainingEngine, step: int) -> None:
    """Check that ranks have come to the same, and have the first one write what was trained.

    Raises WorkError("divergence") when it is not finite.
    """
    trained_now = engine.trained()  # all ranks gather it
    if not engine.passes_together:
        run.ranks.check_same("weights", digest_of(trained_now))
    if not run.ranks.is_first:
        return
    destination = Path(run.spec.out_dir) / ADAPTER
    if run.best:
        text = (
            f"what is published is that of step {run.evaluations.step}, whose validation loss "
            f"{run.evaluations.loss:.4f} is the lowest"
        )
        run.events.emit(Noted(step=step, message=text))
    spec = run.spec
    try:
        canonical = trained.write_trained(
            engine.model,
            run.best or trained_now,
            spec.base_id,
            Path(spec.base_dir),
            destination,
            None if spec.tokenizer_dir is None else Path(spec.tokenizer_dir),
        )
    except WorkError as error:  # weights of ours that are not finite have diverged
        raise WorkError("divergence", error.message, "Lower the learning rate.") from error
    run.events.emit(
        Finished(
            adapter_dir=str(destination),
            adapter_sha256=canonical["sha256"],
            config_sha256=canonical["config_sha256"],
            files=tuple(digest_file(path) for path in sorted(destination.iterdir())),
            steps=step,
            tokens=run.plan.tokens_after(step),
            final_loss=run.loss,
        )
    )
