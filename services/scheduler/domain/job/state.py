"""The state of `job`: limits and usage of tenants, open jobs in full, ended jobs as summaries."""

from typing import Final, TypeAlias

from immutables import Map
from msgspec import Struct

from schemas.account import (
    Lane,
    PlanChange,
    PlanTerms,
)
from schemas.admission import (
    TENANT_BUDGET,
    BudgetAlert,
    BudgetTerms,
)
from schemas.dataset import BaseTokens, Prepared
from schemas.job import (
    JobOutcome,
    Phase,
    Wanted,
)
from schemas.pool import CloseMode, Role
from schemas.serving import ServingPoolTerms
from schemas.submission import Estimate, JobSpec, KeyCap, Price
from schemas.sweep import SweepTerms
from schemas.training import BlobFile, Checkpoint, HyperParameters, TrainResult
from schemas.units import GpuMs, Micro, MicroGpuMs, Ms, Tokens

# A job may name a file whose validation ended a moment ago, before the gateway knew: this many of
# the tenant's latest validations are remembered for it.
FILES_REMEMBERED_MAX: Final = 256


class FileVerdict(Struct, frozen=True, kw_only=True):
    """How the validation of a file ended.

    file_id: the file.
    accepted: whether it can be trained on.
    tokens: counts under each base model.
    code: why it was rejected.
    """

    file_id: str
    accepted: bool
    tokens: tuple[BaseTokens, ...]
    code: str | None = None


class OpenPlacement(Struct, frozen=True, kw_only=True):
    """The open placement.

    role: what it is for.
    node_ids: where it was granted; empty while it waits.
    asked: how the pool was asked to end it, if it was.
    """

    role: Role
    node_ids: tuple[str, ...] = ()
    asked: CloseMode | None = None


class Retries(Struct, frozen=True, kw_only=True):
    """Attempts that ended like this since the job last got further.

    oom: out of memory, over the whole training.
    bad_node: the node was at fault.
    platform: Tunery was at fault.
    fruitless: lost or preempted.
    failed: out of memory, or the node or Tunery was at fault, over the whole training.
    """

    oom: int = 0
    bad_node: int = 0
    platform: int = 0
    fruitless: int = 0
    failed: int = 0


class OpenJob(Struct, frozen=True, kw_only=True):
    """A job that has not ended.

    tenant, job_id, spec: as it was submitted.
    hyper: differs from the spec's after an out-of-memory retry.
    lane, price_version: of its admission.
    created_at: when it was submitted.
    cap: spending cap of the API key that submitted it.
    key_id: the API key that submitted it, where it is known.
    wanted: what its tenant wants of it.
    phase: where it is.
    hold: the estimate that its hold was taken for; None: no hold yet.
    prepared: its dataset, once it is prepared.
    base_bound: its base model is pinned.
    attempt: number of the newest attempt; 0 before the first.
    work_id: the work that was described last; None: none yet.
    open: its open placement.
    checkpoints: newest first.
    excluded_nodes: nodes that failed under it.
    retries: what its policies count.
    preemptions: attempts stopped by anyone but its tenant.
    trained_tokens: high-water mark of cumulative tokens at accepted checkpoints.
    counted_gpu_ms: use minus credits, as counted in the quota so far.
    counted_micro_gpu_ms: the same at its prices, not rounded.
    counted_tokens: trained tokens that are billed so far.
    billable_gpu_ms, lost_gpu_ms: totals of its closed attempts.
    result: of its training, once it has succeeded.
    scores: that wait for a verdict.
    look: of the gate at its items, from 1.
    scored: scores of the look before, None: it is the first.
    environment: what its newest training attempt is computed with.
    validation_loss_ppm: of its adapter in its evaluation, None: it was not measured.
    anomalies: keys of those that were recorded.
    """

    tenant: str
    job_id: str
    spec: JobSpec
    hyper: HyperParameters
    lane: Lane
    price_version: str
    created_at: Ms
    cap: KeyCap | None = None
    key_id: str | None = None
    wanted: Wanted = "run"
    phase: Phase = "validating"
    hold: Estimate | None = None
    prepared: Prepared | None = None
    base_bound: bool = False
    attempt: int = 0
    work_id: str | None = None
    open: OpenPlacement | None = None
    checkpoints: tuple[Checkpoint, ...] = ()
    excluded_nodes: tuple[str, ...] = ()
    retries: Retries = Retries()
    preemptions: int = 0
    trained_tokens: Tokens = 0
    counted_gpu_ms: GpuMs = 0
    counted_micro_gpu_ms: MicroGpuMs = 0
    counted_tokens: Tokens = 0
    billable_gpu_ms: GpuMs = 0
    lost_gpu_ms: GpuMs = 0
    result: TrainResult | None = None
    scores: BlobFile | None = None
    look: int = 1
    scored: BlobFile | None = None
    environment: Map[str, str] = Map()
    validation_loss_ppm: int | None = None
    anomalies: tuple[str, ...] = ()


class Charge(Struct, frozen=True, kw_only=True):
    """What a slice or a credit of a job is charged by, also after its end.

    key_id: the API key that submitted it, where it is known.
    price: of its admission.
    time: use minus credits at its prices, as counted so far, not rounded.
    tokens: trained tokens that are billed so far.
    """

    key_id: str | None
    price: Price
    time: MicroGpuMs
    tokens: Tokens = 0


