"""The state of `job`: limits and usage of tenants, open jobs in full, ended jobs as summaries."""

from typing import Final, TypeAlias

from immutables import Map
from msgspec import Struct

from schemas.account import Lane, PlanChange, PlanTerms
from schemas.admission import TENANT_BUDGET, BudgetAlert, BudgetTerms
from schemas.dataset import BaseTokens, Prepared
from schemas.job import JobOutcome, Phase, Wanted
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
    """How the validation of a file ended."""

    file_id: str
    accepted: bool  # whether it can be trained on
    tokens: tuple[BaseTokens, ...]  # counts under each base model
    code: str | None = None  # why it was rejected


class OpenPlacement(Struct, frozen=True, kw_only=True):
    """The open placement of a job."""

    role: Role  # role of its work
    node_ids: tuple[str, ...] = ()  # nodes where it was granted; empty while it waits
    asked: CloseMode | None = None  # mode in which the pool was asked to end it, if it was


class Retries(Struct, frozen=True, kw_only=True):
    """Number of attempts that ended with this cause since the last progress of the job."""

    oom: int = 0  # out of memory, over the whole training
    bad_node: int = 0  # the node was at fault
    platform: int = 0  # Tunery was at fault
    fruitless: int = 0  # lost or preempted
    failed: int = 0  # out of memory, or the node or Tunery was at fault, over the whole training


class OpenJob(Struct, frozen=True, kw_only=True):
    """A job that has not ended."""

    # tenant, job_id, spec: values of its submission
    tenant: str
    job_id: str
    spec: JobSpec
    # hyper-parameters now; they differ from the spec's after an out-of-memory retry
    hyper: HyperParameters
    # lane, price_version: lane and price version of its admission
    lane: Lane
    price_version: str
    created_at: Ms  # time of its submission
    cap: KeyCap | None = None  # spending cap of the API key that submitted it
    key_id: str | None = None  # the API key that submitted it, where it is known
    wanted: Wanted = "run"  # state that its tenant wants
    phase: Phase = "validating"  # current phase
    hold: Estimate | None = None  # the estimate that its hold was taken for; None: no hold yet
    prepared: Prepared | None = None  # its dataset, once it is prepared
    base_bound: bool = False  # its base model is pinned
    attempt: int = 0  # number of the newest attempt; 0 before the first
    work_id: str | None = None  # the work that was described last; None: none yet
    open: OpenPlacement | None = None  # its open placement
    checkpoints: tuple[Checkpoint, ...] = ()  # accepted checkpoints, newest first
    excluded_nodes: tuple[str, ...] = ()  # nodes that failed under it
    retries: Retries = Retries()  # counters of its retry policies
    preemptions: int = 0  # attempts stopped by anyone but its tenant
    trained_tokens: Tokens = 0  # high-water mark of cumulative tokens at accepted checkpoints
    counted_gpu_ms: GpuMs = 0  # use minus credits, counted in the quota so far
    counted_micro_gpu_ms: MicroGpuMs = 0  # the same at its prices, not rounded
    counted_tokens: Tokens = 0  # trained tokens that are billed so far
    # billable_gpu_ms, lost_gpu_ms: totals of its closed attempts
    billable_gpu_ms: GpuMs = 0
    lost_gpu_ms: GpuMs = 0
    # what of these its training costs, once it has succeeded; None: no bound of its evaluation
    training_gpu_ms: GpuMs | None = None
    result: TrainResult | None = None  # result of its training, once it has succeeded
    scores: BlobFile | None = None  # scores that wait for a verdict
    look: int = 1  # number of the gate's interim analysis, from 1
    scored: BlobFile | None = None  # scores of the interim analysis before; None: this is the first
    environment: Map[str, str] = Map()  # environment of its newest training attempt
    # loss of its adapter in its evaluation; None: not measured
    validation_loss_ppm: int | None = None
    anomalies: tuple[str, ...] = ()  # keys of the recorded anomalies


class Charge(Struct, frozen=True, kw_only=True):
    """Terms by which a slice or a credit of a job is charged, also after its end."""

    key_id: str | None  # the API key that submitted it, where it is known
    price: Price  # price of its admission
    time: MicroGpuMs  # use minus credits at its prices, counted so far, not rounded
    tokens: Tokens = 0  # trained tokens that are billed so far


class EndedJob(Struct, frozen=True, kw_only=True):
    """Remaining record of an ended job."""

    outcome: JobOutcome  # how it ended
    ended_at: Ms  # when it ended
    charge: Charge | None = None  # charge that later credits refer to


class MonthUse(Struct, frozen=True, kw_only=True):
    """Use of a tenant or of one of its API keys in a calendar month."""

    gpu_ms: GpuMs = 0  # GPU time that the ledger will have
    amounts: Map[str, Micro] = Map()  # price by currency, including answers
    # remainders of the prices of answers, in millionths of a unit of `amounts`
    millionths: Map[str, int] = Map()


