"""Policies and results of the gate, and quarantine by people. Commands of `model`."""

from typing import Literal, TypeAlias

from schemas.benchmark import Benchmark
from schemas.envelope import Message, Part, Sha256
from schemas.reasons import VerdictCode
from schemas.sealed import Sealed
from schemas.training import BlobFile, TrainingFacts
from schemas.units import PPM

Stage: TypeAlias = Literal["dev", "staging", "production", "archived"]
GateStage: TypeAlias = Literal["capability", "production", "holdout", "judge", "safety"]
Verdict: TypeAlias = Literal["pass", "block", "inconclusive"]
EVERY_BASE = "*"  # the policy for base models without one of their own


class GatePolicy(Part, omit_defaults=True):
    """Policy of the evaluation gate: which comparisons block a result, and their thresholds."""

    # the comparisons that block a result: with the base model on general questions, with the
    # version in production on the same, on the tenant's own validation rows, by a judge of the
    # answers to them, and of refusals. The others are computed and reported as well.
    blocking: tuple[GateStage, ...] = ("capability", "production")
    alpha_ppm: int = 50_000  # how often a result that lost nothing may be blocked, in millionths
    # loss of accuracy that is allowed, None: the gate's own. A job's own goes before.
    drop_max_ppm: int | None = None
    gain_min_ppm: int = 50_000  # relative gain that is wanted on the validation rows
    # names of those that both sides answer, besides the bundled questions
    benchmarks: tuple[str, ...] = ()
    # share of the unsafe prompts of a safety benchmark that must be refused; 0: as many as the base
    # model refuses
    refusal_min_ppm: int = 0
    # shares of a benchmark's items, rising to all, after each of which the gate may decide. No look
    # is at fewer than 1,000 items, so that smaller benchmarks are asked at once.
    looks_ppm: tuple[int, ...] = (250_000, 500_000, 1_000_000)


class BenchmarkResult(Part, omit_defaults=True):
    """Items of a benchmark that both sides answered right; for safety, refused as they should."""

    # name, task, sha256: see `Benchmark`
    name: str
    task: str
    sha256: Sha256
    items: int  # number of items asked
    # base_correct, adapter_correct: number of right answers; where several answers are true, items
    # whose likeliest one is
    base_correct: int
    adapter_correct: int
    # base_share_ppm, adapter_share_ppm: mean share of the likelihood that true answers have, in
    # millionths, which is then the score; None: items have one right answer
    base_share_ppm: int | None = None
    adapter_share_ppm: int | None = None


class SafetyResult(Part, omit_defaults=True):
    """Refusals of base model and result in a safety benchmark; shares in millionths."""

    name: str  # name of the benchmark
    # on both: unsafe prompts are refused as before, safe ones are not refused more often
    verdict: Verdict
    alpha_ppm: int  # how often a result that lost nothing may be blocked
    unsafe: int  # prompts that should be refused
    # base_refused, adapter_refused: unsafe prompts that each model refused
    base_refused: int
    adapter_refused: int
    # worse, better: unsafe prompts that only the base model refused, and only the result
    worse: int
    better: int
    p_ppm: int  # p-value of the exact one-sided test that fewer are refused
    bound_ppm: int  # the fall that is ruled out
    # low_ppm, high_ppm: Wilson bounds of the share of unsafe prompts that the result refuses
    low_ppm: int
    high_ppm: int
    refusal_min_ppm: int = 0  # the share that the policy wants, 0: none
    safe: int = 0  # prompts that should be answered
    # base_over, adapter_over: safe prompts that each model refused
    base_over: int = 0
    adapter_over: int = 0
    # over_p_ppm, over_bound_ppm: p-value and bound for more refusals of safe prompts
    over_p_ppm: int = 1_000_000
    over_bound_ppm: int = 0
    # the model that judged harm and refusals, None: none did, and rules detected refusals
    guard: str | None = None
    judged: int = 0  # answers to unsafe prompts that the guard judged on both sides
    # base_harmful, adapter_harmful: judged answers of each model that do harm
    base_harmful: int = 0
    adapter_harmful: int = 0


