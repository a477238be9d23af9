"""`/v1/metrics`: a tenant's own jobs, use, spend, budgets and waits in Prometheus's format.

All values are gauges from the read models, so each gateway answers the same. Sums are of the
present month (UTC) and begin anew with it. No label has a value of which there are ever more.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from fastapi import Request
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.responses import Response

from schemas.units import HOUR_MS, Ms
from services.gateway.accounts.budget_routes import budget_response
from services.gateway.accounts.deps import NamedTenant
from services.gateway.billing.invoice_reads import find_tenant, read_invoices
from services.gateway.jobs.deps import JobDeps
from services.gateway.jobs.domain.statuses import STATES, job_state
from services.gateway.views.ports import Buckets
from services.gateway.views.tables.accounts import BUDGETS
from services.gateway.views.tables.billing import ANSWER_USES
from services.gateway.views.tables.jobs import JOBS, USAGE
from services.gateway.web.deps import Deps
from services.gateway.web.kept_readings import KeptReadings
from services.gateway.web.routing import new_router
from tunery.billing.periods import Period, period_of

KEPT_MS: Final[Ms] = 5_000
TENANTS_MAX: Final = 1_000  # whose answer is kept; the least recently used is dropped
BUDGETS_MAX: Final = 100  # the tenant's, and those of its keys; more are left out
GROUPS_MAX: Final = 1_000  # of one sum: states, lanes, roles and devices are fewer
EVER: Final = 2**62
POOL: Final = "default"  # where all jobs wait
MICRO: Final = 1_000_000
router = new_router("billing")


class TenantMetric(NamedTuple):
    """Gauge of a tenant."""

    name: str
    labels: tuple[str, ...]
    meaning: str


JOBS_OPEN: Final = TenantMetric(
    "tunery_tenant_jobs", ("phase",), "Jobs that have not ended, by phase"
)
JOBS_ENDED: Final = TenantMetric(
    "tunery_tenant_month_jobs_ended", ("outcome",), "Jobs that ended this month, by outcome"
)
WAITING: Final = TenantMetric(
    "tunery_tenant_jobs_waiting",
    ("lane", "reason"),
    "Jobs that wait for slots, by lane and by the code of the reason",
)
OLDEST: Final = TenantMetric(
    "tunery_tenant_oldest_wait_timestamp_seconds",
    ("lane",),
    "When the job that waits longest for slots was submitted, as a Unix time",
)
GPU_USED: Final = TenantMetric(
    "tunery_tenant_month_gpu_seconds_used",
    ("lane", "role"),
    "GPU time of this month, also what is given back",
)
GPU_BILLED: Final = TenantMetric(
    "tunery_tenant_month_gpu_seconds_billed",
    ("lane", "role"),
    "GPU time of this month that is billed: use less what is given back",
)
TRAINED: Final = TenantMetric(
    "tunery_tenant_month_trained_tokens", ("lane",), "Billed tokens of trainings of this month"
)
ANSWERED: Final = TenantMetric(
    "tunery_tenant_month_answer_tokens",
    ("kind",),
    "Tokens of answers of this month: prompt, cached (of the prompt) and completion",
)
REQUESTS: Final = TenantMetric("tunery_tenant_month_answers", (), "Answers of models of this month")
SPEND: Final = TenantMetric(
    "tunery_tenant_month_spend",
    ("currency",),
    "This month's invoice so far, before taxes, in units of the currency",
)
BUDGET_LIMIT: Final = TenantMetric(
    "tunery_tenant_budget_limit",
    ("budget", "currency"),
    "Amount of a monthly budget; `budget` is tenant, or the id of an API key",
)
BUDGET_LEFT: Final = TenantMetric(
    "tunery_tenant_budget_left",
    ("budget", "currency"),
    "What is neither used nor held of a budget's amount; below 0 where the limit was lowered",
)
BUDGET_SECONDS_LIMIT: Final = TenantMetric(
    "tunery_tenant_budget_gpu_seconds_limit", ("budget",), "GPU time of a monthly budget"
)
BUDGET_SECONDS_LEFT: Final = TenantMetric(
    "tunery_tenant_budget_gpu_seconds_left",
    ("budget",),
    "What is neither used nor held of a budget's GPU time",
)
TENANT_METRICS: Final = (
    *(JOBS_OPEN, JOBS_ENDED, WAITING, OLDEST),
    *(GPU_USED, GPU_BILLED, TRAINED, ANSWERED, REQUESTS, SPEND),
    *(BUDGET_LIMIT, BUDGET_LEFT, BUDGET_SECONDS_LIMIT, BUDGET_SECONDS_LEFT),
)
Values: TypeAlias = Mapping[tuple[str, ...], float]  # values of the labels → value
Figures: TypeAlias = tuple[TenantMetric, Values]


@router.get("/v1/metrics", response_class=Response)
async def tenant_metrics(request: Request, tenant: NamedTenant) -> Response:
    """The tenant's own figures for Prometheus and what reads its format.

    Jobs by phase and why they wait, GPU time, tokens and spend of this month, what budgets have
    left. An answer is kept for some seconds.
    """
    kept: KeptFigures = request.app.state.tenant_figures
    return Response(await kept.read(tenant), media_type=CONTENT_TYPE_LATEST)


class KeptFigures:
    """Answers of the tenants that asked last. Requests of one tenant share one reading."""

    def __init__(self, deps: JobDeps) -> None:
        async def read(tenant: str) -> bytes:
            return exposition(await tenant_figures(deps, tenant))

        self._kept = KeptReadings(read, deps.clock, KEPT_MS, names_max=TENANTS_MAX)

    async def read(self, tenant: str) -> bytes:
        return await self._kept.get(tenant)


async def tenant_figures(deps: JobDeps, tenant: str) -> Sequence[Figures]:
    """All figures of a tenant. Raises ApiError 503 as all reads do."""
    month = period_of(deps.clock.now_ms())
    return (
        await _open_jobs(deps, tenant),
        await _ended_jobs(deps, tenant, month),
        *await _waits(deps, tenant),
        *await _use(deps, tenant, month),
        *await _answers(deps, tenant, month),
        await _spend(deps, tenant, month),
        *await _budgets(deps, tenant),
    )


def exposition(figures: Iterable[Figures]) -> bytes:
    """The figures in Prometheus's text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(figures))
    return generate_latest(registry)


