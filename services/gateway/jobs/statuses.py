"""Our phases as OpenAI's statuses, and as the states of the plain routes: one table each.

Nothing else in the gateway names a status.
"""

from typing import Final, Literal, TypeAlias

from schemas.job import JobOutcome, Phase, Wanted

JobStatus: TypeAlias = Literal[
    "validating_files", "queued", "running", "paused", "succeeded", "failed", "cancelled"
]
JobState: TypeAlias = Literal[
    "queued",
    "provisioning",
    "running",
    "checkpointing",
    "evaluating",
    "paused",
    "succeeded",
    "failed",
    "cancelled",
]

# (phase) → status of a job that is wanted to run
RUNNING: Final[dict[Phase, JobStatus]] = {
    "validating": "validating_files",
    "queued": "queued",
    "provisioning": "queued",
    "running": "running",
    "checkpointing": "running",
    "evaluating": "running",
    "registering": "running",
}
# Phases in which nothing of a paused job uses a machine, or soon will not: shown as paused.
PAUSED: Final[frozenset[Phase]] = frozenset({"validating", "queued", "provisioning", "evaluating"})
LIVE: Final[frozenset[Phase]] = frozenset({"running", "checkpointing", "evaluating", "registering"})


def job_status(wanted: Wanted, phase: Phase, outcome: JobOutcome | None) -> JobStatus:
    """A cancelled job is shown as cancelled at once: whatever its attempt still says, it will be.

    A pausing job stays running until its last checkpoint is written. Raises ValueError for a job
    that is over without an outcome: no event leads to such a row, and no status would be true.
    """
    if phase == "done":
        if outcome is None:
            raise ValueError("a job in phase done has no outcome: rebuild the read model")
        return outcome
    if wanted == "cancelled":
        return "cancelled"
    if wanted == "paused" and phase in PAUSED:
        return "paused"
    return RUNNING[phase]


# (phase) → state of the plain routes, of a job that is wanted to run
STATES: Final[dict[Phase, JobState]] = {
    "validating": "queued",
    "queued": "queued",
    "provisioning": "provisioning",
    "running": "running",
    "checkpointing": "checkpointing",
    "evaluating": "evaluating",
    "registering": "evaluating",
}


def job_state(wanted: Wanted, phase: Phase, outcome: JobOutcome | None) -> JobState:
    """Finer than OpenAI's status, and the same where a job is over, cancelled or paused.

    Raises ValueError as `job_status` does.
    """
    match job_status(wanted, phase, outcome):
        case "paused" | "succeeded" | "failed" | "cancelled" as status:
            return status
        case _:
            return STATES[phase]
