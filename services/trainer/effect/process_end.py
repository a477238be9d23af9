"""How the work under a lease ended on this node."""

from dataclasses import dataclass

from schemas.training import AttemptOutcome, FailureCause, Result


@dataclass(frozen=True)
class ProcessEnd:
    """How the work under a lease ended, as it is reported.

    cause, message: of a failure
    result: of a success
    rank: of a training, which differs from rank 0 in what it reads or computes with
    is_left: it failed only because ranks of other nodes had ended
    faulty_node: the one of several on which it failed, where that is known
    is_forwarded: the agent of the lease's first member reports it
    keyless: it was given no keys, so that a message could not be sealed
    """

    outcome: AttemptOutcome
    cause: FailureCause | None = None
    message: str | None = None
    result: Result | None = None
    rank: int | None = None
    is_left: bool = False
    faulty_node: str | None = None
    is_forwarded: bool = False
    keyless: bool = False
