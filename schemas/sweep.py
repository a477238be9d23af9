"""Sweeps, in the stream `job`: one configuration after another, under one budget."""

from typing import Literal, TypeAlias

from schemas.dataset import BaseTokens
from schemas.envelope import Message, Part, Reason
from schemas.submission import Budget, JobSpec, KeyCap
from schemas.training import HyperParameters

SweepMethod: TypeAlias = Literal["grid", "random", "halving"]
SweepOutcome: TypeAlias = Literal["completed", "cancelled", "stopped"]


class SweepRun(Part):
    """One job of a sweep, as it is submitted when its turn comes."""

    job_id: str  # id that it gets
    model_id: str  # id that its version gets
    hyper: HyperParameters  # its hyper-parameters, resolved
    auto: tuple[str, ...] = ()  # names of those that were "auto"
    configuration: str = ""  # see `JobSpec`


class SweepTerms(Part):
    """Configurations and limits of a hyper-parameter sweep."""

    sweep_id: str
    method: SweepMethod  # how its configurations were chosen
    spec: JobSpec  # what all its jobs have in common; what differs is in its runs
    # the runs of each configuration: one, or one for each rung of a halving
    trials: tuple[tuple[SweepRun, ...], ...]
    tokens: BaseTokens  # tokens of the training file
    # number of configurations that each rung but the last passes on
    survivors: tuple[int, ...] = ()
    at_once: int = 1  # how many of its jobs run or wait at the same time at most
    budget: Budget | None = None  # what all its jobs may use together, None: no cap of its own
    # cap, key_id: see `SubmitJob`
    cap: KeyCap | None = None
    key_id: str | None = None
    # how many configurations one job trains in turns at most; its id and that of its version are
    # those of the first one's run; 1: each has its own job
    colocate: int = 1


# --- commands
class SubmitSweep(Message):
    """A tenant wants a sweep."""

    terms: SweepTerms  # the sweep


class CancelSweep(Message):
    """Cancel a sweep: submit no more of its jobs, and end the open ones."""

    sweep_id: str


# --- events
class SweepSubmitted(Message):
    """The sweep is accepted; its jobs follow."""

    terms: SweepTerms  # the sweep


class SweepWaiting(Message):
    """No job of the sweep is open, and the next one is submitted once there is room."""

    sweep_id: str
    reason: Reason  # why there is none


class SweepRunSkipped(Message):
    """A job of a sweep is not submitted, as it would be refused."""

    # sweep_id, job_id: the run
    sweep_id: str
    job_id: str
    reason: Reason


class SweepRungBegun(Message):
    """All jobs of a rung have ended; the best configurations go on."""

    sweep_id: str
    rung: int  # the next one, from 1
    trials: tuple[int, ...]  # numbers of the configurations that go on, from 0, the best first


class SweepCancelled(Message):
    """No more jobs of the sweep are submitted."""

    sweep_id: str


class SweepEnded(Message):
    """All jobs of the sweep have ended."""

    sweep_id: str
    outcome: SweepOutcome  # `stopped`: jobs were left that its tenant has to agree to anew
    # the published job with the lowest validation loss in the highest rung that has any; None:
    # there is none
    best_job_id: str | None
    reason: Reason | None = None  # why it was stopped; None: it was not


SweepCommand: TypeAlias = SubmitSweep | CancelSweep
SweepEvent: TypeAlias = (
    SweepSubmitted | SweepWaiting | SweepRunSkipped | SweepRungBegun | SweepCancelled | SweepEnded
)
