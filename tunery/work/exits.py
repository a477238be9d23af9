"""How a training or scoring process ends: exit codes, and failures with a cause and advice."""

import errno
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
    NOTHING_LEARNT = 67
    PLATFORM = 70
    OOM = 71
    BAD_NODE = 72
    ORPHANED = 74  # the reader of the events is gone
    PREEMPTED = 75  # stopped on request, after a checkpoint: run it again
    RANK_LOST = 76  # of one rank of a training, whose parent says why: another rank is gone


EXIT_OF_CAUSE: Final[Mapping[FailureCause, ExitCode]] = {
    "user": ExitCode.USER,
    "bad_data": ExitCode.BAD_DATA,
    "divergence": ExitCode.DIVERGENCE,
    "nothing_learnt": ExitCode.NOTHING_LEARNT,
    "platform": ExitCode.PLATFORM,
    "oom": ExitCode.OOM,
    "bad_node": ExitCode.BAD_NODE,
}
# What a machine says when its storage, its driver or a device is broken, whichever job runs on it.
MACHINE_ERRNOS: Final = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ENODEV, errno.ENXIO}
)
MACHINE_WORDS: Final = (
    *("no space left on device", "disk quota exceeded", "read-only file system"),
    *("input/output error", "cuda driver", "driver/library version mismatch"),
    *("no cuda gpus are available", "no cuda-capable device", "nvml", "uncorrectable ecc"),
    *("ecc error", "fallen off the bus", "device-side hardware", "unspecified launch failure"),
)


def is_machine_fault(error: Exception | str) -> bool:
    """Return whether an error, or the last words of a process, point to a broken machine."""
    if isinstance(error, OSError) and error.errno in MACHINE_ERRNOS:
        return True
    return any(word in str(error).lower() for word in MACHINE_WORDS)


class WorkError(Exception):
    """Work that cannot go on.

    cause: decides what happens next, see `schemas.training.FailureCause`
    message: what is wrong, and where
    advice: what a person can do about it
    rank: rank of a training that differs from rank 0 in its input or environment
    """

    def __init__(
        self, cause: FailureCause, message: str, advice: str, rank: int | None = None
    ) -> None:
        super().__init__(message)
        self.cause: FailureCause = cause
        self.message = message
        self.advice = advice
        self.rank = rank
