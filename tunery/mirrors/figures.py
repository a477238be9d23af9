"""What mirrors show of a job: its parameters, the figures of a step, its summary."""

import json
import math
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

Scalar: TypeAlias = str | int | float | bool

#: field of a step in the API → name in a mirror; what is before the slash groups charts
FIGURES: Final[Mapping[str, str]] = {
    "train_loss": "train/loss",
    "train_mean_token_accuracy": "train/mean_token_accuracy",
    "train_reward_accuracy": "train/reward_accuracy",
    "train_reward_margin": "train/reward_margin",
    "train_reward_mean": "train/reward_mean",
    "train_reward_std": "train/reward_std",
    "valid_loss": "valid/loss",
    "valid_mean_token_accuracy": "valid/mean_token_accuracy",
    "valid_reward_accuracy": "valid/reward_accuracy",
    "learning_rate": "training/learning_rate",
    "tokens": "training/tokens",
    "tokens_per_second": "training/tokens_per_second",
    "elapsed_ms": "training/elapsed_ms",
    "peak_memory_bytes": "training/peak_memory_bytes",
    "attempt": "training/attempt",
}
AUTO: Final = "auto"
SIDES: Final = ("base", "adapter")
MEASURES: Final = ("accuracy", "loss", "exact_match")


def parameters(job: Mapping[str, Any]) -> dict[str, Scalar]:
    """Return the settings of a job, by name; lists and objects as JSON.

    Left out are unset values, and "auto": its number is known when the job runs.
    """
    method = job["method"]["type"]
    own = (job["method"].get(method) or {}).get("hyperparameters") or {}
    provenance = job["provenance"]
    values = {
        "job_id": job["id"],
        "model": job["model"],
        "base_model": provenance["base_model"],
        "started_from": provenance["started_from"],
        "method": method,
        "training_file": job["training_file"],
        "validation_file": job["validation_file"],
        "mixture": job["mixture"] or None,
        "dataset_version": provenance["dataset_version"],
        "configuration": provenance["configuration"],
        "suffix": job["user_provided_suffix"],
        "metadata": job["metadata"] or None,
        "seed": job["seed"],
        **job["hyperparameters"],
        **own,
    }
    return {name: _scalar(value) for name, value in values.items() if value not in (None, AUTO)}


def step_figures(step: Mapping[str, Any]) -> dict[str, float]:
    """The figures of a step by their names in a mirror; without those that are not finite."""
    values = ((name, step.get(field)) for field, name in FIGURES.items())
    return {
        name: float(value) for name, value in values if value is not None and math.isfinite(value)
    }


def summary(job: Mapping[str, Any]) -> dict[str, Scalar]:
    """Return the outcome of a job, by name. The cost is in millionths of the currency."""
    gate, cost = job["gate"] or {}, job["cost"]
    values = {
        "status": job["status"],
        "fine_tuned_model": job["fine_tuned_model"],
        "error": (job["error"] or {}).get("code"),
        "trained_tokens": job["trained_tokens"],
        "billable_gpu_ms": cost["billable_gpu_ms"],
        "cost_micro": cost["amount_micro"],
        "currency": cost["currency"],
        "gate": gate.get("verdict"),
        "gate_reasons": "; ".join(gate.get("reasons") or ()) or None,
    }
    for side in SIDES:
        scores = gate.get(side) or {}
        values |= {f"gate_{side}_{measure}": scores.get(measure) for measure in MEASURES}
    return {name: _scalar(value) for name, value in values.items() if value is not None}


def _scalar(value: Any) -> Scalar:
    if isinstance(value, str | int | float):
        return value
    return json.dumps(value, sort_keys=True)