class EndedRun(Struct, frozen=True, kw_only=True):
    """Record in a sweep of a configuration whose job ended."""

    published_by: str | None  # the job that published its version; None: it has none
    # loss of its adapter on validation rows, in millionths; None: not measured
    loss_ppm: int | None
    gpu_ms: GpuMs  # use of its job less credits; 0: another configuration has the same job
    micro: Micro  # price of that use


class OpenSweep(Struct, frozen=True, kw_only=True):
    terms: SweepTerms  # terms of its submission
    rung: int = 0  # current rung, from 0
    trials: tuple[int, ...] = ()  # numbers of the configurations in this rung
    open_runs: tuple[str, ...] = ()  # its jobs that have not ended
    ended_runs: Map[str, EndedRun] = Map()  # ended configurations by run, over all rungs
    skipped: tuple[str, ...] = ()  # runs that are not submitted
    is_cancelled: bool = False  # no more jobs are submitted
    # code of the reason why it has no open job; None: it does not wait for room
    waits_for: str | None = None


class ServingPool(Struct, frozen=True, kw_only=True):
    """A serving pool that is wanted."""

    terms: ServingPoolTerms  # terms that were set last
    failures: int = 0  # number of terms in a row that have failed
    # number of terms in a row that were lost or preempted in their first minute of service
    fruitless: int = 0
    excluded_nodes: tuple[str, ...] = ()  # nodes that failed under its terms, the newest last
    excluded_until: Ms = 0  # time at which they may be tried again
    stalled_by: str | None = None  # code of the reason why the next term cannot begin; None: it can


class OpenTerm(Struct, frozen=True, kw_only=True):
    """A term of a replica that has not ended."""

    term_id: str  # id of the term, which `pool` knows as a job
    serving_pool_id: str  # serving pool of the term
    pool: str  # pool where it was placed
    # price, hold_gpu_ms, price_max_micro, key_id: see its `ServingTermBegun`
    price: Price
    hold_gpu_ms: GpuMs
    price_max_micro: Micro
    key_id: str | None = None
    counted_gpu_ms: GpuMs = 0  # use minus credits, counted in the quota so far
    counted_micro_gpu_ms: MicroGpuMs = 0  # the same at its prices, not rounded
    is_ending: bool = False  # it was asked to end, so another one takes its place
    asked: bool = False  # the request to end came from its serving pool


class TenantJobs(Struct, frozen=True, kw_only=True):
    """Jobs, sweeps, serving and limits of one tenant."""

    # terms that bind admissions; None: the tenant was not created yet
    terms: PlanTerms | None = None
    scheduled: PlanChange | None = None  # terms that bind them from a later moment on
    suspended: bool = False  # no jobs may start
    jobs: Map[str, OpenJob] = Map()  # open jobs by id
    # ended, ended_before: recently ended jobs, and the generation before them, by id
    ended: Map[str, EndedJob] = Map()
    ended_before: Map[str, EndedJob] = Map()
    generation_at: Ms = 0  # when the first of `ended` ended
    # use by "tenant/2026-11", and by API key and month: "key_1/2026-11"
    use: Map[str, MonthUse] = Map()
    budgets: Map[str, BudgetTerms] = Map()  # monthly budgets by id
    alerts: Map[str, BudgetAlert] = Map()  # the last alert of each budget
    files: tuple[FileVerdict, ...] = ()  # latest validations, newest first
    # prices of admitted jobs and terms, by version and lane: "2026-11/free"
    prices: Map[str, Price] = Map()
    sweeps: Map[str, OpenSweep] = Map()  # open sweeps by id
    serving_pools: Map[str, ServingPool] = Map()  # wanted serving pools by id
    serving_terms: Map[str, OpenTerm] = Map()  # open terms by id, also of removed serving pools
    terms_begun: int = 0  # number of terms of all serving pools so far: no id is used twice
    # time at which a new month or plan may leave room for waiting sweeps or terms; None: nothing
    # waits for it
    review_at: Ms | None = None
    closed: bool = False  # the tenant is being erased and submits nothing any more
    erased: bool = False  # the tenant is closed, and nothing of it runs any more

    @property
    def used_gpu_ms(self) -> dict[str, GpuMs]:
        """Return the GPU time that the tenant has used, by calendar month."""
        prefix = f"{TENANT_BUDGET}/"
        return {
            window.removeprefix(prefix): use.gpu_ms
            for window, use in self.use.items()
            if window.startswith(prefix)
        }


Tenants: TypeAlias = Map[str, TenantJobs]
INITIAL: Final[Tenants] = Map()
