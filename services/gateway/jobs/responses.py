"""Fine-tuning jobs and checkpoints: OpenAI's fields first, then queue, progress, cost, gate."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from schemas.dataset import BaseTokens
from schemas.job import Estimate, JobSpec, Price
from schemas.training import HyperParameters
from schemas.units import PPM, Micro, Ms
from services.gateway.jobs.event_ids import finite
from services.gateway.jobs.queue_forecast import Outlook
from services.gateway.jobs.statuses import JobStatus, job_status
from services.gateway.web.responses import Opened, Row, seconds
from services.gateway.web.wording import wait_words
from tunery.plan.estimate import over_budget
from tunery.plan.hyperparameters import resolve
from tunery.plan.price import line_micro, price_micro

WAITING: Final[frozenset[JobStatus]] = frozenset({"validating_files", "queued", "paused"})
AUTO: Final = "auto"


def job_object(
    row: Row, opened: Opened, step: Row | None = None, outlook: Outlook | None = None
) -> dict[str, Any]:
    """`step`: the newest row of `steps`, for jobs that run. `outlook`: for those that wait."""
    spec = msgspec.convert(row["spec"], JobSpec)
    status = job_status(row["wanted"], row["phase"], row["outcome"])
    hyper = hyperparameters(spec, row, status)
    progress = _progress(row, step)
    metadata = opened(row["metadata"])
    return {
        "id": row["id"],
        "object": "fine_tuning.job",
        "created_at": seconds(row["created_at"]),
        "error": _error(row, opened),
        "estimated_finish": _estimated_finish(progress, step),
        "fine_tuned_model": row["model_id"],
        "finished_at": seconds(row["finished_at"]),
        "hyperparameters": hyper,
        "integrations": [],
        "metadata": None if metadata is None else _metadata(metadata),
        "method": {"type": "supervised", "supervised": {"hyperparameters": hyper}},
        "model": spec.base.base_id,
        "organization_id": row["tenant"],
        "result_files": [] if row["result_file"] is None else [row["result_file"]],
        "seed": spec.hyper.seed,
        "status": status,
        "trained_tokens": row["trained_tokens"] if row["phase"] == "done" else None,
        "training_file": spec.training_file,
        "user_provided_suffix": opened(row["suffix"]),
        "validation_file": spec.validation_file,
        "phase": row["phase"],
        "wanted": row["wanted"],
        "lane": row["lane"],
        "attempt": row["attempt"],
        "node": (row["node_ids"] or [None])[0],
        "queue": _queue(row, status, outlook),
        "progress": progress,
        "cost": _cost(row, spec),
        "eval": {
            "validation_fraction": spec.validation_fraction_ppm / PPM,
            "drop_max": None if spec.drop_max_ppm is None else spec.drop_max_ppm / PPM,
        },
        "gate": None if row["gate"] is None else gate_object(row["gate"]),
        "provenance": _provenance(row, spec),
    }


def hyperparameters(spec: JobSpec, row: Row, status: JobStatus) -> dict[str, Any]:
    """ "auto" is echoed until the job runs; then the resolved numbers, as OpenAI does it."""
    hyper = spec.hyper
    early = status in ("validating_files", "queued")
    auto = frozenset(spec.auto) if early else frozenset()
    multiplier = learning_rate_multiplier(spec, row["hold"])
    return {
        "batch_size": AUTO if "batch_size" in auto else hyper.batch_size,
        "learning_rate_multiplier": AUTO if "learning_rate" in auto else multiplier,
        "n_epochs": AUTO if "n_epochs" in auto else hyper.n_epochs,
        **own_hyperparameters(hyper),
    }


def own_hyperparameters(hyper: HyperParameters) -> dict[str, Any]:
    """What OpenAI's object has no field for."""
    return {
        "learning_rate": hyper.learning_rate_ppb / 1e9,
        "rank": hyper.rank,
        "alpha": hyper.alpha,
        "dropout": hyper.dropout_ppm / PPM,
        "max_length": hyper.max_length,
        "warmup_ratio": hyper.warmup_ppm / PPM,
        "weight_decay": hyper.weight_decay_ppm / PPM,
        "precision": hyper.precision,
    }


def learning_rate_multiplier(spec: JobSpec, hold: Mapping[str, Any] | None) -> float:
    """The learning rate over what the rule gives for this base and data."""
    if "learning_rate" in spec.auto:
        return 1.0
    tokens = None if hold is None else msgspec.convert(hold["tokens"], BaseTokens)
    hyper = spec.hyper
    given = {
        "n_epochs": hyper.n_epochs,
        "batch_size": hyper.batch_size,
        "max_length": hyper.max_length,
    }
    rule, _ = resolve(
        given, spec.base, tokens, hyper.seed, spec.device, spec.validation_fraction_ppm
    )
    return round(hyper.learning_rate_ppb / rule.learning_rate_ppb, 4)


