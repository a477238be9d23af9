"""Steps of a training, for tests of the watcher."""

from typing import Any, Final

from schemas.telemetry import Step

JOB: Final = "ftjob-1"
TENANT: Final = "acme"
WINDOW_MS: Final = 60_000
CALM: Final = tuple(1.0 + 0.01 * (number % 5) for number in range(24))


def step(number: int, **fields: Any) -> Step:
    """A step of the first attempt."""
    values: dict[str, Any] = {
        "tenant": TENANT,
        "job_id": JOB,
        "attempt": 1,
        "step": number,
        "total_steps": 10_000,
        "loss": 1.0,
        "accuracy": None,
        "grad_norm": None,
        "learning_rate": 1e-4,
        "tokens": number,
        "elapsed_ms": number,
        "tokens_per_s": 100.0,
    }
    return Step(**(values | fields))
