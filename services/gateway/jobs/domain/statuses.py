"""Maps phases of jobs to OpenAI's statuses and to the states of the plain routes.

All statuses of the gateway come from these two tables.
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
    "provisioning": "running",  # it has its slots; its process is starting
    "running": "running",
    "checkpointing": "running",
    "evaluating": "running",
    "registering": "running",
}
# Phases in which a job that is being paused is shown as paused at once.
PAUSED: Final[frozenset[Phase]] = frozenset({"validating", "queued", "provisioning", "evaluating"})


def job_status(wanted: Wanted, phase: Phase, outcome: JobOutcome | None) -> JobStatus:
    """OpenAI's status of a job.

    A job is shown as cancelled as soon as that was requested, because nothing can change it. A job
    that is being paused is shown as running until its last checkpoint is written.

    Raises ValueError for an ended job without an outcome, to which no event leads.
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
    """State of the plain routes: OpenAI's status, with the phase instead of `running`.

    Raises ValueError as `job_status` does.
    """
    match job_status(wanted, phase, outcome):
        case "paused" | "succeeded" | "failed" | "cancelled" as status:
            return status
        case _:
            return STATES[phase]
