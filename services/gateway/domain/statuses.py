"""One table from our phases to OpenAI's statuses; nothing else in the gateway names a status."""

from typing import Final, Literal, TypeAlias

from schemas.job import JobOutcome, Phase, Wanted

JobStatus: TypeAlias = Literal[
    "validating_files", "queued", "running", "paused", "succeeded", "failed", "cancelled"
]
FileStatus: TypeAlias = Literal["uploaded", "processed", "error"]

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

    A pausing job stays running until its last checkpoint is written.
    """
    if phase == "done":
        return outcome or "failed"
    if wanted == "cancelled":
        return "cancelled"
    if wanted == "paused" and phase in PAUSED:
        return "paused"
    return RUNNING[phase]
