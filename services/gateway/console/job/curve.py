"""Steps of a training as points of a curve: at most POINTS_MAX, spikes among them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from services.gateway.console.calls import Calls

POINTS_MAX: Final = 1_500  # of a whole curve; steps that come later are added to it
ADDED_MAX: Final = 500  # points that are added before the whole curve is sent again
PAGE: Final = 1_000
PAGES_MAX: Final = 200
COLUMNS: Final = (
    "train_loss",
    "valid_loss",
    "learning_rate",
    "tokens_per_second",
    "peak_memory_bytes",
)
Step: TypeAlias = Mapping[str, Any]


async def steps_of(api: Calls, path: str) -> list[Step]:
    """Return the steps of a job, oldest first: the newest PAGES_MAX pages."""
    steps: list[Step] = []
    after = None
    for _ in range(PAGES_MAX):
        page = await api.get(f"{path}/metrics", limit=PAGE, after=after)
        steps += page["data"]
        if not page["has_more"]:
            break
        after = steps[-1]["id"]
    return steps[::-1]


def newest_of(steps: Sequence[Step]) -> Step | None:
    """Return the last step with the newest validation loss, which only some steps have.

    steps: the oldest first
    """
    losses = [step["valid_loss"] for step in steps if step["valid_loss"] is not None]
    return {**steps[-1], "valid_loss": losses[-1] if losses else None} if steps else None


def decimated(steps: Sequence[Step], points_max: int = POINTS_MAX) -> list[Step]:
    """Return steps in order, each once: a resumed attempt repeats some, and the last one counts.

    Of more than `points_max` each interval keeps the steps of lowest and highest loss, and those
    with a validation loss where there is room for all.
    """
    ordered = [step for _, step in sorted({step["step"]: step for step in steps}.items())]
    if len(ordered) <= points_max:
        return ordered
    validated = {step["step"] for step in ordered if step["valid_loss"] is not None}
    kept = validated if len(validated) <= points_max // 3 else set()
    intervals = (points_max - len(kept)) // 2
    for number in range(intervals):
        begin, end = (len(ordered) * at // intervals for at in (number, number + 1))
        part = [step for step in ordered[begin:end] if step["train_loss"] is not None]
        part = part or [ordered[begin]]
        by_loss = sorted(part, key=lambda step: step["train_loss"] or 0.0)
        kept |= {by_loss[0]["step"], by_loss[-1]["step"]}
    return [step for step in ordered if step["step"] in kept]


def columns(steps: Sequence[Step]) -> dict[str, list[Any]]:
    """Return steps as columns of numbers; None: not measured, or not finite."""
    named = {name: [step[name] for step in steps] for name in COLUMNS}
    return {"step": [step["step"] for step in steps], **named}