def _error(row: Row, opened: Opened) -> dict[str, Any] | None:
    failure = row["failure"]
    if failure is None:
        return None
    told = [text for text in (opened(failure["message"]), failure["advice"]) if text]
    message = " ".join(told) or f"The job failed: {failure['code']}."
    return {"code": failure["code"], "message": message, "param": failure["param"]}


def _metadata(text: str) -> dict[str, str]:
    """An erased tenant's metadata does not open: nothing is left of it."""
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except msgspec.DecodeError:
        return {}


def _queue(row: Row, status: JobStatus, outlook: Outlook | None) -> dict[str, Any] | None:
    if status not in WAITING:
        return None
    reason = row["reason"]
    return {
        "position": None if outlook is None else outlook.position,
        "reason": wait_words(reason),
        "code": None if reason is None else reason["code"],
        "eta": None if outlook is None else seconds(outlook.starts_at),
    }


def _progress(row: Row, step: Row | None) -> dict[str, Any] | None:
    """How far training is. The time left comes from this attempt's own pace."""
    total = row["total_steps"]
    if total is None:
        return None
    done = total if row["outcome"] == "succeeded" else row["loaded_step"] or 0
    left_ms = None
    if step is not None:
        done = step["step"]
        paced = step["step"] - (row["loaded_step"] or 0)
        if step["attempt"] == row["attempt"] and paced > 0 and step["elapsed_ms"] is not None:
            left_ms = (total - done) * step["elapsed_ms"] // paced
    return {
        "step": done,
        "resumed_from_step": row["loaded_step"],
        "total_steps": total,
        "percent": round(100 * done / total, 1) if total else 100.0,
        "train_loss": None if step is None else finite(step["loss"]),
        "seconds_remaining": None if left_ms is None else left_ms // 1000,
    }


