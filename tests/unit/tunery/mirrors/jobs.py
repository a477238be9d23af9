"""A job and its steps as the API has them, for tests of mirrors."""

import json
from collections.abc import Iterable
from typing import Any, Final

import httpx

JOB_ID: Final = "ftjob-" + "1" * 24
CREATED, ENDED = 1_764_000_000, 1_764_000_100


def job(**changed: Any) -> dict[str, Any]:
    """A job that has succeeded."""
    hyper = {"n_epochs": 2, "batch_size": "auto", "target_modules": ["q", "v"]}
    own = {**hyper, "batch_size": 4, "beta": 0.1, "gamma": None}
    return {
        "id": JOB_ID,
        "created_at": CREATED,
        "finished_at": ENDED,
        "status": "succeeded",
        "model": "tiny",
        "fine_tuned_model": "ft:tiny:acme:demo:1",
        "user_provided_suffix": "demo",
        "training_file": "file-1",
        "validation_file": None,
        "mixture": [],
        "metadata": {"team": "search"},
        "seed": 7,
        "trained_tokens": 300,
        "error": None,
        "hyperparameters": hyper,
        "method": {"type": "dpo", "supervised": None, "dpo": {"hyperparameters": own}},
        "provenance": {
            "base_model": "tiny@sha256:ab",
            "started_from": None,
            "dataset_version": "v1",
            "configuration": "c0",
        },
        "cost": {"billable_gpu_ms": 5_000, "amount_micro": 1_250, "currency": "EUR"},
        "gate": {
            "verdict": "pass",
            "reasons": ["No worse.", "Better on own data."],
            "base": {"accuracy": 0.25, "loss": 2.5, "exact_match": None},
            "adapter": {"accuracy": 0.5, "loss": 1.5, "exact_match": None},
        },
        **changed,
    }


def step(number: int, **changed: Any) -> dict[str, Any]:
    """A step of training on pairs."""
    return {
        "id": f"event-{number}",
        "created_at": CREATED + number,
        "attempt": 1,
        "step": number,
        "total_steps": 3,
        "train_loss": 3.0 - number,
        "valid_loss": None,
        "learning_rate": 0.001,
        "tokens": 100 * number,
        "elapsed_ms": 10,
        "tokens_per_second": 50.0,
        "train_reward_margin": 0.5,
        **changed,
    }


def stream(steps: Iterable[dict[str, Any]]) -> httpx.Response:
    """The steps as the API streams them, to the end of the job."""
    frames = [
        f"event: fine_tuning.job.metrics\nid: {item['id']}\ndata: {json.dumps(item)}\n\n"
        for item in steps
    ]
    text = "".join([*frames, "data: [DONE]\n\n"])
    return httpx.Response(200, headers={"content-type": "text/event-stream"}, text=text)
