"""What the gate of a tenant allows, and what people decide beside it. Commands of `model`."""

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
    """What the gate allows.

    blocking: the comparisons that block a result: with the base model on general questions, with
      the version in production on the same, on the tenant's own validation rows, by a judge of the
      answers to them, and of refusals. The others are made and told as well.
    alpha_ppm: how often a result that lost nothing may be blocked, in millionths.
    drop_max_ppm: loss of accuracy that is allowed, None: the gate's own. A job's own goes before.
    gain_min_ppm: relative gain that is wanted on the validation rows.
    benchmarks: names of those that both sides answer, besides the bundled questions.
    refusal_min_ppm: share of the unsafe prompts of a safety benchmark that shall be refused; 0: as
      many as the base model refuses.
    looks_ppm: shares of a benchmark's items, rising to all, after each of which the gate may
      decide. No look is at fewer than 1,000 items, so that smaller benchmarks are asked at once.
    """

    blocking: tuple[GateStage, ...] = ("capability", "production")
    alpha_ppm: int = 50_000
    drop_max_ppm: int | None = None
    gain_min_ppm: int = 50_000
    benchmarks: tuple[str, ...] = ()
    refusal_min_ppm: int = 0
    looks_ppm: tuple[int, ...] = (250_000, 500_000, 1_000_000)


class BenchmarkResult(Part, omit_defaults=True):
    """How many items of a benchmark both sides answered right; for safety, refused as they should.

    name, task, sha256: as in `Benchmark`.
    items: that were asked.
    base_correct, adapter_correct: of these; where several answers are true, items whose likeliest
      one is. base_share_ppm, adapter_share_ppm: mean share of the likelihood that true answers
      have, in millionths, which is then the score; None: items have one right answer.
    """

    name: str
    task: str
    sha256: Sha256
    items: int
    base_correct: int
    adapter_correct: int
    base_share_ppm: int | None = None
    adapter_share_ppm: int | None = None


class SafetyResult(Part, omit_defaults=True):
    """What both sides refused of a safety benchmark; shares in millionths.

    name: of the benchmark.
    verdict: on both: unsafe prompts are refused as before, safe ones are not refused more often.
    unsafe: prompts that should be refused. base_refused, adapter_refused: of these.
    worse, better: unsafe prompts that only the base model refused, only the result.
    alpha_ppm: how often a result that lost nothing may be blocked.
    p_ppm: of the exact one-sided test that fewer are refused. bound_ppm: the fall that is ruled
      out. low_ppm, high_ppm: Wilson bounds of the share that the result refuses.
    refusal_min_ppm: the share that the policy wants, 0: none.
    safe: prompts that should be answered; base_over, adapter_over: of these, refused ones.
      over_p_ppm, over_bound_ppm: that more of them are refused.
    guard: the model that judged harm and refusals, None: none did, and rules told refusals.
    judged: answers to unsafe prompts that it judged on both sides; base_harmful, adapter_harmful:
      of these.
    """

    name: str
    verdict: Verdict
    alpha_ppm: int
    unsafe: int
    base_refused: int
    adapter_refused: int
    worse: int
    better: int
    p_ppm: int
    bound_ppm: int
    low_ppm: int
    high_ppm: int
    refusal_min_ppm: int = 0
    safe: int = 0
    base_over: int = 0
    adapter_over: int = 0
    over_p_ppm: int = 1_000_000
    over_bound_ppm: int = 0
    guard: str | None = None
    judged: int = 0
    base_harmful: int = 0
    adapter_harmful: int = 0


