"""One attempt at one training run, from verified inputs to a canonical adapter."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed

from tunery.ml import adapters, checkpoints, device
from tunery.ml.base import hash_base
from tunery.ml.durable import file_sha256
from tunery.ml.events import EXIT_FINISHED, EXIT_PREEMPTED, Events
from tunery.ml.loss import check_packing, label_loss
from tunery.ml.order import ORDER_VERSION, Plan, plan
from tunery.ml.packed import PackedRows, read_rows
from tunery.ml.sft import PackedSFT, Run
from tunery.work.spec import Candidate, Hyper, Precision, Refused, TrainSpec

ADAPTER = "adapter"
DTYPE_NAMES: dict[torch.dtype, Precision] = {torch.bfloat16: "bf16", torch.float32: "fp32"}


def attempt(spec: TrainSpec, events: Events, must_stop: Callable[[], bool]) -> int:
    """Train until done or told to stop; an exit code.

    Raises `Refused` for inputs that cannot be trained on and for runs that diverge.
    """
    # 1. Fix what changes bits, and check that the inputs are the ones named.
    threads = device.settle(spec.threads)
    where = device.pick_device()
    checkpoints.prepare(Path(spec.out_dir))
    config = _check_base(spec)
    rows = read_rows(spec.train_shards, vocabulary=config["vocab_size"])
    valid = _valid_rows(spec, config["vocab_size"])
    hyper = spec.hyper
    _check_rows(rows, hyper)
    # 2. Find the newest checkpoint that verifies and belongs to this very run.
    wanted = DTYPE_NAMES[device.pick_dtype(spec.precision, where)]
    facts = _facts(spec, hyper, wanted)
    found, skipped = checkpoints.choose(spec.resume, lambda other: _objection(spec, facts, other))
    if found is not None:
        facts["precision"] = found[1].run["precision"]
    # 3. Load, and prove that packing keeps documents apart.
    run = Run(
        spec=spec,
        hyper=hyper,
        rows=rows,
        valid=valid,
        plan=_plan(rows, hyper),
        facts=facts,
        environment=device.environment(where, threads),
        events=events,
        must_stop=must_stop,
    )
    model = _model(spec, hyper, facts["precision"], where)
    packing = _check_packing(model, rows, where)
    trainer = PackedSFT(run, model, AutoTokenizer.from_pretrained(spec.base_dir))
    if must_stop():
        events.emit("preempted", step=found[1].step if found else 0, checkpoint=None)
        return EXIT_PREEMPTED
    # 4. Train.
    _say_started(run, found, skipped, packing)
    trainer.train(resume_from_checkpoint=found[0].dir if found else None)
    # 5. Done, or told to leave.
    step = trainer.state.global_step
    if step < run.plan.total_steps:
        events.emit("preempted", step=step, checkpoint=run.saved.dir if run.saved else None)
        return EXIT_PREEMPTED
    _finish(run, model, step)
    return EXIT_FINISHED


def _check_base(spec: TrainSpec) -> dict[str, Any]:
    """The base model's configuration, once its files have been found to be the ones named."""
    try:
        found = hash_base(Path(spec.base_dir))
    except FileNotFoundError as error:
        raise Refused("platform", str(error), "Fetch the base model again.") from error
    if found != spec.base_sha256:
        message = f"base {spec.base_id}: its files hash to {found}, not {spec.base_sha256}"
        raise Refused("platform", message, "Fetch the base model again.")
    config: dict[str, Any] = json.loads((Path(spec.base_dir) / "config.json").read_text("utf-8"))
    return config


def _valid_rows(spec: TrainSpec, vocabulary: int) -> PackedRows | None:
    rows = read_rows(spec.valid_shards, vocabulary=vocabulary) if spec.valid_shards else None
    return rows if rows is not None and rows.n_labels else None


def _check_rows(rows: PackedRows, hyper: Hyper) -> None:
    if not rows.n_labels:
        raise Refused(
            "bad_data",
            "no token of the training data is a label",
            "Give every conversation an assistant turn, and every prompt a completion.",
        )
    longest = max(rows.row_tokens)
    if longest > hyper.max_length:
        message = f"a packed row has {longest} tokens, more than max_length {hyper.max_length}"
        raise Refused("bad_data", message, "Prepare the data set again with this max_length.")