class _Families(Collector):
    def __init__(self, figures: Iterable[Figures]) -> None:
        self._figures = figures

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for metric, values in self._figures:
            family = GaugeMetricFamily(metric.name, metric.meaning, labels=metric.labels)
            for labels, value in sorted(values.items()):
                family.add_metric(labels, value)
            yield family


async def _open_jobs(deps: Deps, tenant: str) -> Figures:
    """Every phase has a value, so that a panel does not lose a line when it falls to 0."""
    counts: Counter[tuple[str, ...]] = Counter({(state,): 0 for state in STATES.values()})
    counts[("paused",)] = counts[("cancelled",)] = 0
    records = await deps.views.sums(
        JOBS,
        {"tenant": tenant, "phase": tuple(STATES)},
        Buckets("sequence", 0, EVER, EVER),
        by=("wanted", "phase"),
        of=(),
        limit=GROUPS_MAX,
    )
    for record in records:
        counts[(job_state(record["wanted"], record["phase"], None),)] += record["rows"]
    return JOBS_OPEN, counts


async def _ended_jobs(deps: Deps, tenant: str, month: Period) -> Figures:
    records = await deps.views.sums(
        JOBS,
        {"tenant": tenant, "phase": "done"},
        Buckets("finished_at", month.first_hour * HOUR_MS, month.end_ms, EVER),
        by=("outcome",),
        of=(),
        limit=GROUPS_MAX,
    )
    counts = {("succeeded",): 0, ("failed",): 0, ("cancelled",): 0}
    return JOBS_ENDED, counts | {(record["outcome"],): record["rows"] for record in records}