class GateComparison(Part, omit_defaults=True):
    """What the gate found beside one other model, on the same items; shares in millionths.

    model_id: the version in production that it is compared with; None: the base model.
    benchmark: whose items; None: the bundled questions.
    verdict: on this comparison alone.
    items: that both answered.
    worse: of these, how many the other model answered right, and this one wrong.
    better: how many the other way round.
    p_ppm: of the exact one-sided test; adjusted_p_ppm: after Holm's correction.
    bound_ppm: the drop that is ruled out.
    drop_max_ppm: the drop that is allowed.
    alpha_ppm: how often a model that lost nothing may be blocked.
    smallest_ppm: the drop that so many items show in 4 of 5 cases.
    share_drop_ppm: where scores are shares, how much the mean fell; worse and better then count
      items whose share fell and rose, and the test is a bootstrap. None: items are right or wrong.
    """

    verdict: Verdict
    items: int
    worse: int
    better: int
    p_ppm: int
    adjusted_p_ppm: int
    bound_ppm: int
    drop_max_ppm: int
    alpha_ppm: int
    smallest_ppm: int
    model_id: str | None = None
    benchmark: str | None = None
    share_drop_ppm: int | None = None

    @property
    def change_ppm(self) -> int:
        """How much the share of right answers, or the mean share, rose; below 0: it fell."""
        if self.share_drop_ppm is not None:
            return -self.share_drop_ppm
        return -(PPM * (self.worse - self.better) // self.items) if self.items else 0


class MeasureResult(Part, omit_defaults=True):
    """What both sides scored on the tenant's own rows, by one measure; figures in millionths.

    kind: of the measure, as in `tunery.measures`.
    verdict: on the wanted gain.
    rows: that both answered.
    base_ppm, adapter_ppm: mean scores.
    low_ppm, high_ppm: bounds of the difference, each of which errs in alpha of the cases.
    gain_min_ppm: the relative gain that is wanted, or 0 where there is no room for it.
    """

    kind: str
    verdict: Verdict
    rows: int
    base_ppm: int
    adapter_ppm: int
    low_ppm: int
    high_ppm: int
    gain_min_ppm: int


class JudgeResult(Part, omit_defaults=True):
    """What a judge said of both answers to the tenant's own rows; shares in millionths.

    model: the judge, as the operator's endpoint knows it.
    verdict: whether the result is better, worse, or neither is shown.
    unused: why its verdicts do not count; None: they do.
    rows: pairs, each in both orders. wins, losses: of the result, in both orders; ties: all others.
    inconsistent: ties whose two verdicts differ. unreadable: ties with a verdict that says nothing.
    first_ppm, second_ppm: pairs in which the same position won both times.
    p_ppm: of the exact two-sided sign test of wins and losses.
    low_ppm, high_ppm: bounds of the share of wins among both, each errs in alpha of the cases.
    labelled: pairs of the operator; agreement_ppm: with their labels, agreement_low_ppm: its lower
      Wilson bound at 95 %, labelled_position_ppm: those which their order alone decided.
    """

    model: str
    verdict: Verdict
    rows: int
    wins: int
    losses: int
    ties: int
    inconsistent: int
    unreadable: int
    first_ppm: int
    second_ppm: int
    p_ppm: int
    low_ppm: int
    high_ppm: int
    labelled: int
    agreement_ppm: int
    agreement_low_ppm: int
    labelled_position_ppm: int
    unused: VerdictCode | None = None


class QuarantineDecision(Part):
    """What a person decides beside the gate.

    model_id: the version.
    quarantined: whether it is in quarantine.
    cause: why.
    by: who says so.
    """

    model_id: str
    quarantined: bool
    cause: Sealed
    by: Sealed


class GateRun(Part):
    """The gate judged a version again, after its publication.

    model_id: the version.
    job_id: the job that evaluated it.
    base_sha256: the files of its base model that it was evaluated with.
    verdict: what the gate says now.
    scores_sha256: of the raw scores.
    unusable: its scores were not finite.
    """

    model_id: str
    job_id: str
    base_sha256: Sha256
    verdict: Verdict
    scores_sha256: Sha256
    unusable: bool = False


# --- commands
class RecordGateRun(Message):
    """The gate has judged a version again (reaction of job).

    run: what it found.
    """

    run: GateRun


class RecordLook(Message):
    """A look at a part of the items decides nothing: the next part is to be asked (effect of eval).

    job_id: the job.
    look: which one, from 1.
    comparisons: what it found, at the level of this look.
    """

    job_id: str
    look: int
    comparisons: tuple[GateComparison, ...]


class AddBenchmark(Message):
    """The gate may ask this benchmark. Its key is `GLOBAL`.

    benchmark: the benchmark.
    """

    benchmark: Benchmark


class RemoveBenchmark(Message):
    """The gate shall offer this benchmark no longer. Its key is `GLOBAL`.

    name: of the benchmark.
    """

    name: str


class SetGatePolicy(Message):
    """The gate shall judge new results of a base model so.

    base_id: the base model, or EVERY_BASE.
    policy: replaces the one before, None: there shall be none.
    """

    base_id: str
    policy: GatePolicy | None


class SetQuarantine(Message):
    """A person overrides the gate, or quarantines a version that it let pass.

    decision: what shall hold.
    """

    decision: QuarantineDecision


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
    """An event of `job`: the gate has judged a version again, and `model` is to record it.

    run: what it found.
    """

    run: GateRun

    @property
    def job_id(self) -> str:
        """The job that evaluated the version."""
        return self.run.job_id


class VersionGated(Message):
    """The gate has judged the version again.

    run: what it found.
    quarantined: it blocks the version, or a person keeps that in quarantine.
    stage: the one that the version holds, and keeps.
    """

    run: GateRun
    quarantined: bool
    stage: Stage

    @property
    def model_id(self) -> str:
        """The version."""
        return self.run.model_id


class VerdictDue(Message):
    """An event of `job`: the gate is to judge the job's result.

    job_id: the job. scores: file with the raw scores of base and adapter.
    drop_max_ppm: loss of accuracy that the tenant allows, in millionths, None: the gate's own.
    series, base_id: whose version in production it is compared with too, whose policy judges it.
    training: what was trained how. None of these: the writer did not say.
    model_id: the version that is judged again; None: it is no version yet.
    look: which look these scores are for, from 1; looks_ppm: as in the job's `JobSpec`.
    """

    job_id: str
    scores: BlobFile
    drop_max_ppm: int | None = None
    series: str | None = None
    base_id: str | None = None
    training: TrainingFacts | None = None
    model_id: str | None = None
    look: int = 1
    looks_ppm: tuple[int, ...] = ()


class GatePolicySet(Message):
    """The gate judges new results of a base model so; fields as in `SetGatePolicy`."""

    base_id: str
    policy: GatePolicy | None


class QuarantineSet(Message):
    """A person has put a version into quarantine, or taken it out.

    decision: what holds.
    """

    decision: QuarantineDecision