class EndedJob(Struct, frozen=True, kw_only=True):
    """What is left of a job that ended.

    outcome: how.
    ended_at: when.
    charge: for credits that come later.
    """

    outcome: JobOutcome
    ended_at: Ms
    charge: Charge | None = None


class MonthUse(Struct, frozen=True, kw_only=True):
    """What a tenant or one of its API keys has used in a calendar month.

    gpu_ms: as the ledger will say.
    amounts: its price by currency, with that of answers.
    millionths: what is left of prices of answers, in millionths of a unit of `amounts`.
    """

    gpu_ms: GpuMs = 0
    amounts: Map[str, Micro] = Map()
    millionths: Map[str, int] = Map()


class EndedRun(Struct, frozen=True, kw_only=True):
    """What a sweep remembers of a configuration whose job ended.

    published_by: the job that published its version, None: it has none.
    loss_ppm: of its adapter on validation rows, in millionths; None: it was not measured.
    gpu_ms: what its job used, credits taken off; 0: another configuration has the same job.
    micro: the price of that.
    """

    published_by: str | None
    loss_ppm: int | None
    gpu_ms: GpuMs
    micro: Micro


class OpenSweep(Struct, frozen=True, kw_only=True):
    """A sweep that has not ended.

    terms: as it was submitted.
    rung: the present one, from 0.
    trials: numbers of the configurations that are in it.
    open_runs: its jobs that have not ended.
    ended_runs: configurations by their runs whose jobs have, over all rungs.
    skipped: runs that are not submitted.
    is_cancelled: no more of them are.
    """

    terms: SweepTerms
    rung: int = 0
    trials: tuple[int, ...] = ()
    open_runs: tuple[str, ...] = ()
    ended_runs: Map[str, EndedRun] = Map()
    skipped: tuple[str, ...] = ()
    is_cancelled: bool = False


class ServingPool(Struct, frozen=True, kw_only=True):
    """A serving pool that is wanted.

    terms, lane: as they were set last.
    failures: terms in a row that have failed.
    fruitless: terms in a row that were lost or preempted before they had served for a minute.
    excluded_nodes: nodes that failed under its terms, the newest last.
    excluded_until: when they may be tried again.
    stalled_by: code of what keeps the next term from beginning, None: nothing does.
    """

    terms: ServingPoolTerms
    lane: Lane
    failures: int = 0
    fruitless: int = 0
    excluded_nodes: tuple[str, ...] = ()
    excluded_until: Ms = 0
    stalled_by: str | None = None


class OpenTerm(Struct, frozen=True, kw_only=True):
    """A term of a replica that has not ended.

    term_id: the term, which `pool` knows as a job.
    serving_pool_id: whose term it is.
    pool: where it was placed.
    price, hold_gpu_ms, price_max_micro, key_id: as in its `ServingTermBegun`.
    counted_gpu_ms: use minus credits, as counted in the quota so far.
    counted_micro_gpu_ms: the same at its prices, not rounded.
    is_ending: it was told to end, so another one takes its place.
    asked: its serving pool told it so.
    """

    term_id: str
    serving_pool_id: str
    pool: str
    price: Price
    hold_gpu_ms: GpuMs
    price_max_micro: Micro
    key_id: str | None = None
    counted_gpu_ms: GpuMs = 0
    counted_micro_gpu_ms: MicroGpuMs = 0
    is_ending: bool = False
    asked: bool = False


class TenantJobs(Struct, frozen=True, kw_only=True):
    """One tenant.

    terms: what binds admissions; None: the tenant was not created yet.
    scheduled: what binds them from a later moment on.
    suspended: it may start no jobs.
    jobs: open jobs by id.
    ended, ended_before: jobs that ended lately and those before them, by id.
    generation_at: when the first of `ended` ended.
    use: by "tenant/2026-11", and by API key and month: "key_1/2026-11".
    budgets: monthly budgets by id.
    alerts: the last alert of each budget.
    files: latest validations, newest first.
    sweeps: open sweeps by id.
    serving_pools: wanted serving pools by id.
    serving_terms: open terms by id; those of removed serving pools, too.
    terms_begun: counts the terms of all serving pools: no id is used twice.
    closed: the tenant is erased: it submits nothing any more.
    erased: and nothing of it runs any more.
    """

    terms: PlanTerms | None = None
    scheduled: PlanChange | None = None
    suspended: bool = False
    jobs: Map[str, OpenJob] = Map()
    ended: Map[str, EndedJob] = Map()
    ended_before: Map[str, EndedJob] = Map()
    generation_at: Ms = 0
    use: Map[str, MonthUse] = Map()
    budgets: Map[str, BudgetTerms] = Map()
    alerts: Map[str, BudgetAlert] = Map()
    files: tuple[FileVerdict, ...] = ()
    sweeps: Map[str, OpenSweep] = Map()
    serving_pools: Map[str, ServingPool] = Map()
    serving_terms: Map[str, OpenTerm] = Map()
    terms_begun: int = 0
    closed: bool = False
    erased: bool = False

    @property
    def used_gpu_ms(self) -> dict[str, GpuMs]:
        """What the tenant has used, by calendar month."""
        prefix = f"{TENANT_BUDGET}/"
        return {
            window.removeprefix(prefix): use.gpu_ms
            for window, use in self.use.items()
            if window.startswith(prefix)
        }


Tenants: TypeAlias = Map[str, TenantJobs]
INITIAL: Final[Tenants] = Map()