def _plan(rows: PackedRows, hyper: Hyper) -> Plan:
    return plan(
        rows.row_tokens,
        n_epochs=hyper.n_epochs,
        rows_per_step=hyper.batch_size * hyper.accumulation,
        seed=hyper.seed,
    )


def _facts(spec: TrainSpec, hyper: Hyper, precision: str) -> dict[str, str]:
    """What makes two attempts the same run."""
    return {
        "base": spec.base_sha256,
        "data": " ".join(file_sha256(Path(path)) for path in spec.train_shards),
        "hyper": msgspec.json.encode(hyper, order="sorted").decode(),
        "order": str(ORDER_VERSION),
        "precision": precision,
    }


def _objection(
    spec: TrainSpec, facts: dict[str, str], manifest: checkpoints.Manifest
) -> str | None:
    """Why a checkpoint does not belong to this run. With "auto" its precision is taken over."""
    mine = dict(facts)
    if spec.precision == "auto" and manifest.run.get("precision") in DTYPE_NAMES.values():
        mine["precision"] = manifest.run["precision"]
    difference = checkpoints.first_difference(mine, manifest.run)
    return f"it belongs to another run: {difference}" if difference else None


def _model(spec: TrainSpec, hyper: Hyper, precision: str, where: torch.device) -> Any:
    dtype = next(dtype for dtype, name in DTYPE_NAMES.items() if name == precision)
    base = AutoModelForCausalLM.from_pretrained(
        spec.base_dir, dtype=dtype, attn_implementation="sdpa"
    )
    set_seed(hyper.seed)  # the adapter's first weights are random
    targets = hyper.target_modules
    config = LoraConfig(
        r=hyper.rank,
        lora_alpha=hyper.alpha,
        lora_dropout=hyper.dropout,
        target_modules=targets if isinstance(targets, str) else list(targets),
        task_type="CAUSAL_LM",
    )
    try:
        # Adapters in the base's type: mixed types cost a conversion in every layer.
        model = get_peft_model(base, config, autocast_adapter_dtype=False)
    except ValueError as error:
        raise Refused("user", f"target_modules: {error}", 'Use "all-linear".') from error
    return model.to(where)


def _check_packing(model: Any, rows: PackedRows, where: torch.device) -> float:
    exact = next(model.parameters()).dtype == torch.float32
    model.eval()
    with torch.no_grad():
        difference = check_packing(
            lambda batch: label_loss(
                model, {name: value.to(where) for name, value in batch.items()}
            ).nll.cpu(),
            rows,
            exact=exact,
        )
    model.train()
    return difference


def _say_started(
    run: Run,
    found: tuple[Candidate, checkpoints.Manifest] | None,
    skipped: tuple[checkpoints.Skip, ...],
    packing: float,
) -> None:
    changed = checkpoints.first_difference(run.environment, found[1].environment) if found else None
    run.events.emit(
        "started",
        resumed_from_step=found[1].step if found else 0,
        loaded_manifest=found[0].manifest_sha256 if found else None,
        skipped=list(skipped),
        total_steps=run.plan.total_steps,
        tokens_total=run.plan.tokens_total,
        tokens=found[1].tokens if found else 0,
        hyper=run.hyper,
        precision=run.facts["precision"],
        environment=run.environment,
        environment_changed=changed,
        rows=len(run.rows),
        labels=run.rows.n_labels,
        packing_difference_nats=packing,
    )


def _finish(run: Run, model: Any, step: int) -> None:
    destination = Path(run.spec.out_dir) / ADAPTER
    try:
        canonical = adapters.write_canonical(
            adapters.adapter_tensors(model), adapters.adapter_config(model), destination, *run.base
        )
    except Refused as refused:  # an adapter of ours that is not finite has diverged
        raise Refused("divergence", refused.message, "Lower the learning rate.") from refused
    run.events.emit(
        "finished",
        adapter_dir=str(destination),
        adapter_sha256=canonical["sha256"],
        config_sha256=canonical["config_sha256"],
        files=[
            checkpoints.File(name=path.name, sha256=file_sha256(path), bytes=path.stat().st_size)
            for path in sorted(destination.iterdir())
        ],
        steps=step,
        tokens=run.plan.tokens_after(step),
        final_loss=run.loss,
    )
