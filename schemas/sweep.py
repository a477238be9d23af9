"""Sweeps, in the stream `job`: one configuration after another, under one budget."""

from typing import Literal, TypeAlias

from schemas.dataset import BaseTokens
from schemas.envelope import Message, Part, Reason
from schemas.submission import Budget, JobSpec, KeyCap
from schemas.training import HyperParameters

SweepMethod: TypeAlias = Literal["grid", "random", "halving"]
SweepOutcome: TypeAlias = Literal["completed", "cancelled"]


class SweepRun(Part):
    """One job of a sweep, as it is submitted when its turn comes.

    job_id: id that it gets.
    model_id: id that its version gets.
    hyper: its hyper-parameters, resolved.
    auto: names of those that were "auto".
    configuration: as in `JobSpec`.
    """

    job_id: str
    model_id: str
    hyper: HyperParameters
    auto: tuple[str, ...] = ()
    configuration: str = ""


class SweepTerms(Part):
    """What a sweep tries.

    sweep_id: the sweep.
    method: how its configurations were chosen.
    spec: what all its jobs have in common; what differs is in its runs.
    trials: the runs of each configuration: one, or one for each rung of a halving.
    tokens: of the training file.
    survivors: of each rung but the last, how many configurations go on to the next.
    at_once: how many of its jobs run or wait at the same time at most.
    budget: what all its jobs may use together, None: no cap of its own.
    cap, key_id: as in `SubmitJob`.
    colocate: how many configurations one job trains in turns at most; its id and that of its
      version are those of the first one's run. 1: each has a job of its own.
    """

    sweep_id: str
    method: SweepMethod
    spec: JobSpec
    trials: tuple[tuple[SweepRun, ...], ...]
    tokens: BaseTokens
    survivors: tuple[int, ...] = ()
    at_once: int = 1
    budget: Budget | None = None
    cap: KeyCap | None = None
    key_id: str | None = None
    colocate: int = 1


# --- commands
class SubmitSweep(Message):
    """A tenant wants a sweep.

    terms: the sweep.
    """

    terms: SweepTerms


class CancelSweep(Message):
    """No more jobs of a sweep shall be submitted, and its open ones shall end.

    sweep_id: the sweep.
    """

    sweep_id: str


# --- events
class SweepSubmitted(Message):
    """The sweep is accepted; its jobs follow.

    terms: the sweep.
    """

    terms: SweepTerms


class SweepRunSkipped(Message):
    """A job of a sweep is not submitted, as it would be refused.

    sweep_id, job_id: which one.
    reason: why.
    """

    sweep_id: str
    job_id: str
    reason: Reason


class SweepRungBegun(Message):
    """All jobs of a rung have ended; the best configurations go on.

    sweep_id: the sweep.
    rung: the next one, from 1.
    trials: numbers of the configurations that go on, from 0, the best first.
    """

    sweep_id: str
    rung: int
    trials: tuple[int, ...]


class SweepCancelled(Message):
    """No more jobs of the sweep are submitted.

    sweep_id: the sweep.
    """

    sweep_id: str


class SweepEnded(Message):
    """All jobs of the sweep have ended.

    sweep_id: the sweep.
    outcome: whether it was cancelled.
    best_job_id: of those that published a version the one with the lowest validation loss, in the
      highest rung that has any; None: there is none.
    """

    sweep_id: str
    outcome: SweepOutcome
    best_job_id: str | None


SweepCommand: TypeAlias = SubmitSweep | CancelSweep
SweepEvent: TypeAlias = (
    SweepSubmitted | SweepRunSkipped | SweepRungBegun | SweepCancelled | SweepEnded
)
