"""How a training or scoring process ends: exit codes, and failures with a cause and advice."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from schemas.training import FailureCause


class ExitCode(IntEnum):
    """Exit status of the process. One per cause of failure, from the range of sysexits.h."""

    FINISHED = 0
    USER = 64
    BAD_DATA = 65
    DIVERGENCE = 66
    PLATFORM = 70
    OOM = 71
    ORPHANED = 74  # the reader of the events is gone
    PREEMPTED = 75  # stopped on request, after a checkpoint: run it again


EXIT_OF_CAUSE: Final[Mapping[FailureCause, ExitCode]] = {
    "user": ExitCode.USER,
    "bad_data": ExitCode.BAD_DATA,
    "divergence": ExitCode.DIVERGENCE,
    "platform": ExitCode.PLATFORM,
    "oom": ExitCode.OOM,
}


class WorkError(Exception):
    """Work that cannot go on.

    cause: decides what happens next, see `schemas.training.FailureCause`
    message: what is wrong, and where
    advice: what a person can do about it
    """

    def __init__(self, cause: FailureCause, message: str, advice: str) -> None:
        super().__init__(message)
        self.cause: FailureCause = cause
        self.message = message
        self.advice = advice