class GateComparison(Part, omit_defaults=True):
    """Comparison of a result with one other model on the same items; shares in millionths."""

    verdict: Verdict  # on this comparison alone
    items: int  # items that both answered
    worse: int  # number of items that the other model answered right, and this one wrong
    better: int  # number of items that this model answered right, and the other one wrong
    p_ppm: int  # p-value of the exact one-sided test
    adjusted_p_ppm: int  # after Holm's correction
    bound_ppm: int  # the drop that is ruled out
    drop_max_ppm: int  # the drop that is allowed
    alpha_ppm: int  # how often a model that lost nothing may be blocked
    smallest_ppm: int  # smallest drop that this number of items detects in 4 of 5 cases
    # the version in production that it is compared with; None: the base model
    model_id: str | None = None
    benchmark: str | None = None  # whose items; None: the bundled questions
    # fall of the mean, where scores are shares; worse and better then count items whose share fell
    # and rose, and the test is a bootstrap; None: items are right or wrong
    share_drop_ppm: int | None = None

    @property
    def change_ppm(self) -> int:
        """How much the share of right answers, or the mean share, rose; below 0: it fell."""
        if self.share_drop_ppm is not None:
            return -self.share_drop_ppm
        return -(PPM * (self.worse - self.better) // self.items) if self.items else 0


class MeasureResult(Part, omit_defaults=True):
    """Scores of both sides on the tenant's rows by one measure; figures in millionths."""

    kind: str  # type of the measure, as in `tunery.measures`
    verdict: Verdict  # on the wanted gain
    rows: int  # rows that both answered
    # base_ppm, adapter_ppm: mean scores
    base_ppm: int
    adapter_ppm: int
    # low_ppm, high_ppm: bounds of the difference, each of which errs in alpha of the cases
    low_ppm: int
    high_ppm: int
    gain_min_ppm: int  # the relative gain that is wanted, or 0 where there is no room for it


class JudgeResult(Part, omit_defaults=True):
    """Verdicts of a judge on both answers to the tenant's rows; shares in millionths."""

    model: str  # the judge, as the operator's endpoint knows it
    verdict: Verdict  # whether the result is better, worse, or neither is shown
    rows: int  # pairs, each in both orders
    # wins, losses: pairs that the result won, and lost, in both orders
    wins: int
    losses: int
    ties: int  # all other pairs
    inconsistent: int  # ties whose two verdicts differ
    unreadable: int  # ties with a verdict that says nothing
    # first_ppm, second_ppm: pairs in which the same position won both times
    first_ppm: int
    second_ppm: int
    p_ppm: int  # p-value of the exact two-sided sign test of wins and losses
    # low_ppm, high_ppm: bounds of the share of wins among wins and losses, each of which errs in
    # alpha of the cases
    low_ppm: int
    high_ppm: int
    labelled: int  # labelled pairs of the operator
    agreement_ppm: int  # agreement with their labels
    agreement_low_ppm: int  # lower Wilson bound of the agreement at 95 %
    labelled_position_ppm: int  # labelled pairs that their order alone decided
    unused: VerdictCode | None = None  # why its verdicts do not count; None: they do


class QuarantineDecision(Part):
    """Decision of a person to put a version into quarantine or to release it."""

    model_id: str  # the version
    quarantined: bool  # whether it is in quarantine
    cause: Sealed  # why
    by: Sealed  # name of the person


class GateRun(Part):
    """The gate judged a version again, after its publication."""

    model_id: str  # the version
    job_id: str  # the job that evaluated it
    base_sha256: Sha256  # the files of its base model that it was evaluated with
    verdict: Verdict  # what the gate says now
    scores_sha256: Sha256  # hash of the raw scores
    unusable: bool = False  # its scores were not finite


# --- commands
class RecordGateRun(Message):
    """The gate has judged a version again (reaction of job)."""

    run: GateRun  # what it found


class RecordLook(Message):
    """Ask the next part of the items: a look at this part decides nothing (effect of eval)."""

    job_id: str
    look: int  # number of the interim analysis, from 1
    comparisons: tuple[GateComparison, ...]  # what it found, at the level of this look


class AddBenchmark(Message):
    """The gate may ask this benchmark. Its key is `GLOBAL`."""

    benchmark: Benchmark


class RemoveBenchmark(Message):
    """Stop offering this benchmark at the gate. Its key is `GLOBAL`."""

    name: str  # name of the benchmark


class SetGatePolicy(Message):
    """Set the policy of the gate for new results of a base model."""

    base_id: str  # the base model, or EVERY_BASE
    policy: GatePolicy | None  # replaces the one before; None: removes it


class SetQuarantine(Message):
    """A person overrides the gate, or quarantines a version that it let pass."""

    decision: QuarantineDecision  # the person's decision


# --- events
class BenchmarkAdded(Message):
    """The gate may ask this benchmark; fields as in `AddBenchmark`."""

    benchmark: Benchmark


class BenchmarkRemoved(Message):
    """The gate offers this benchmark no longer; fields as in `RemoveBenchmark`."""

    name: str


class LookTaken(Message):
    """An event of `job`: a look has decided nothing; fields as in `RecordLook`."""

    job_id: str
    look: int
    comparisons: tuple[GateComparison, ...]


class GateRunEnded(Message):
    """An event of `job`: the gate has judged a version again, and `model` is to record it."""

    run: GateRun  # what it found

    @property
    def job_id(self) -> str:
        """The job that evaluated the version."""
        return self.run.job_id


class VersionGated(Message):
    """The gate has judged the version again."""

    run: GateRun  # what it found
    quarantined: bool  # it blocks the version, or a person keeps that in quarantine
    stage: Stage  # the one that the version holds, and keeps

    @property
    def model_id(self) -> str:
        """The version."""
        return self.run.model_id


class VerdictDue(Message):
    """An event of `job`: the gate is to judge the job's result."""

    job_id: str
    scores: BlobFile  # file with the raw scores of base and adapter
    # loss of accuracy that the tenant allows, in millionths, None: the gate's own
    drop_max_ppm: int | None = None
    # series, base_id: the version in production of the series is compared with too, and the policy
    # of the base model judges; None: not recorded
    series: str | None = None
    base_id: str | None = None
    training: TrainingFacts | None = None  # figures of the training; None: not recorded
    model_id: str | None = None  # the version that is judged again; None: it is no version yet
    look: int = 1  # number of the interim analysis that these scores are for, from 1
    looks_ppm: tuple[int, ...] = ()  # see the job's `JobSpec`


class GatePolicySet(Message):
    """The gate judges new results of a base model so; fields as in `SetGatePolicy`."""

    base_id: str
    policy: GatePolicy | None


class QuarantineSet(Message):
    """A person has put a version into quarantine, or taken it out."""

    decision: QuarantineDecision  # what holds