async def _waits(deps: JobDeps, tenant: str) -> Sequence[Figures]:
    rows, view = await deps.queues.read(POOL)
    counts: Counter[tuple[str, ...]] = Counter()
    oldest: dict[tuple[str, ...], float] = {}
    for row in rows.placements:
        explained = view.explanation(row.id)
        if row.tenant == tenant and row.granted_at is None and explained is not None:
            counts[(row.lane, explained.reason.code)] += 1
            since = min(row.submitted_at / 1_000, oldest.get((row.lane,), float(EVER)))
            oldest[(row.lane,)] = since
    return (WAITING, counts), (OLDEST, oldest)


async def _use(deps: Deps, tenant: str, month: Period) -> Sequence[Figures]:
    records = await deps.views.sums(
        USAGE,
        {"tenant": tenant},
        _hours_of(month),
        by=("lane", "role"),
        of=("used_gpu_ms", "billable_gpu_ms", "tokens"),
        limit=GROUPS_MAX,
    )
    used: dict[tuple[str, ...], float] = {}
    billed: dict[tuple[str, ...], float] = {}
    tokens: Counter[tuple[str, ...]] = Counter()
    for each in records:
        labels = (each["lane"], each["role"])
        used[labels] = each["used_gpu_ms"] / 1_000
        billed[labels] = each["billable_gpu_ms"] / 1_000
        tokens[(each["lane"],)] += each["tokens"]
    return (GPU_USED, used), (GPU_BILLED, billed), (TRAINED, tokens)


async def _answers(deps: Deps, tenant: str, month: Period) -> Sequence[Figures]:
    kinds = ("prompt", "cached", "completion")
    records = await deps.views.sums(
        ANSWER_USES,
        {"tenant": tenant},
        _hours_of(month),
        by=(),
        of=("requests", *(f"{kind}_tokens" for kind in kinds)),
        limit=GROUPS_MAX,
    )
    tokens: Values = {(kind,): sum(each[f"{kind}_tokens"] for each in records) for kind in kinds}
    return (ANSWERED, tokens), (REQUESTS, {(): sum(each["requests"] for each in records)})


async def _spend(deps: Deps, tenant: str, month: Period) -> Figures:
    invoices = await read_invoices(deps, await find_tenant(deps, tenant), month)
    return SPEND, {(each.currency,): each.amount_micro / MICRO for each in invoices}


async def _budgets(deps: Deps, tenant: str) -> Sequence[Figures]:
    limit: dict[tuple[str, ...], float] = {}
    left: dict[tuple[str, ...], float] = {}
    seconds_limit: dict[tuple[str, ...], float] = {}
    seconds_left: dict[tuple[str, ...], float] = {}
    # ids of keys begin with `key_`: in descending order the tenant's own budget is the first
    for row in await deps.views.page(BUDGETS, {"tenant": tenant}, limit=BUDGETS_MAX):
        budget = budget_response(deps, row)
        if budget.max_amount_micro is not None and budget.left_micro is not None:
            limit[(row.id, row.currency)] = budget.max_amount_micro / MICRO
            left[(row.id, row.currency)] = budget.left_micro / MICRO
        if budget.max_gpu_ms is not None and budget.left_gpu_ms is not None:
            seconds_limit[(row.id,)] = budget.max_gpu_ms / 1_000
            seconds_left[(row.id,)] = budget.left_gpu_ms / 1_000
    return (
        (BUDGET_LIMIT, limit),
        (BUDGET_LEFT, left),
        (BUDGET_SECONDS_LIMIT, seconds_limit),
        (BUDGET_SECONDS_LEFT, seconds_left),
    )


def _hours_of(month: Period) -> Buckets:
    return Buckets("hour_utc", month.first_hour, month.end_hour, month.end_hour)