def _estimated_finish(progress: Mapping[str, Any] | None, step: Row | None) -> int | None:
    """Of training; the evaluation comes after it."""
    if progress is None or step is None or progress["seconds_remaining"] is None:
        return None
    return int(step["at"] // 1000 + progress["seconds_remaining"])


def _cost(row: Row, spec: JobSpec) -> dict[str, Any]:
    """What ended attempts have used; `GET …/cost` has every line. Amounts in millionths."""
    billable, lost = row["billable_gpu_ms"] or 0, row["lost_gpu_ms"] or 0
    estimate = None if row["hold"] is None else msgspec.convert(row["hold"]["estimate"], Estimate)
    tokens = row["trained_tokens"] or 0
    return {
        "currency": spec.price.currency,
        "price_version": spec.price.version,
        "billable_gpu_ms": billable,
        "credited_gpu_ms": lost,
        "amount_micro": price_micro(spec.price, max(0, billable - lost), tokens),
        "estimated_amount_micro": None if estimate is None else estimate.price_micro,
        "amount_max_micro": None if estimate is None else estimate.price_max_micro,
        "hold_gpu_ms": None if estimate is None or row["phase"] == "done" else estimate.hold_gpu_ms,
        "released_gpu_ms": row["released_gpu_ms"],
    }


def gate_object(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Shares as fractions: the log has them in millionths."""
    items = summary["items"]
    return {
        "verdict": summary["verdict"],
        "reasons": summary["reasons"],
        "advice": summary["advice"],
        "items": items,
        "base": {
            "accuracy": round(summary["base_correct"] / items, 4) if items else None,
            "loss": _share(summary["base_loss_ppm"]),
            "exact_match": _share(summary["base_exact_match_ppm"]),
        },
        "adapter": {
            "accuracy": round(summary["adapter_correct"] / items, 4) if items else None,
            "loss": _share(summary["adapter_loss_ppm"]),
            "exact_match": _share(summary["adapter_exact_match_ppm"]),
        },
        "p_value": summary["p_value_ppm"] / PPM,
    }


def _share(ppm: int) -> float | None:
    """Below zero: it was not measured, because there were no validation rows."""
    return None if ppm < 0 else ppm / PPM


def at_that_time(changes: Sequence[Row], key: Mapping[str, Any]) -> Row:
    """A job's row as it was after these rows of its history."""
    row: dict[str, Any] = defaultdict(lambda: None, key)
    row.update((change["field"], change["value"]) for change in changes)
    return row


def _provenance(row: Row, spec: JobSpec) -> dict[str, Any]:
    prepared, lineage = row["prepared"], row["lineage"]
    return {
        "base_model": f"{spec.base.base_id}@sha256:{spec.base.sha256}",
        "dataset_version": None if prepared is None else prepared["version"],
        "training_sha256": None if lineage is None else lineage["training_sha256"],
        "config_sha256": None if lineage is None else lineage["config_sha256"],
        "scores_sha256": None if lineage is None else lineage["scores_sha256"],
        "seed": spec.hyper.seed,
        "attempts": row["attempt"],
    }


def estimate_object(
    spec: JobSpec, estimate: Estimate | None, reason: str | None, starts_at: Ms | None = None
) -> dict[str, Any]:
    """`reason`: why there is no estimate. `starts_at`: where it can be told."""
    shown: dict[str, Any] = {
        "object": "fine_tuning.job.estimate",
        "model": spec.base.base_id,
        "estimation_available": estimate is not None,
        "unavailable_reason": reason,
        "hyperparameters": {
            "n_epochs": spec.hyper.n_epochs,
            "batch_size": spec.hyper.batch_size,
            **own_hyperparameters(spec.hyper),
        },
        "slots": spec.slots,
        "device": spec.device,
        "price": msgspec.to_builtins(spec.price),
    }
    if estimate is None:
        return shown
    gpu_ms = estimate.train_gpu_ms + estimate.eval_gpu_ms
    duration_ms = gpu_ms // spec.slots
    refusal = over_budget(spec.budget, estimate)
    return {
        **shown,
        "allowed_to_proceed": refusal is None,
        "refusal": refusal,
        "estimated_start": seconds(starts_at),
        "estimated_finish": None if starts_at is None else seconds(starts_at + duration_ms),
        "trained_tokens": estimate.tokens,
        "steps": estimate.steps,
        "memory_bytes": estimate.memory_bytes,
        "train_gpu_ms": estimate.train_gpu_ms,
        "eval_gpu_ms": estimate.eval_gpu_ms,
        "hold_gpu_ms": estimate.hold_gpu_ms,
        "expected_duration_seconds": duration_ms // 1000,
        "currency": estimate.currency,
        "amount_micro": estimate.price_micro,
        "amount_max_micro": estimate.price_max_micro,
    }


def cost_object(row: Row, lines: Sequence[Row]) -> dict[str, Any]:
    """Every usage slice and credit line of a job so far, and their sum at the job's own price."""
    spec = msgspec.convert(row["spec"], JobSpec)
    billable = sum(line["billable_gpu_ms"] for line in lines if line["kind"] == "usage")
    credited = -sum(line["billable_gpu_ms"] for line in lines if line["kind"] == "credit")
    net = billable - credited
    tokens = row["trained_tokens"] or 0
    columns = ("kind", "attempt", "role", "hour", "used_gpu_ms", "billable_gpu_ms", "cause")
    return {
        "id": row["id"],
        "object": "fine_tuning.job.cost",
        "final": row["phase"] == "done",
        "currency": spec.price.currency,
        "price": msgspec.to_builtins(spec.price),
        "lines": [{name: line[name] for name in columns} for line in lines],
        "used_gpu_ms": sum(line["used_gpu_ms"] for line in lines),
        "billable_gpu_ms": billable,
        "credited_gpu_ms": credited,
        "net_gpu_ms": net,
        "trained_tokens": tokens,
        "amount_micro": _amount_micro(spec.price, lines) + price_micro(spec.price, 0, tokens),
        "estimate": None if row["hold"] is None else row["hold"]["estimate"],
    }


def _amount_micro(price: Price, lines: Sequence[Row]) -> Micro:
    """To the unit what the invoice says: one rounding for each of its lines."""
    gpu_ms: Counter[tuple[Any, ...]] = Counter()
    for line in lines:
        gpu_ms[line["hour"], line["kind"], line["role"], line["cause"]] += line["billable_gpu_ms"]
    return sum(line_micro(used, price.gpu_hour_micro) for used in gpu_ms.values())


def checkpoint_object(row: Row, job_id: str, model_id: str, step: Row | None) -> dict[str, Any]:
    """`step`: the telemetry of the checkpoint's step, where it is still kept."""
    metrics: dict[str, Any] = {"step": row["step"]}
    if step is not None:
        metrics["train_loss"] = finite(step["loss"])
        metrics["train_mean_token_accuracy"] = finite(step["accuracy"])
        if (valid := finite(step["valid_loss"])) is not None:
            metrics["valid_loss"] = valid
    return {
        "id": row["id"],
        "object": "fine_tuning.job.checkpoint",
        "created_at": seconds(row["created_at"]),
        "fine_tuned_model_checkpoint": f"{model_id}:ckpt-step-{row['step']}",
        "fine_tuning_job_id": job_id,
        "step_number": row["step"],
        "metrics": metrics,
        "attempt": row["attempt"],
        "manifest_sha256": row["manifest_sha256"],
        "bytes": row["bytes"],
        "trained_tokens": row["trained_tokens"],
    }
