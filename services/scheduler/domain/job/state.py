"""What `job` remembers: limits and use per tenant, open jobs in full, ended ones as summaries."""

from typing import Final, TypeAlias

from immutables import Map
from msgspec import Struct

from schemas.account import Lane, Limits
from schemas.dataset import BaseTokens, Prepared
from schemas.job import Estimate, JobOutcome, JobSpec, KeyCap, Phase, Wanted
from schemas.pool import CloseMode, Role
from schemas.training import BlobFile, Checkpoint, HyperParameters, TrainResult
from schemas.units import GpuMs, Micro, Ms, Tokens

# A job may name a file whose validation ended a moment ago, before the gateway knew: this many of
# the tenant's latest validations are remembered for it.
FILES_REMEMBERED_MAX: Final = 256


class Terms(Struct, frozen=True, kw_only=True):
    """What binds admissions now. Jobs keep the lane and the price of their own admission."""

    lane: Lane
    limits: Limits
    price_version: str


class FileFact(Struct, frozen=True, kw_only=True):
    file_id: str
    accepted: bool
    tokens: tuple[BaseTokens, ...]
    code: str | None = None


class Open(Struct, frozen=True, kw_only=True):
    """The open placement: where it was granted, and how it was asked to end, if it was."""

    role: Role
    node_id: str | None = None
    asked: CloseMode | None = None


class Retries(Struct, frozen=True, kw_only=True):
    """Attempts that ended like this since the job last got further; `fruitless`: lost, preempted.

    Out of memory counts for the whole training.
    """

    oom: int = 0
    bad_node: int = 0
    platform: int = 0
    fruitless: int = 0


class Job(Struct, frozen=True, kw_only=True):
    """An open job.

    `hyper` differs from the spec's after an out-of-memory retry. `checkpoints`: newest first.
    `counted_gpu_ms`: use minus credits as counted in the quota so far; `billable_gpu_ms` and
    `lost_gpu_ms` are the totals of its closed attempts.
    """

    job_id: str
    spec: JobSpec
    hyper: HyperParameters
    lane: Lane
    price_version: str
    created_at: Ms
    cap: KeyCap | None = None
    wanted: Wanted = "run"
    phase: Phase = "validating"
    hold: Estimate | None = None
    prepared: Prepared | None = None
    base_bound: bool = False
    attempt: int = 0
    open: Open | None = None
    checkpoints: tuple[Checkpoint, ...] = ()
    exclude_nodes: tuple[str, ...] = ()
    retries: Retries = Retries()
    trained_tokens: Tokens = 0
    counted_gpu_ms: GpuMs = 0
    billable_gpu_ms: GpuMs = 0
    lost_gpu_ms: GpuMs = 0
    result: TrainResult | None = None
    scores: BlobFile | None = None


class Summary(Struct, frozen=True, kw_only=True):
    """What is left of a job that ended."""

    outcome: JobOutcome
    ended_at: Ms


class Tenant(Struct, frozen=True, kw_only=True):
    """`used_gpu_ms`: by calendar month ("2026-11"), what the ledger will say.

    `spent_micro`: what ended jobs of capped API keys cost, by "key/month".
    """

    terms: Terms | None = None
    jobs: Map[str, Job] = Map()
    ended: Map[str, Summary] = Map()
    used_gpu_ms: Map[str, GpuMs] = Map()
    spent_micro: Map[str, Micro] = Map()
    files: tuple[FileFact, ...] = ()


Tenants: TypeAlias = Map[str, Tenant]
NOBODY: Final[Tenants] = Map()
