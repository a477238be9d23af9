"""How the work under a lease ended on this node."""

from dataclasses import dataclass

from schemas.training import AttemptOutcome, FailureCause, Result


@dataclass(frozen=True)
class ProcessEnd:
    """How the work under a lease ended, as it is reported."""

    outcome: AttemptOutcome
    # cause, message: cause and message of a failure
    cause: FailureCause | None = None
    message: str | None = None
    result: Result | None = None  # result of a success
    # rank of a training that differs from rank 0 in its input or environment
    rank: int | None = None
    is_left: bool = False  # it failed only because ranks of other nodes had ended
    faulty_node: str | None = None  # the one of several on which it failed, where that is known
    is_forwarded: bool = False  # the agent of the lease's first member reports it
    keyless: bool = False  # it was given no keys, so that a message could not be sealed
